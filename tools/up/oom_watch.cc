#include "tools/up/oom_watch.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tools/fsctl/processes/inspected_process.h"

namespace fineserve::fsctl {
namespace {

constexpr absl::string_view kCounter = "oom_kill ";

uint64_t Kills(const std::string& counters) {
  for (const absl::string_view line : absl::StrSplit(counters, '\n')) {
    uint64_t kills = 0;
    if (absl::StartsWith(line, kCounter) &&
        absl::SimpleAtoi(line.substr(kCounter.size()), &kills)) {
      return kills;
    }
  }
  return 0;
}

}  // namespace

void OomWatch::Look(uint64_t now_ns) {
  const uint64_t before = std::exchange(kills_, Kills(ReadFile(counters_)));
  if (std::exchange(has_looked_, true) && kills_ > before) killed_ns_ = now_ns;
}

}  // namespace fineserve::fsctl
