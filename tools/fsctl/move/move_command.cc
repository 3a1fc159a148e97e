#include "tools/fsctl/move/move_command.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "daemon/abi/move_link.h"
#include "tools/fsctl/move/move_output.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/pool/find_engine.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

// Calls `use(link)` with a connection to the chosen daemon; returns its exit
// code, or that of the failure to connect.
template <typename Use>
int WithDaemon(const Globals& globals, Use use) {
  const absl::StatusOr<Pool> pool = ChoosePool(globals.gpu);
  if (!pool.ok()) return FailWithoutPool(pool.status());
  if (!pool->daemon_answers()) {
    return Fail(kExitNoDaemon, DaemonTrouble(*pool));
  }
  const absl::StatusOr<abi::ObserverLink> link =
      abi::ConnectObserver(pool->socket);
  if (!link.ok()) return Fail(kExitNoDaemon, link.status());
  return use(*link);
}

// `what` it does not do.
int FailAtAnOlderDaemon(const char* what) {
  return Fail(kExitNoDaemon,
              absl::StrCat("this fineserved is of a release ", what,
                           "; fsctl upgrade puts the installed one in its "
                           "place"));
}

int FailToMove(const std::string& engine, const absl::Status& s) {
  if (absl::IsUnimplemented(s)) {
    return FailAtAnOlderDaemon("that moves nothing");
  }
  if (absl::IsUnavailable(s)) return Fail(kExitNoDaemon, s);
  return Fail(kExitBadAnswer, absl::StrCat(engine, ": ", s.message()));
}

}  // namespace

// With a connection: what the table says must be this daemon's.
int RunMove(const Globals& globals, const MoveOptions& options, abi::Place to) {
  return WithDaemon(globals, [&](const abi::ObserverLink& link) {
    const absl::StatusOr<abi::TableSnapshot> table =
        abi::ReadTable(link.table.get());
    if (!table.ok()) return Fail(kExitNoDaemon, table.status());
    const auto engine = FindEngine(*table, options.engine);
    if (!engine.ok()) return Fail(kExitUsage, engine.status());
    const absl::StatusOr<abi::MoveDone> done =
        abi::MoveEngine(link, engine->id, to, absl::Seconds(options.timeout_s));
    if (!done.ok()) return FailToMove(engine->name, done.status());
    return Print(globals.json ? MoveJson(engine->name, *done)
                              : MoveText(engine->name, *done));
  });
}

int RunStore(const Globals& globals) {
  return WithDaemon(globals, [&](const abi::ObserverLink& link) {
    const absl::StatusOr<abi::StoreAnswer> store = abi::AskStore(link);
    if (absl::IsUnimplemented(store.status())) {
      return FailAtAnOlderDaemon("without a store");
    }
    if (!store.ok()) return Fail(kExitNoDaemon, store.status());
    // An older daemon shares none.
    const absl::StatusOr<abi::StoreOffer> offer = abi::AskOffer(link);
    const uint64_t others = offer.ok() ? offer->answer.others_bytes : 0;
    return Print(globals.json ? StoreJson(*store, others)
                              : StoreText(*store, others));
  });
}

}  // namespace fineserve::fsctl
