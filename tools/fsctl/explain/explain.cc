#include "tools/fsctl/explain/explain.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/message.h"
#include "tools/fsctl/daemons/ask_daemons.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/daemons/find_engine.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/processes/install_paths.h"
#include "tools/fsctl/terminal/clean_text.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using abi::LinkState;
using Json = nlohmann::ordered_json;

struct ExplainOptions {
  std::string engine;  // a name or a process id
  size_t last = 20;    // decisions to print; 0: all
};

// Only the innermost frames are shown; --json has all of them.
constexpr size_t kFramesShown = 4;

const char* HookName(abi::Hook hook) {
  return abi::kHookSymbols[static_cast<size_t>(hook)];
}

struct VerdictLook {
  const char* name;
  Color color = Color::kNone;
};
// In the order of Verdict, which begins with 1.
constexpr VerdictLook kVerdicts[] = {
    {"?"},
    {"passed through"},
    {"redirected", Color::kGreen},
    {"denied", Color::kRed},
    {"released"},
    {"freed, not returned yet"},
    {"could not be freed"},
};
static_assert(std::size(kVerdicts) ==
              static_cast<size_t>(abi::Verdict::kKept) + 1);

const VerdictLook& LookOf(abi::Verdict verdict) {
  return kVerdicts[static_cast<size_t>(verdict)];
}

// In the order of Reason, which begins with 1.
constexpr const char* kReasonWords[] = {
    "?",
    "no rule says that it is KV",
    "inside fs_kv_begin/end",
    "its size is declared as KV",
    "KV, but there is no daemon to lease from",
    "KV, but the daemon refused this process",
    "KV, but too few free slabs, or none within its limit (fsctl limit)",
    "a driver call failed",
    "the program freed it",
    "a forked child gets no lease",
    "KV, but slabs cannot replace memory of this kind",
    "KV, but allocated during a stream capture",
    "its native frames match",
    "its native frames are excluded",
    "KV, but this process joined the daemon of another GPU",
    "KV, but its size does not fit whole slabs",
    "KV, but the shim's tables are full",
    "it is in slabs, which cannot be shared this way",
    "a KV tensor of the engine's view of the pool",
    "it was started for a view, but no plugin has replaced its block pool",
};
static_assert(std::size(kReasonWords) ==
              static_cast<size_t>(abi::Reason::kNoPlugin) + 1);

const char* ReasonWords(abi::Reason reason) {
  return kReasonWords[static_cast<size_t>(reason)];
}

// The reason, the rule that decided, and the frames that no rule could match.
std::string Why(const abi::DecisionSnapshot& d) {
  std::string out = ReasonWords(d.reason);
  if (!d.rule.empty()) absl::StrAppend(&out, " (rule \"", d.rule, "\")");
  if (d.rule.empty() && d.unnamed_frames > 0) {
    absl::StrAppend(&out, "; ", d.unnamed_frames,
                    " frames had no name that a rule could match");
  }
  return out;
}

Color LinkColor(LinkState state) {
  if (state == LinkState::kConnected) return Color::kGreen;
  return state == LinkState::kNotTried ? Color::kNone : Color::kYellow;
}

// Says how much of the process's memory can leave the GPU, and how much cannot,
// with the reason.
std::string MemoryLine(const abi::ScoreboardSnapshot& scoreboard) {
  std::string out = absl::StrCat(
      "memory    ", Size(scoreboard.resident_bytes - scoreboard.pinned_bytes),
      " can leave the GPU");
  if (scoreboard.evicted_bytes > 0) {
    absl::StrAppend(&out, ", ", Size(scoreboard.evicted_bytes), " has left");
  }
  if (scoreboard.gate_waits > 0) {
    absl::StrAppend(&out, ", ", scoreboard.gate_waits,
                    " calls have waited for it");
  }
  out += "\n";
  const auto stays = [&](uint64_t bytes, const char* why) {
    if (bytes == 0) return;
    absl::StrAppend(&out, "          stays: ", Size(bytes), " ", why, "\n");
  };
  stays(scoreboard.lent_bytes, "open in another process (CUDA IPC)");
  stays(scoreboard.pinned_bytes -
            std::min(scoreboard.pinned_bytes, scoreboard.lent_bytes),
        "handed to another process or device");
  if (scoreboard.dropped_bytes > 0) {
    absl::StrAppend(&out, "          dropped: ", Size(scoreboard.dropped_bytes),
                    " of parameters, which it reads from pid ",
                    scoreboard.lender_pid, " (fsctl restore)\n");
  }
  if (scoreboard.readers > 0) {
    absl::StrAppend(&out, "          ", scoreboard.readers,
                    " other processes read its parameters (fsctl drop)\n");
  }
  stays(scoreboard.created_bytes, "that it maps itself (cuMemCreate)");
  stays(scoreboard.small_bytes, "or less in small allocations");
  return out;
}

std::string Head(const abi::ScoreboardSnapshot& scoreboard, bool color,
                 const std::string& keeps_weights) {
  std::string out = absl::StrCat(
      "process   ", scoreboard.program, " (pid ", scoreboard.pid, ")",
      scoreboard.engine_id == 0
          ? ""
          : absl::StrCat(", engine ", scoreboard.engine_id),
      "\nlink      ",
      Paint(color, LinkColor(scoreboard.link_state),
            TextOf(scoreboard.link_state).words),
      "\n");
  if (!scoreboard.link_message.empty()) {
    absl::StrAppend(&out, "          ", scoreboard.link_message, "\n");
  }
  absl::StrAppend(&out, "calls     large ", scoreboard.large_allocations,
                  ", small at least ", scoreboard.small_allocations,
                  ", stacks captured ", scoreboard.stacks_captured,
                  "\nKV        redirected ", scoreboard.redirected_allocations,
                  ", now holding ", Size(scoreboard.redirected_bytes),
                  ", denied ", scoreboard.denied_allocations, "\n");
  if (scoreboard.resident_bytes + scoreboard.evicted_bytes > 0) {
    out += MemoryLine(scoreboard);
  }
  if (!keeps_weights.empty()) {
    absl::StrAppend(&out, "weights   kept: ", Clean(keeps_weights), "\n");
  }
  if (scoreboard.room_waits > 0) {
    absl::StrAppend(&out, "room      ", scoreboard.room_waits,
                    " allocations waited ", scoreboard.room_wait_ms,
                    " ms in all for device memory of the pool\n");
  }
  return out;
}

std::string DecisionLines(const abi::DecisionSnapshot& d, const AddressMap& map,
                          const Moment& now, bool color) {
  std::string out = absl::StrCat(
      "#", d.number, "  ", Age(now.monotonic_ns, d.time_ns), " ago  ",
      HookName(d.hook), "  ", Size(d.bytes), "  at ", Hex(d.address), "  ",
      Paint(color, LookOf(d.verdict).color, LookOf(d.verdict).name));
  if (d.lease != 0) absl::StrAppend(&out, "  lease ", d.lease);
  if (d.result != 0) absl::StrAppend(&out, "  CUDA error ", d.result);
  absl::StrAppend(&out, "\n      ", Why(d), "\n");
  for (size_t i = 0; i < std::min(kFramesShown, d.frames.size()); ++i) {
    const std::string frame = absl::StrCat("      ", map.Name(d.frames[i]));
    absl::StrAppend(&out, Paint(color, Color::kDim, frame), "\n");
  }
  return out;
}

std::string DecisionsTitle(const abi::ScoreboardSnapshot& scoreboard,
                           size_t shown) {
  if (scoreboard.decisions.empty()) return "\nno decisions yet\n";
  std::string out = absl::StrCat("\ndecisions: the last ", shown, " of ",
                                 scoreboard.decisions_begun);
  if (scoreboard.overwritten > 0) {
    absl::StrAppend(&out, " (", scoreboard.overwritten, " overwritten)");
  }
  if (scoreboard.unfinished > 0) {
    absl::StrAppend(&out, " (", scoreboard.unfinished, " being written)");
  }
  if (scoreboard.malformed > 0) {
    absl::StrAppend(&out, " (", scoreboard.malformed, " malformed)");
  }
  return out + "\n";
}

Json FramesJson(const abi::DecisionSnapshot& d, const AddressMap& map) {
  Json frames = Json::array();
  for (uint64_t frame : d.frames) frames.push_back(map.Name(frame));
  return frames;
}

Json DecisionJson(const abi::DecisionSnapshot& d, const AddressMap& map,
                  const Moment& now) {
  return {{"number", d.number},
          {"age_seconds", AgeSeconds(now.monotonic_ns, d.time_ns)},
          {"call", HookName(d.hook)},
          {"bytes", d.bytes},
          {"address", Hex(d.address)},
          {"verdict", LookOf(d.verdict).name},
          {"reason", ReasonWords(d.reason)},
          {"rule", d.rule},
          {"unnamed_frames", d.unnamed_frames},
          {"lease", d.lease},
          {"result", d.result},
          {"tid", d.tid},
          {"frames", FramesJson(d, map)}};
}

int NoScoreboard(pid_t pid, const AddressMap& map) {
  if (map.HasModule(kShimName)) {
    return Fail(
        kExitBadAnswer,
        absl::StrCat("the shim in pid ", pid,
                     " has decided nothing yet: the process has made no "
                     "large GPU allocation; try again later"));
  }
  return Fail(kExitBadAnswer,
              absl::StrCat("pid ", pid,
                           " runs without the shim; start it with: fsctl run "
                           "-- COMMAND"));
}

}  // namespace

std::string ExplainText(const abi::ScoreboardSnapshot& scoreboard,
                        const AddressMap& map, size_t last, const Moment& now,
                        bool color, const std::string& keeps_weights) {
  const size_t total = scoreboard.decisions.size();
  const size_t shown = last == 0 ? total : std::min(last, total);
  std::string out = Head(scoreboard, color, keeps_weights) +
                    DecisionsTitle(scoreboard, shown);
  for (size_t i = total - shown; i < total; ++i) {
    out += DecisionLines(scoreboard.decisions[i], map, now, color);
  }
  return out;
}

std::string ExplainJson(const abi::ScoreboardSnapshot& scoreboard,
                        const AddressMap& map, const Moment& now,
                        const std::string& keeps_weights) {
  Json decisions = Json::array();
  for (const abi::DecisionSnapshot& d : scoreboard.decisions) {
    decisions.push_back(DecisionJson(d, map, now));
  }
  const Json out = {
      {"pid", scoreboard.pid},
      {"program", scoreboard.program},
      {"engine", scoreboard.engine_id},
      {"daemon_epoch", Hex(scoreboard.epoch)},
      {"link", TextOf(scoreboard.link_state).name},
      {"link_message", scoreboard.link_message},
      {"small_allocations", scoreboard.small_allocations},
      {"large_allocations", scoreboard.large_allocations},
      {"redirected_allocations", scoreboard.redirected_allocations},
      {"redirected_bytes", scoreboard.redirected_bytes},
      {"resident_bytes", scoreboard.resident_bytes},
      {"pinned_bytes", scoreboard.pinned_bytes},
      {"lent_bytes", scoreboard.lent_bytes},
      {"frozen_bytes", scoreboard.frozen_bytes},
      {"dropped_bytes", scoreboard.dropped_bytes},
      {"lender_pid", scoreboard.lender_pid},
      {"readers", scoreboard.readers},
      {"keeps_weights", keeps_weights},
      {"evicted_bytes", scoreboard.evicted_bytes},
      {"gate_waits", scoreboard.gate_waits},
      {"denied_allocations", scoreboard.denied_allocations},
      {"room_waits", scoreboard.room_waits},
      {"room_wait_ms", scoreboard.room_wait_ms},
      {"created_bytes", scoreboard.created_bytes},
      {"created_most_bytes", scoreboard.created_most_bytes},
      {"stacks_captured", scoreboard.stacks_captured},
      {"decisions_begun", scoreboard.decisions_begun},
      {"overwritten", scoreboard.overwritten},
      {"unfinished", scoreboard.unfinished},
      {"malformed", scoreboard.malformed},
      {"decisions", decisions}};
  return JsonText(out);
}

namespace {

std::string NameOfMember(const abi::TableSnapshot& table, uint32_t pid) {
  for (const abi::EngineSnapshot& engine : LivingEngines(table)) {
    const auto& pids = engine.member_pids;
    if (std::find(pids.begin(), pids.end(), pid) != pids.end()) {
      return engine.name;
    }
  }
  return "";
}

constexpr char kOff[] =
    "the fleet file states no link_gb_s in [overload], or drop = \"never\"";

const wire::EngineFiguresT* FindFigures(const wire::ModelsT& models,
                                        const std::string& name) {
  for (const auto& model : models.models) {
    for (const auto& engine : model->engines) {
      if (engine->name == name) return engine.get();
    }
  }
  return nullptr;
}

// Says why this process's engine drops no weights, according to the daemons of
// its fleet; empty if it drops some, has named none, or no daemon knows it.
std::string KeepsWeights(const abi::ScoreboardSnapshot& scoreboard) {
  constexpr std::chrono::milliseconds kPatience(500);
  if (scoreboard.dropped_bytes != 0) return "";
  std::vector<absl::Status> troubles;
  for (const Pool& pool : AllPools(&troubles)) {
    const std::string name = NameOfMember(pool.table, scoreboard.pid);
    if (name.empty() || !pool.daemon_answers()) continue;
    const auto daemons = FindFleetDaemons(finding::GpuOfSocket(pool.socket));
    if (!daemons.ok()) continue;
    for (const auto& said : AskDaemons(
             *daemons, wire::Encode(0, 0, wire::ModelsQueryT()), kPatience)) {
      const wire::ModelsT* models = said.ok() ? said->body.AsModels() : nullptr;
      const wire::EngineFiguresT* engine =
          models == nullptr ? nullptr : FindFigures(*models, name);
      if (engine == nullptr) continue;
      if (!engine->keeps_weights.empty()) return engine->keeps_weights;
      if (scoreboard.frozen_bytes != 0) return kOff;
    }
  }
  return "";
}

int RunExplain(const Globals& globals, const ExplainOptions& options) {
  const absl::StatusOr<pid_t> pid = OneProcessOf(globals.gpu, options.engine);
  if (!pid.ok()) return FailWithoutProcess(pid.status());
  const AddressMap map = ReadMap(*pid);
  const auto scoreboard = FindScoreboard(*pid);
  if (absl::IsNotFound(scoreboard.status())) return NoScoreboard(*pid, map);
  if (!scoreboard.ok()) return Fail(kExitBadAnswer, scoreboard.status());
  const std::string keeps = KeepsWeights(*scoreboard);
  return Print(globals.json ? ExplainJson(*scoreboard, map, Now(), keeps)
                            : ExplainText(*scoreboard, map, options.last, Now(),
                                          globals.color, keeps));
}

}  // namespace

void AddExplain(Commands& c) {
  const auto [command, o] =
      c.Add("explain", "Show what the shim in a process decided, and why",
            "  fsctl explain llama-a\n"
            "  fsctl explain 4711 --last 0     print every recorded decision\n",
            RunExplain);
  command
      ->add_option("ENGINE", o->engine,
                   "Its name (fsctl engines), or a process id")
      ->required();
  command->add_option("--last", o->last,
                      "Number of decisions to print, 0 for all (default: 20)");
}

}  // namespace fineserve::fsctl
