#include "tools/fsctl/slabs.h"

#include "tools/fsctl/daemon_choice.h"
#include "tools/fsctl/slabs_view.h"

namespace fineserve::fsctl {

int RunSlabs(const Globals& globals, const SlabsOptions& options) {
  const absl::StatusOr<Pool> pool = ChoosePool(globals.gpu);
  if (!pool.ok()) return Fail(ExitCodeOf(pool.status()), pool.status());
  const bool fold = !options.all;
  return Print(globals.json ? SlabsJson(*pool, fold, Now())
                            : SlabsText(*pool, fold, Now(), globals.color));
}

}  // namespace fineserve::fsctl
