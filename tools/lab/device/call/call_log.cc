#include "tools/lab/device/call/call_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>

namespace fineserve::emucuda {
namespace {

// A line being built; text that does not fit is cut off.
class LineBuffer {
 public:
  __attribute__((format(printf, 2, 3))) void Append(const char* format, ...) {
    va_list args;
    va_start(args, format);
    const int wrote =
        vsnprintf(text_ + used_, sizeof(text_) - used_, format, args);
    va_end(args);
    if (wrote < 0) return;
    used_ = std::min(used_ + static_cast<size_t>(wrote), sizeof(text_) - 1);
  }
  const char* text() const { return text_; }
  size_t bytes() const { return used_; }

 private:
  char text_[512];
  size_t used_ = 0;
};

unsigned long long MonotonicNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<unsigned long long>(std::chrono::nanoseconds(now).count());
}

}  // namespace

bool CallLog::Open(const std::string& path) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  fd_.store(fd, std::memory_order_relaxed);
  return fd >= 0;
}

void CallLog::Line(Entry entry, std::span<const uint64_t> args,
                   CUresult result) {
  LineBuffer line;
  line.Append("%d %llu %s(", static_cast<int>(getpid()), MonotonicNs(),
              EntryRows()[static_cast<size_t>(entry)].symbol);
  for (size_t i = 0; i < args.size(); ++i) {
    line.Append("%s0x%llx", i == 0 ? "" : " ",
                static_cast<unsigned long long>(args[i]));
  }
  line.Append(") %u\n", static_cast<unsigned>(result));
  // If the disk is full, log lines are lost and the program continues.
  (void)!write(fd_.load(std::memory_order_relaxed), line.text(), line.bytes());
}

}  // namespace fineserve::emucuda
