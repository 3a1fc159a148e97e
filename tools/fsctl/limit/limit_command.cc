#include "tools/fsctl/limit/limit_command.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "daemon/abi/limit_link.h"
#include "tools/fsctl/limit/limit_amount.h"
#include "tools/fsctl/limit/limit_output.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/pool/find_engine.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

absl::Status CheckFloor(const abi::EngineSnapshot& engine, uint32_t slabs,
                        const abi::TableSnapshot& table) {
  const uint32_t floor = engine.view.floor;
  if (slabs == 0 || slabs >= floor) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "engine ", engine.name, " has a floor of ", floor,
      " slabs, its own at all times (its longest request, or its floor in "
      "fineserved's file); the least limit is ",
      LeastAmount(floor, table), ", not ", slabs,
      slabs == 1 ? " slab" : " slabs"));
}

int FailToLimit(const absl::Status& s) {
  if (absl::IsUnimplemented(s)) {
    return Fail(kExitNoDaemon,
                "this fineserved is of a release that knows no limits; fsctl "
                "upgrade puts the installed one in its place");
  }
  return Fail(absl::IsInvalidArgument(s) ? kExitUsage : kExitNoDaemon, s);
}

// With a connection: what the table says must be this daemon's.
int Change(const Globals& globals, const Pool& pool, const std::string& name,
           const std::string& asked) {
  const absl::StatusOr<LimitAmount> amount = ParseLimitAmount(asked);
  if (!amount.ok()) return Fail(kExitUsage, amount.status());
  const absl::StatusOr<abi::ObserverLink> link =
      abi::ConnectObserver(pool.socket);
  if (!link.ok()) return Fail(kExitNoDaemon, link.status());
  const absl::StatusOr<abi::TableSnapshot> table =
      abi::ReadTable(link->table.get());
  if (!table.ok()) return Fail(kExitNoDaemon, table.status());
  const absl::StatusOr<abi::EngineSnapshot> engine = FindEngine(*table, name);
  if (!engine.ok()) return Fail(kExitUsage, engine.status());
  const absl::StatusOr<uint32_t> slabs = SlabsOf(*amount, *table);
  if (!slabs.ok()) return Fail(kExitUsage, slabs.status());
  const absl::Status fits = CheckFloor(*engine, *slabs, *table);
  if (!fits.ok()) return Fail(kExitUsage, fits);
  const auto done = abi::LimitEngine(*link, engine->id, *slabs);
  if (!done.ok()) return FailToLimit(done.status());
  const LimitChange change = {asked, *amount, *engine, *done};
  return Print(globals.json ? LimitChangeJson(*table, change)
                            : LimitChangeText(*table, change));
}

}  // namespace

int RunLimit(const Globals& globals, const LimitOptions& options) {
  const absl::StatusOr<Pool> pool = ChoosePool(globals.gpu);
  if (!pool.ok()) return FailWithoutPool(pool.status());
  if (!pool->daemon_answers()) {
    return Fail(kExitNoDaemon, DaemonTrouble(*pool));
  }
  if (!options.amount.empty()) {
    return Change(globals, *pool, options.engine, options.amount);
  }
  Engines engines = LivingEngines(pool->table);
  if (!options.engine.empty()) {
    const auto engine = FindEngine(pool->table, options.engine);
    if (!engine.ok()) return Fail(kExitUsage, engine.status());
    engines = {*engine};
  }
  return Print(globals.json ? LimitsJson(pool->table, engines)
                            : LimitsText(pool->table, engines, globals.color));
}

}  // namespace fineserve::fsctl
