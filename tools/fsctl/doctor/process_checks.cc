#include "tools/fsctl/doctor/process_checks.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/processes/install_paths.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

using abi::Hook;
using abi::Path;
using Severity = Finding::Severity;

// In the order of Path.
constexpr const char* kPathWords[abi::kPathCount] = {"dlsym(RTLD_DEFAULT)",
                                                     "dlsym of a library",
                                                     "dlsym(RTLD_NEXT)",
                                                     "dlvsym",
                                                     "cuGetProcAddress",
                                                     "cuGetProcAddress_v2",
                                                     "called"};

bool IsDrivers(Hook hook) {
  return absl::StartsWith(abi::kHookSymbols[static_cast<size_t>(hook)], "cu");
}

Finding HookLine(const abi::HookUse& use) {
  std::vector<std::string> channels;
  for (uint32_t i = 0; i < abi::kPathCount; ++i) {
    const auto path = static_cast<Path>(i);
    if (path == Path::kCalled || use.by(path) == 0) continue;
    channels.push_back(absl::StrCat(kPathWords[i], " ", use.by(path)));
  }
  const std::string handed =
      channels.empty() ? "bound by its symbol"
                       : "handed out by " + absl::StrJoin(channels, ", ");
  return {Severity::kOk, abi::kHookSymbols[static_cast<size_t>(use.hook)],
          absl::StrCat(handed, "; called ", use.by(Path::kCalled),
                       " (calls that only pass through are not counted)"),
          ""};
}

bool HasDriver(const AddressMap& map) {
  return !map.PathOf("libcuda.so").empty();
}

}  // namespace

Finding CheckPreload(const AddressMap& map, const std::string& environment) {
  if (map.HasModule(kShimName)) {
    return {Severity::kOk, "preload", "the shim is loaded", ""};
  }
  if (map.PathOf("ld-linux").empty()) {
    return {Severity::kWrong, "preload",
            "the program is statically linked, so nothing can be preloaded",
            "link the program dynamically"};
  }
  if (absl::StrContains(environment, kShimName)) {
    return {Severity::kWrong, "preload",
            "LD_PRELOAD names the shim, but the loader ignored it",
            "see the first lines of the program's output: the shim's file is "
            "missing, or the program is set-user-ID"};
  }
  return {Severity::kWrong, "preload", "LD_PRELOAD does not name the shim",
          "start it with: fsctl run -- COMMAND"};
}

Finding CheckLink(const abi::ScoreboardSnapshot& scoreboard) {
  const bool good = scoreboard.link_state == abi::LinkState::kConnected;
  std::string found = TextOf(scoreboard.link_state).words;
  if (!scoreboard.link_message.empty()) {
    absl::StrAppend(&found, " (", scoreboard.link_message, ")");
  }
  return {good ? Severity::kOk : Severity::kNote, "link", found,
          good ? ""
               : "start fineserved: the process looks for it again at its next "
                 "large allocations"};
}

Finding CheckGpus(const abi::ScoreboardSnapshot& scoreboard) {
  const auto elsewhere =
      std::count_if(scoreboard.decisions.begin(), scoreboard.decisions.end(),
                    [](const abi::DecisionSnapshot& d) {
                      return d.reason == abi::Reason::kOtherGpu;
                    });
  if (elsewhere == 0) {
    return {Severity::kOk, "gpus", "all KV is on the GPU of its daemon", ""};
  }
  return {Severity::kNote, "gpus",
          absl::StrCat(elsewhere,
                       " allocations of KV on another GPU than its "
                       "daemon's are not shared"),
          "use a process for each GPU"};
}

Findings CheckHooks(const abi::ScoreboardSnapshot& scoreboard,
                    const AddressMap& map) {
  Findings checks;
  for (const abi::HookUse& use : scoreboard.hooks)
    checks.push_back(HookLine(use));
  const bool reached =
      std::any_of(scoreboard.hooks.begin(), scoreboard.hooks.end(),
                  [](const abi::HookUse& use) { return IsDrivers(use.hook); });
  if (!reached && HasDriver(map)) {
    checks.push_back(
        {Severity::kNote, "hooks",
         "the driver is loaded, but the process uses none of our hooks for it",
         "please report it: the program reaches the driver in a way that "
         "FineServe does not hook"});
  }
  return checks;
}

Finding CheckNamespaces(const abi::ScoreboardSnapshot& scoreboard) {
  const std::string found =
      absl::StrCat(scoreboard.foreign_namespaces,
                   " libraries opened by dlmopen, RTLD_DEEPBIND removed ",
                   scoreboard.deepbind_stripped, " times");
  if (scoreboard.foreign_namespaces == 0) {
    return {Severity::kOk, "namespaces", found, ""};
  }
  return {Severity::kNote, "namespaces", found,
          "CUDA calls from a dlmopen namespace bypass the hooks: open the "
          "library with dlopen"};
}

Finding CheckMemory(const abi::ScoreboardSnapshot& scoreboard,
                    const absl::StatusOr<uint64_t>& drivers_bytes,
                    uint64_t own_bytes) {
  if (!drivers_bytes.ok()) {
    return {Severity::kSkipped, "memory",
            absl::StrCat("not compared: ", drivers_bytes.status().message()),
            ""};
  }
  const uint64_t accounted = scoreboard.small_bytes + scoreboard.passed_bytes +
                             scoreboard.redirected_bytes;
  const std::string found = absl::StrCat(
      "the driver counts ", Size(*drivers_bytes), "; the hooks saw ",
      Size(scoreboard.passed_bytes), " in large allocations, ",
      Size(scoreboard.small_bytes), " in small ones, and ",
      Size(scoreboard.redirected_bytes), " are in slabs");
  if (*drivers_bytes <= accounted + own_bytes) {
    return {Severity::kOk, "memory", found, ""};
  }
  return {Severity::kNote, "memory",
          absl::StrCat(found, ": at least ", Size(*drivers_bytes - accounted),
                       " bypassed them"),
          "find out which library calls the driver directly: its "
          "allocations cannot be redirected"};
}

}  // namespace fineserve::fsctl
