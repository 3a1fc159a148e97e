#ifndef DAEMON_PROXY_RECORD_ACCESS_LOG_H_
#define DAEMON_PROXY_RECORD_ACCESS_LOG_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "daemon/proxy/record/bounded_queue.h"
#include "daemon/proxy/record/life.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::proxy {

// Writes a line of JSON about each request that ended (LifeLine). A separate
// thread writes, so that a slow or full disk loses lines, which are counted,
// but never delays a request. A file that was moved away is created again
// before the next line.
class AccessLog {
 public:
  static constexpr size_t kMostQueued = 16'384;

  // `path` "-" is standard output. Returns an error if the file cannot be
  // opened. Lines that are queued when this object is destroyed are written,
  // within a second.
  static absl::StatusOr<std::unique_ptr<AccessLog>> Open(
      const std::string& path, size_t most_queued = kMostQueued);
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // Any thread; does not wait.
  void Write(std::shared_ptr<const Life> life) { queue_.Push(std::move(life)); }
  // Opens the file again, for one that was renamed. Any thread.
  void Reopen();

  struct Counts {
    uint64_t written = 0;
    uint64_t dropped = 0;  // the queue was full
    uint64_t failed = 0;   // the file was full
  };
  Counts counts() const;

 private:
  AccessLog(std::string path, driver::Descriptor file, size_t most_queued);

  void Run();
  bool WasMoved() const;
  void OpenAgain();
  // Returns how many of the bytes the file took.
  size_t WriteBytes(const std::string& bytes);
  void Warn(const std::string& what);

  const std::string path_;
  BoundedQueue<std::shared_ptr<const Life>> queue_;
  std::atomic<bool> reopens_{false};
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> failed_{0};
  // From here on, confined to the writing thread.
  driver::Descriptor file_;
  bool is_regular_ = false;
  bool torn_ = false;  // the last line was cut off
  uint64_t warned_ns_ = 0;
  uint64_t closing_ns_ = 0;
  std::thread thread_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RECORD_ACCESS_LOG_H_
