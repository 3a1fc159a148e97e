#include "daemon/proxy/record/access_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/clock/clock.h"
#include "daemon/base/log/log.h"
#include "daemon/proxy/record/life.h"

namespace fineserve::proxy {
namespace {

// Delay of lines after the end of their requests, so that one write takes many.
constexpr std::chrono::milliseconds kGather(20);
constexpr uint64_t kWarnEveryNs = 60'000'000'000;
// Limit on the wait for the reader of standard output at the end of the
// program.
constexpr uint64_t kClosingNs = 1'000'000'000;
// A writable pipe takes this many bytes without waiting (PIPE_BUF).
constexpr size_t kPipeBytes = 4096;

bool IsStandardOutput(const std::string& path) { return path == "-"; }

driver::Descriptor OpenFile(const std::string& path) {
  if (IsStandardOutput(path)) {
    return driver::Descriptor(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
  }
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY;
  return driver::Descriptor(open(path.c_str(), kFlags, 0640));
}

bool IsRegular(int fd) {
  struct stat s = {};
  return fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
}

uint64_t Lines(absl::string_view text) {
  return static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AccessLog>> AccessLog::Open(
    const std::string& path, size_t most_queued) {
  driver::Descriptor file = OpenFile(path);
  if (!file.valid()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--access-log: cannot write ", path, ": ",
                     std::generic_category().message(errno)));
  }
  return std::unique_ptr<AccessLog>(
      new AccessLog(path, std::move(file), most_queued));
}

AccessLog::AccessLog(std::string path, driver::Descriptor file,
                     size_t most_queued)
    : path_(std::move(path)),
      queue_(most_queued),
      file_(std::move(file)),
      is_regular_(IsRegular(file_.get())),
      thread_([this] { Run(); }) {}

AccessLog::~AccessLog() {
  queue_.Close();
  thread_.join();
}

void AccessLog::Reopen() {
  reopens_ = true;
  queue_.Nudge();
}

AccessLog::Counts AccessLog::counts() const {
  return {written_, queue_.dropped(), failed_};
}

void AccessLog::Run() {
  const RealClock clock;
  for (;;) {
    const auto lives = queue_.Take(kGather);
    if (reopens_.exchange(false) || WasMoved()) OpenAgain();
    if (lives.empty() && queue_.closed()) return;
    std::string text;
    for (const auto& life : lives) {
      absl::StrAppend(&text, LifeLine(*life, clock.NowNs()), "\n");
    }
    if (text.empty()) continue;
    // Starts a new line, so that a reader loses only the line that was cut off.
    if (torn_) text.insert(text.begin(), '\n');
    const size_t taken = WriteBytes(text);
    const uint64_t lost = Lines(absl::string_view(text).substr(taken));
    written_ += lives.size() - std::min<uint64_t>(lost, lives.size());
    failed_ += lost;
    if (taken > 0) torn_ = text[taken - 1] != '\n';
  }
}

bool AccessLog::WasMoved() const {
  if (!is_regular_ || IsStandardOutput(path_)) return false;
  struct stat open = {}, named = {};
  return fstat(file_.get(), &open) == 0 &&
         (stat(path_.c_str(), &named) != 0 || named.st_ino != open.st_ino ||
          named.st_dev != open.st_dev);
}

void AccessLog::OpenAgain() {
  if (IsStandardOutput(path_)) return;
  driver::Descriptor file = OpenFile(path_);
  if (!file.valid()) {
    Warn("cannot be opened again, so lines go where they went");
    return;
  }
  file_ = std::move(file);
  is_regular_ = IsRegular(file_.get());
  torn_ = false;
}

size_t AccessLog::WriteBytes(const std::string& bytes) {
  const RealClock clock;
  size_t taken = 0;
  while (taken < bytes.size()) {
    const size_t left = bytes.size() - taken;
    if (!is_regular_) {
      pollfd ready = {file_.get(), POLLOUT, 0};
      if (poll(&ready, 1, 100) == 0) {
        if (!queue_.closed()) continue;
        if (closing_ns_ == 0) closing_ns_ = clock.NowNs();
        if (clock.NowNs() - closing_ns_ < kClosingNs) continue;
        break;
      }
    }
    const ssize_t n = write(file_.get(), bytes.data() + taken,
                            is_regular_ ? left : std::min(left, kPipeBytes));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) {
      Warn("cannot be written");
      break;
    }
    taken += static_cast<size_t>(n);
  }
  return taken;
}

void AccessLog::Warn(const std::string& what) {
  const int error = errno;
  const uint64_t now = RealClock().NowNs();
  if (warned_ns_ != 0 && now - warned_ns_ < kWarnEveryNs) return;
  warned_ns_ = now;
  log::Warning("the access log {} {}: {}", path_, what,
               std::generic_category().message(error));
}

}  // namespace fineserve::proxy
