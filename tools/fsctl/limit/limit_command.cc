#include "tools/fsctl/limit/limit_command.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/limit_link.h"
#include "daemon/contract/abi/view_messages.h"
#include "kernels/driver/rounding.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/daemons/find_engine.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/suggestion.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Kind = LimitAmount::Kind;

constexpr uint64_t kWhole = 10'000;  // hundredths of a percent

// Returns the amount in units of 1 / kWhole slabs for a percentage, and of 1 /
// slab_bytes slabs for bytes.
uint64_t PartsOf(const LimitAmount& a, const abi::TableSnapshot& table) {
  return a.kind == Kind::kPercent ? a.amount * table.wanted_slabs : a.amount;
}
uint64_t PartsOfASlab(const LimitAmount& a, const abi::TableSnapshot& table) {
  return a.kind == Kind::kPercent ? kWhole : table.slab_bytes();
}

absl::StatusOr<LimitAmount> ParsePercent(const std::string& text) {
  double percent = 0;
  const std::string number = text.substr(0, text.size() - 1);
  if (!absl::SimpleAtod(number, &percent) || !(percent > 0) || percent > 100) {
    return absl::InvalidArgumentError(
        absl::StrCat(text, ": give more than 0% and at most 100% of the pool"));
  }
  const auto hundredths = static_cast<uint64_t>(std::llround(percent * 100));
  return LimitAmount{Kind::kPercent, hundredths};
}

// "24MiB", as it may be typed.
std::string TypedSize(uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; unit + 1 < std::size(units) && bytes % 1024 == 0; ++unit) {
    bytes /= 1024;
  }
  return absl::StrCat(bytes, units[unit]);
}

}  // namespace

absl::StatusOr<LimitAmount> ParseLimitAmount(const std::string& text) {
  if (text == "none") return LimitAmount{};
  if (absl::EndsWith(text, "%")) return ParsePercent(text);
  LimitAmount amount{Kind::kBytes};
  uint64_t number = 0;
  if (absl::SimpleAtoi(text, &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat(text, ": of what? Give ", text, "% or ", text, "GiB"));
  }
  if (abi::ParseByteSize(text.c_str(), &amount.amount)) return amount;
  return absl::InvalidArgumentError(
      absl::StrCat("not an amount: '", text, "'", DidYouMean(text, {"none"}),
                   "; give a part of the pool (30%), a size (8GiB) or none"));
}

absl::StatusOr<uint32_t> SlabsOf(const LimitAmount& amount,
                                 const abi::TableSnapshot& table) {
  if (amount.kind == Kind::kNone) return 0;
  const uint64_t slabs = PartsOf(amount, table) / PartsOfASlab(amount, table);
  if (slabs == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("that is less than one slab of ", Size(table.slab_bytes()),
                     "; the least limit is ", LeastAmount(1, table)));
  }
  return static_cast<uint32_t>(std::min<uint64_t>(slabs, table.slabs.size()));
}

std::string UnroundedSlabs(const LimitAmount& amount,
                           const abi::TableSnapshot& table) {
  const uint64_t parts = PartsOf(amount, table);
  const uint64_t slab = PartsOfASlab(amount, table);
  if (amount.kind == Kind::kNone || parts % slab == 0) return "";
  // Never rounds up to a whole number, which would look as if nothing had been
  // rounded.
  const double slabs = static_cast<double>(parts) / static_cast<double>(slab);
  return absl::StrFormat("%g", std::floor(slabs * 100) / 100);
}

std::string LeastAmount(uint32_t slabs, const abi::TableSnapshot& table) {
  const uint64_t hundredths =
      DivideUp(slabs * kWhole, std::max(table.wanted_slabs, 1u));
  return absl::StrFormat("%s (%g%%)", TypedSize(slabs * table.slab_bytes()),
                         static_cast<double>(hundredths) / 100);
}

namespace {

using Json = nlohmann::ordered_json;

struct LimitOptions {
  std::string engine;  // its name or number; empty: list all
  std::string amount;  // empty: list
};

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

// Reads the table over the same connection, since it must be the table of the
// daemon that is asked.
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
    return absl::StrCat(name, change.engine.limit == 0 ? ": it had no limit\n"
                                                       : ": no limit now\n");
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

namespace {

int RunLimit(const Globals& globals, const LimitOptions& options) {
  const absl::StatusOr<Pool> pool = ChooseAnsweringPool(globals.gpu);
  if (!pool.ok()) return FailWithoutPool(pool.status());
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

}  // namespace

void AddLimit(Commands& c) {
  const auto [command, o] = c.Add(
      "limit", "Limit what an engine may hold of the pool",
      "  fsctl limit                     the engines' limits\n"
      "  fsctl limit llama-a 30%         of the pool as it is now\n"
      "  fsctl limit llama-a 8GiB\n"
      "  fsctl limit llama-a none        takes it away\n"
      "  fsctl limit --json | jq '.engines[] | select(.above_slabs > 0)'\n"
      "It counts at once: the engine gets no slab above it, and is asked for\n"
      "those that it holds above it. Never below the engine's floor; ends "
      "with\n"
      "the engine.\n",
      RunLimit);
  command->add_option("ENGINE", o->engine,
                      "Its name or number (fsctl engines)");
  command->add_option("AMOUNT", o->amount,
                      "A part of the pool (30%), a size (8GiB), or none");
}

}  // namespace fineserve::fsctl
