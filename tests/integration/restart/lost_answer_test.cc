// The daemon is killed when it is about to send an answer: it has done and
// published what it was asked for, but the engine never gets the answer. The
// engine asks the next daemon again, and nothing may be granted twice or lost.

#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/contract/abi/messages.h"
#include "tests/integration/site.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/traced_thread.h"

namespace fineserve::integration {
namespace {

template <typename T>
bool ReadFrom(pid_t pid, uint64_t address, T* out) {
  iovec to = {out, sizeof(T)};
  iovec from = {reinterpret_cast<void*>(address), sizeof(T)};
  return process_vm_readv(pid, &to, 1, &from, 1, 0) == sizeof(T);
}

// True if a process begins to send a message of this type.
bool IsSending(pid_t pid, const __ptrace_syscall_info& call,
               abi::MessageType type) {
  msghdr message;
  iovec part;
  abi::MessageHeader header;
  return call.entry.nr == SYS_sendmsg &&
         ReadFrom(pid, call.entry.args[1], &message) &&
         ReadFrom(pid, reinterpret_cast<uint64_t>(message.msg_iov), &part) &&
         ReadFrom(pid, reinterpret_cast<uint64_t>(part.iov_base), &header) &&
         header.magic == abi::kMessageMagic && header.type == type;
}

class LostAnswerTest : public Site {
 protected:
  static constexpr uint32_t kPoolSlabs = 24;

  // Expects that the engine's two leases of a slab each survive if the daemon
  // dies when it is about to send the nth message of this type.
  void ExpectNothingLost(abi::MessageType type, int nth) {
    SCOPED_TRACE(testing::Message()
                 << "message " << static_cast<int>(type) << ", number " << nth);
    const auto former = static_cast<pid_t>(Table().daemon_pid);
    process::TracedThread daemon(former);
    if (!daemon.attached()) {
      GTEST_SKIP() << "ptrace is not permitted here: " << strerror(errno);
    }
    auto engine = LaunchEngine("4MiB");
    int sent = 0;
    const auto is_nth = [&](const __ptrace_syscall_info& call) {
      return IsSending(former, call, type) && ++sent == nth;
    };
    ASSERT_TRUE(daemon.StopBefore(is_nth, process::kPatience));
    EXPECT_TRUE(process::SignalOne(former, SIGKILL));
    int status;
    waitpid(former, &status, __WALL);
    EXPECT_EQ(engine->ReadLineWith("kv zero"), "kv zero: yes")
        << engine->Stderr();
    EXPECT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
    EXPECT_NE(static_cast<pid_t>(Table().daemon_pid), former);
    EXPECT_EQ(SlabsOf(engine->pid()), 2u) << Fsctl({"slabs"}).out;
    // It keeps the engine alive, and with it the state whose answer was lost.
    EXPECT_EQ(SlabsIn(abi::SlabState::kFull), 2u);
    engine->EndBy(SIGTERM);
    EXPECT_TRUE(EventuallyFree(kPoolSlabs)) << Fsctl({"slabs"}).out;
  }
};

TEST_F(LostAnswerTest, LeaseIsGrantedOnceThoughItIsAskedForTwice) {
  const auto parent = StartDaemon({"--supervise", "--pool", "96MiB"});
  for (int nth : {1, 2}) {
    ExpectNothingLost(abi::MessageType::kLeaseGrant, nth);
    if (IsSkipped()) return;
  }
}

TEST_F(LostAnswerTest, GranulesAreSentAgain) {
  const auto parent = StartDaemon({"--supervise", "--pool", "96MiB"});
  for (int nth : {1, 2}) {
    ExpectNothingLost(abi::MessageType::kGranuleBatch, nth);
    if (IsSkipped()) return;
  }
}

}  // namespace
}  // namespace fineserve::integration
