#include "tools/fsctl/limit/limit_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/limit_link.h"
#include "daemon/contract/abi/view_messages.h"
#include "tools/fsctl/limit/limit_amount.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/pool/find_engine.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;

uint64_t Above(uint64_t held, uint64_t limit) {
  return limit == 0 || held <= limit ? 0 : held - limit;
}

std::string Slabs(uint64_t count) {
  return absl::StrCat(count, count == 1 ? " slab" : " slabs");
}

std::string PartOfPool(uint64_t slabs, const abi::TableSnapshot& table) {
  return Percent(static_cast<double>(slabs) / std::max(table.wanted_slabs, 1u));
}

Json EngineJson(const abi::TableSnapshot& table,
                const abi::EngineSnapshot& engine) {
  const bool limited = engine.limit != 0;
  return {{"id", engine.id},
          {"name", engine.name},
          {"limit_slabs", limited ? Json(engine.limit) : Json()},
          {"limit_bytes",
           limited ? Json(engine.limit * table.slab_bytes()) : Json()},
          {"held_slabs", engine.slabs_held},
          {"above_slabs", Above(engine.slabs_held, engine.limit)},
          {"floor_slabs", engine.view.floor}};
}

// Says what happens to slabs that the engine holds above its limit.
std::string AboveText(const LimitChange& change) {
  const abi::LimitDone& done = change.done;
  const uint64_t above = Above(done.held, done.slabs);
  if (above == 0) return absl::StrCat("it holds ", done.held);
  const uint64_t in_view = done.held - std::min(done.held, done.whole);
  const uint64_t left = done.slabs - std::min(done.slabs, done.whole);
  const uint64_t most = std::max<uint64_t>(change.engine.view.floor, left);
  const uint64_t asked = in_view - std::min(in_view, most);
  std::string text = absl::StrCat("it holds ", done.held);
  if (asked > 0) absl::StrAppend(&text, ", ", asked, " are asked back");
  if (done.whole > 0) {
    absl::StrAppend(&text, ", ", done.whole,
                    " are leased whole and come back when it frees them");
  }
  return text;
}

std::string RoundedText(const LimitChange& change,
                        const abi::TableSnapshot& table) {
  const bool percent = change.amount.kind == LimitAmount::Kind::kPercent;
  const std::string of_pool =
      percent ? absl::StrCat(" of the pool's ", table.wanted_slabs) : "";
  const std::string unrounded = UnroundedSlabs(change.amount, table);
  return absl::StrCat(
      change.asked, of_pool,
      unrounded.empty() ? "" : absl::StrCat(" = ", unrounded, " rounded down"));
}

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

std::string LimitsText(const abi::TableSnapshot& table, const Engines& engines,
                       bool color) {
  TextTable out({">ID", "NAME", ">LIMIT", ">SIZE", ">OF POOL", ">HELD",
                 ">ABOVE", ">FLOOR"});
  for (const abi::EngineSnapshot& e : engines) {
    const bool limited = e.limit != 0;
    const uint64_t above = Above(e.slabs_held, e.limit);
    out.Add({absl::StrCat(e.id),
             e.name,
             limited ? absl::StrCat(e.limit) : "none",
             limited ? Size(e.limit * table.slab_bytes()) : "-",
             limited ? PartOfPool(e.limit, table) : "-",
             absl::StrCat(e.slabs_held),
             {limited ? absl::StrCat(above) : "-",
              above > 0 ? Color::kYellow : Color::kNone},
             absl::StrCat(e.view.floor)});
  }
  return out.Render(color);
}

std::string LimitsJson(const abi::TableSnapshot& table,
                       const Engines& engines) {
  Json all = Json::array();
  for (const abi::EngineSnapshot& e : engines) {
    all.push_back(EngineJson(table, e));
  }
  return JsonText({{"pool_slabs", table.wanted_slabs},
                   {"slab_bytes", table.slab_bytes()},
                   {"engines", std::move(all)}});
}

std::string LimitChangeText(const abi::TableSnapshot& table,
                            const LimitChange& change) {
  const std::string& name = change.engine.name;
  if (change.done.slabs == 0) {
    return absl::StrCat(name, change.engine.limit == 0
                                  ? ": it had no limit\n"
                                  : ": no limit any more\n");
  }
  std::string text = absl::StrCat(
      name, ": at most ", Slabs(change.done.slabs), " (",
      Size(change.done.slabs * table.slab_bytes()),
      "): ", RoundedText(change, table), "; ", AboveText(change), "\n");
  if (change.done.slabs >= table.wanted_slabs) {
    absl::StrAppend(&text, "That is the whole pool: it changes nothing.\n");
  }
  if ((change.engine.view.flags & abi::kViewOfGroup) != 0) {
    absl::StrAppend(
        &text,
        "It spans several GPUs: on the others it wants at most what "
        "it may have here.\n");
  }
  return text;
}

std::string LimitChangeJson(const abi::TableSnapshot& table,
                            const LimitChange& change) {
  abi::EngineSnapshot after = change.engine;
  after.limit = change.done.slabs;
  after.slabs_held = change.done.held;
  Json json = EngineJson(table, after);
  json["asked"] = change.asked;
  json["whole_slabs"] = change.done.whole;
  json["pool_slabs"] = table.wanted_slabs;
  json["slab_bytes"] = table.slab_bytes();
  return JsonText(json);
}

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
