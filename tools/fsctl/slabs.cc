#include "tools/fsctl/slabs.h"

#include "tools/fsctl/observation.h"
#include "tools/fsctl/slabs_view.h"

namespace fineserve::fsctl {

int RunSlabs(const Globals& globals, const SlabsOptions& options) {
  const absl::StatusOr<Observation> seen = Observe(globals.gpu);
  if (!seen.ok()) return Fail(ExitCodeOf(seen.status()), seen.status());
  return Print(globals.json ? SlabsJson(*seen, options)
                            : SlabsText(*seen, options, globals.color));
}

}  // namespace fineserve::fsctl
