#include "tools/fsctl/look/engines.h"

#include "tools/fsctl/look/engines_output.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {

int RunEngines(const Globals& globals) {
  const absl::StatusOr<Observation> seen = Observe(globals.gpu);
  if (!seen.ok()) return Fail(ExitCodeOf(seen.status()), seen.status());
  return Print(globals.json ? EnginesJson(*seen)
                            : EnginesText(*seen, globals.color));
}

}  // namespace fineserve::fsctl
