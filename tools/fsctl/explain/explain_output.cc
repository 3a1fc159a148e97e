#include "tools/fsctl/explain/explain_output.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tools/fsctl/process/inspected_process.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using abi::Hook;
using abi::LinkState;
using abi::Reason;
using abi::Verdict;
using Json = nlohmann::ordered_json;

// The innermost frames; the rest is in --json.
constexpr size_t kFramesShown = 4;

const char* LinkName(LinkState state) {
  switch (state) {
    case LinkState::kNotTried:
      return "not_tried";
    case LinkState::kConnected:
      return "connected";
    case LinkState::kNoDaemon:
      return "no_daemon";
    case LinkState::kRefused:
      return "refused";
    case LinkState::kLost:
      return "lost";
    case LinkState::kForked:
      return "forked";
  }
  return "?";
}

const char* HookName(Hook hook) {
  return abi::kHookSymbols[static_cast<size_t>(hook)];
}

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPassThrough:
      return "passed through";
    case Verdict::kRedirected:
      return "redirected";
    case Verdict::kDenied:
      return "denied";
    case Verdict::kReleased:
      return "released";
    case Verdict::kDeferred:
      return "freed, not passed yet";
    case Verdict::kKept:
      return "could not be freed";
  }
  return "?";
}

Color VerdictColor(Verdict verdict) {
  switch (verdict) {
    case Verdict::kRedirected:
      return Color::kGreen;
    case Verdict::kDenied:
      return Color::kRed;
    default:
      return Color::kNone;
  }
}

const char* ReasonWords(Reason reason) {
  switch (reason) {
    case Reason::kNotKv:
      return "no rule says that it is KV";
    case Reason::kScope:
      return "inside fs_kv_begin/end";
    case Reason::kDeclaredSize:
      return "its size is declared as KV";
    case Reason::kNoDaemon:
      return "KV, but no daemon to lease from";
    case Reason::kRefused:
      return "KV, but the daemon refused this process";
    case Reason::kPoolExhausted:
      return "KV, but too few free slabs";
    case Reason::kDriverError:
      return "a driver call failed";
    case Reason::kFreed:
      return "the program freed it";
    case Reason::kForkedChild:
      return "a forked child gets no lease";
    case Reason::kMemoryKind:
      return "KV, but slabs cannot stand in for memory of this kind";
    case Reason::kCapturing:
      return "KV, but allocated by a stream capture";
    case Reason::kFrames:
      return "its native frames match";
    case Reason::kExcluded:
      return "its native frames are excluded";
    case Reason::kOtherGpu:
      return "KV, but this process joined the daemon of another GPU";
    case Reason::kSlabSize:
      return "KV, but slabs would not fit its size, or be half empty";
    case Reason::kTableFull:
      return "KV, but the shim's tables are full";
    case Reason::kShared:
      return "it lies in slabs, which cannot be shared this way";
    case Reason::kView:
      return "a KV tensor of the engine's view of the pool";
    case Reason::kNoPlugin:
      return "the process was started for a view, but nothing has replaced its "
             "block pool";
  }
  return "?";
}

// The reason, the rule that spoke and what no rule could see.
std::string Why(const abi::DecisionSnapshot& d) {
  std::string out = ReasonWords(d.reason);
  if (!d.rule.empty()) absl::StrAppend(&out, " (rule \"", d.rule, "\")");
  if (d.rule.empty() && d.unnamed_frames > 0) {
    absl::StrAppend(&out, "; ", d.unnamed_frames,
                    " frames had no name that a rule could see");
  }
  return out;
}

Color LinkColor(LinkState state) {
  if (state == LinkState::kConnected) return Color::kGreen;
  return state == LinkState::kNotTried ? Color::kNone : Color::kYellow;
}

std::string Head(const abi::ScoreboardSnapshot& scoreboard, bool color) {
  std::string out = absl::StrCat(
      "process   ", scoreboard.program, " (pid ", scoreboard.pid, ")",
      scoreboard.engine_id == 0
          ? ""
          : absl::StrCat(", engine ", scoreboard.engine_id),
      "\nlink      ",
      Paint(color, LinkColor(scoreboard.link_state),
            LinkWords(scoreboard.link_state)),
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
  return out;
}

std::string DecisionLines(const abi::DecisionSnapshot& d, const AddressMap& map,
                          const Moment& now, bool color) {
  std::string out = absl::StrCat(
      "#", d.number, "  ", Age(now.monotonic_ns, d.time_ns), " ago  ",
      HookName(d.hook), "  ", Size(d.bytes), "  at ", Hex(d.address), "  ",
      Paint(color, VerdictColor(d.verdict), VerdictName(d.verdict)));
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
  if (scoreboard.decisions.empty()) return "\nno decision yet\n";
  std::string out = absl::StrCat("\ndecisions, the last ", shown, " of ",
                                 scoreboard.decisions_begun);
  if (scoreboard.overwritten > 0) {
    absl::StrAppend(&out, " (", scoreboard.overwritten, " are overwritten)");
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
          {"verdict", VerdictName(d.verdict)},
          {"reason", ReasonWords(d.reason)},
          {"rule", d.rule},
          {"unnamed_frames", d.unnamed_frames},
          {"lease", d.lease},
          {"result", d.result},
          {"tid", d.tid},
          {"frames", FramesJson(d, map)}};
}

}  // namespace

std::string ExplainText(const abi::ScoreboardSnapshot& scoreboard,
                        const AddressMap& map, size_t last, const Moment& now,
                        bool color) {
  const size_t total = scoreboard.decisions.size();
  const size_t shown = last == 0 ? total : std::min(last, total);
  std::string out = Head(scoreboard, color) + DecisionsTitle(scoreboard, shown);
  for (size_t i = total - shown; i < total; ++i) {
    out += DecisionLines(scoreboard.decisions[i], map, now, color);
  }
  return out;
}

std::string ExplainJson(const abi::ScoreboardSnapshot& scoreboard,
                        const AddressMap& map, const Moment& now) {
  Json decisions = Json::array();
  for (const abi::DecisionSnapshot& d : scoreboard.decisions) {
    decisions.push_back(DecisionJson(d, map, now));
  }
  const Json out = {
      {"pid", scoreboard.pid},
      {"program", scoreboard.program},
      {"engine", scoreboard.engine_id},
      {"daemon_epoch", Hex(scoreboard.epoch)},
      {"link", LinkName(scoreboard.link_state)},
      {"link_message", scoreboard.link_message},
      {"small_allocations", scoreboard.small_allocations},
      {"large_allocations", scoreboard.large_allocations},
      {"redirected_allocations", scoreboard.redirected_allocations},
      {"redirected_bytes", scoreboard.redirected_bytes},
      {"denied_allocations", scoreboard.denied_allocations},
      {"stacks_captured", scoreboard.stacks_captured},
      {"decisions_begun", scoreboard.decisions_begun},
      {"overwritten", scoreboard.overwritten},
      {"unfinished", scoreboard.unfinished},
      {"malformed", scoreboard.malformed},
      {"decisions", decisions}};
  return out.dump(2) + "\n";
}

}  // namespace fineserve::fsctl
