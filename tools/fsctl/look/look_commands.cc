#include "tools/fsctl/look/look_commands.h"

#include "tools/fsctl/look/engines_output.h"
#include "tools/fsctl/look/slabs_output.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {

int RunSlabs(const Globals& globals, const SlabsOptions& options) {
  const absl::StatusOr<Observation> seen = Observe(globals.gpu);
  if (!seen.ok()) return FailWithoutPool(seen.status());
  return Print(globals.json ? SlabsJson(*seen, options)
                            : SlabsText(*seen, options, globals.color));
}

int RunEngines(const Globals& globals) {
  const absl::StatusOr<Observation> seen = Observe(globals.gpu);
  if (!seen.ok()) return FailWithoutPool(seen.status());
  return Print(globals.json ? EnginesJson(*seen)
                            : EnginesText(*seen, globals.color));
}

}  // namespace fineserve::fsctl
