#include "tools/fsctl/doctor/process_checks.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/process/inspected_process.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

using abi::Hook;
using abi::Path;
using Result = Check::Result;

const char* PathWords(Path path) {
  switch (path) {
    case Path::kDefault:
      return "dlsym(RTLD_DEFAULT)";
    case Path::kHandle:
      return "dlsym of a library";
    case Path::kNext:
      return "dlsym(RTLD_NEXT)";
    case Path::kVersioned:
      return "dlvsym";
    case Path::kResolver:
      return "cuGetProcAddress";
    case Path::kResolver2:
      return "cuGetProcAddress_v2";
    case Path::kCalled:
      return "called";
  }
  return "?";
}

bool IsDrivers(Hook hook) {
  return absl::StartsWith(abi::kHookSymbols[static_cast<size_t>(hook)], "cu");
}

Check HookLine(const abi::HookUse& use) {
  std::vector<std::string> channels;
  for (uint32_t i = 0; i < abi::kPathCount; ++i) {
    const auto path = static_cast<Path>(i);
    if (path == Path::kCalled || use.by(path) == 0) continue;
    channels.push_back(absl::StrCat(PathWords(path), " ", use.by(path)));
  }
  const std::string handed =
      channels.empty() ? "bound by its symbol"
                       : "handed out by " + absl::StrJoin(channels, ", ");
  return {Result::kOk, abi::kHookSymbols[static_cast<size_t>(use.hook)],
          absl::StrCat(handed, "; called ", use.by(Path::kCalled),
                       " (calls that only pass are not counted)"),
          ""};
}

bool HasDriver(const AddressMap& map) {
  return !map.PathOf("libcuda.so").empty();
}

}  // namespace

Check CheckPreload(const AddressMap& map, const std::string& environment) {
  if (map.HasModule(kShimName)) {
    return {Result::kOk, "preload", "the shim is loaded", ""};
  }
  if (map.PathOf("ld-linux").empty()) {
    return {Result::kFail, "preload",
            "statically linked: no preload reaches it",
            "link the program dynamically"};
  }
  if (absl::StrContains(environment, kShimName)) {
    return {Result::kFail, "preload",
            "LD_PRELOAD names the shim, and the loader left it out",
            "see the program's first lines: the file is missing, or the "
            "program is set-user-ID"};
  }
  return {Result::kFail, "preload", "LD_PRELOAD does not name the shim",
          "start it with: fsctl run -- COMMAND"};
}

Check CheckLink(const abi::ScoreboardSnapshot& scoreboard) {
  const bool good = scoreboard.link_state == abi::LinkState::kConnected;
  std::string found = LinkWords(scoreboard.link_state);
  if (!scoreboard.link_message.empty()) {
    absl::StrAppend(&found, " (", scoreboard.link_message, ")");
  }
  return {good ? Result::kOk : Result::kWarn, "link", found,
          good ? "" : "start fineserved first, then the engine"};
}

std::vector<Check> CheckHooks(const abi::ScoreboardSnapshot& scoreboard,
                              const AddressMap& map) {
  std::vector<Check> checks;
  for (const abi::HookUse& use : scoreboard.hooks)
    checks.push_back(HookLine(use));
  const bool reached =
      std::any_of(scoreboard.hooks.begin(), scoreboard.hooks.end(),
                  [](const abi::HookUse& use) { return IsDrivers(use.hook); });
  if (!reached && HasDriver(map)) {
    checks.push_back(
        {Result::kWarn, "hooks",
         "the driver is loaded, and none of our hooks for it was called or "
         "handed out",
         "how the program finds the driver escapes us: report it"});
  }
  return checks;
}

Check CheckNamespaces(const abi::ScoreboardSnapshot& scoreboard) {
  const std::string found =
      absl::StrCat(scoreboard.foreign_namespaces,
                   " libraries by dlmopen, RTLD_DEEPBIND taken off ",
                   scoreboard.deepbind_stripped, " times");
  if (scoreboard.foreign_namespaces == 0) {
    return {Result::kOk, "namespaces", found, ""};
  }
  return {Result::kWarn, "namespaces", found,
          "CUDA calls out of a dlmopen namespace escape: open the library with "
          "dlopen"};
}

Check CheckMemory(const abi::ScoreboardSnapshot& scoreboard,
                  const absl::StatusOr<uint64_t>& drivers_bytes,
                  uint64_t own_bytes) {
  if (!drivers_bytes.ok()) {
    return {Result::kSkipped, "memory",
            absl::StrCat("not reconciled: ", drivers_bytes.status().message()),
            ""};
  }
  const uint64_t accounted = scoreboard.small_bytes + scoreboard.passed_bytes +
                             scoreboard.redirected_bytes;
  const std::string found = absl::StrCat(
      "the driver counts ", Size(*drivers_bytes), "; through the hooks went ",
      Size(scoreboard.passed_bytes), " at large, ",
      Size(scoreboard.small_bytes), " in small pieces, ",
      Size(scoreboard.redirected_bytes), " are in slabs");
  if (*drivers_bytes <= accounted + own_bytes) {
    return {Result::kOk, "memory", found, ""};
  }
  return {Result::kWarn, "memory",
          absl::StrCat(found, ": at least ", Size(*drivers_bytes - accounted),
                       " bypassed them"),
          "something in the process finds the driver by a way of its own; what "
          "it allocates is never KV"};
}

}  // namespace fineserve::fsctl
