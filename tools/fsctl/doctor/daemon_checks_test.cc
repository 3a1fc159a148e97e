#include "tools/fsctl/doctor/daemon_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using Result = Check::Result;

// A daemon that this process plays; it says that it has this pid.
abi::ObserverLink LinkTo(uint32_t daemon_pid) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  abi::ObserverLink link;
  link.socket.Reset(ends[0]);
  close(ends[1]);
  link.welcome.daemon_pid = daemon_pid;
  return link;
}

TEST(DaemonChecksTest, DaemonOfThisPidNamespaceHasOnePid) {
  const auto pid = static_cast<uint32_t>(getpid());
  EXPECT_EQ(CheckPidNamespace(LinkTo(pid)).result, Result::kOk);
  const Check other = CheckPidNamespace(LinkTo(pid + 1));
  EXPECT_EQ(other.result, Result::kFail);
  EXPECT_THAT(other.found, HasSubstr("in its own pid namespace, but"));
}

TEST(DaemonChecksTest, KernelThatDoesNotNameTheDaemonProvesNothing) {
  abi::ObserverLink link = LinkTo(1);
  link.socket.Reset();
  const Check check = CheckPidNamespace(link);
  EXPECT_EQ(check.result, Result::kSkipped);
  EXPECT_EQ(check.found, "not checked: SO_PEERCRED: Bad file descriptor");
}

TEST(DaemonChecksTest, OnlySocketWithoutAListenerIsADeadDaemons) {
  const Check dead = CheckDaemonTrouble(absl::UnavailableError("refused"));
  EXPECT_EQ(dead.result, Result::kFail);
  EXPECT_THAT(dead.fix, HasSubstr("start fineserved again"));
  const Check hung_up = CheckDaemonTrouble(absl::AbortedError("broken pipe"));
  EXPECT_EQ(hung_up.result, Result::kFail);
  EXPECT_EQ(hung_up.fix, "see the daemon's log");
  const Check ours = CheckDaemonTrouble(absl::UnknownError("open files"));
  EXPECT_EQ(ours.result, Result::kFail);
  EXPECT_THAT(ours.fix, HasSubstr("the daemon may be well"));
}

}  // namespace
}  // namespace fineserve::fsctl
