#include "tools/fsctl/look/slabs.h"

#include "tools/fsctl/look/slabs_output.h"
#include "tools/fsctl/pool/observation.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {

int RunSlabs(const Globals& globals, const SlabsOptions& options) {
  const absl::StatusOr<Observation> seen = Observe(globals.gpu);
  if (!seen.ok()) return Fail(ExitCodeOf(seen.status()), seen.status());
  return Print(globals.json ? SlabsJson(*seen, options)
                            : SlabsText(*seen, options, globals.color));
}

}  // namespace fineserve::fsctl
