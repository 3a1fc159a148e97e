#include "daemon/fineserved/server/process_meter.h"

#include <fstream>

#include "absl/strings/str_cat.h"

namespace fineserve::server {

uint64_t AnonymousBytes(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string word; status >> word;) {
    uint64_t kib = 0;
    if (word == "RssAnon:" && status >> kib) return kib * 1024;
  }
  return 0;
}

uint64_t ProcessMeter::BytesOf(
    const std::string& engine,
    absl::FunctionRef<std::vector<pid_t>()> processes, uint64_t now_ns) {
  Measured& measured = engines_[engine];
  if (now_ns < next_ns_ || now_ns < measured.due_ns) return measured.bytes;
  next_ns_ = now_ns + kPauseNs;
  measured.due_ns = now_ns + 2 * kPauseNs * engines_.size();
  measured.bytes = 0;
  for (const pid_t pid : processes()) measured.bytes += AnonymousBytes(pid);
  return measured.bytes;
}

}  // namespace fineserve::server
