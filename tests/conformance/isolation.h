#ifndef TESTS_CONFORMANCE_ISOLATION_H_
#define TESTS_CONFORMANCE_ISOLATION_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "tools/lab/process/child_process.h"

namespace fineserve::conformance {

// Runs `body` in a forked child on a separate machine (a fresh EMUCUDA_DIR,
// removed afterwards; a real driver ignores it), because a driver is
// initialised once per process and an illegal address kills its context
// permanently. The child's failures and skips become the calling test's. The
// child dies with its parent, and after five minutes (or
// $FINESERVE_TEST_PATIENCE seconds), so that a driver that hangs fails one test
// and not the whole run.
void RunIsolated(void (*body)());

// One end of a conversation between two processes. Not thread-safe. A peer's
// death shows as a failed test expectation, never as a hang.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  ~Channel();
  Channel(Channel&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Channel& operator=(Channel&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  void Send(uint64_t word);
  uint64_t Receive();
  void SendDescriptor(int fd);  // the sender keeps its own copy
  int ReceiveDescriptor();      // the caller closes it

 private:
  int fd_;
};

// A process forked from a test that has not called the driver yet. The
// destructor kills the process unless it was joined.
class Peer {
 public:
  explicit Peer(const std::function<void(Channel&)>& body);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  Channel& channel() { return channel_; }
  pid_t pid() const { return process_->pid(); }
  void Kill() { process_->End(); }  // SIGKILL, and waits
  void Signal(int signal) { process_->Signal(signal); }
  // Waits for the process to end. Its failed expectations become the caller's.
  void Join();

 private:
  Channel channel_;
  std::optional<process::ChildProcess> process_;
};

// Returns the exit status of a forked child, which shows its parent whether the
// expectations held.
int Verdict();

}  // namespace fineserve::conformance

// Defines a test whose body runs isolated.
#define CONFORMANCE_TEST(suite, name)                              \
  static void suite##_##name##_Body();                             \
  TEST(suite, name) {                                              \
    ::fineserve::conformance::RunIsolated(&suite##_##name##_Body); \
  }                                                                \
  static void suite##_##name##_Body()

#endif  // TESTS_CONFORMANCE_ISOLATION_H_
