#include "tools/fsctl/move/store_command.h"

#include "absl/status/statusor.h"
#include "daemon/abi/move_link.h"
#include "tools/fsctl/move/move_output.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {

int RunStore(const Globals& globals) {
  const absl::StatusOr<Pool> pool = ChoosePool(globals.gpu);
  if (!pool.ok()) return FailWithoutPool(pool.status());
  if (!pool->daemon_answers()) {
    return Fail(kExitNoDaemon, DaemonTrouble(*pool));
  }
  const absl::StatusOr<abi::ObserverLink> link =
      abi::ConnectObserver(pool->socket);
  if (!link.ok()) return Fail(kExitNoDaemon, link.status());
  const absl::StatusOr<abi::StoreAnswer> store = abi::AskStore(*link);
  if (absl::IsUnimplemented(store.status())) {
    return Fail(kExitNoDaemon,
                "this fineserved is of a release without a store; fsctl "
                "upgrade puts the installed one in its place");
  }
  if (!store.ok()) return Fail(kExitNoDaemon, store.status());
  return Print(globals.json ? StoreJson(*store) : StoreText(*store));
}

}  // namespace fineserve::fsctl
