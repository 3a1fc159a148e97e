#include "tests/conformance/isolation.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "tests/conformance/relay.h"
#include "tests/process/temporary_folder.h"

namespace fineserve::conformance {
namespace {

constexpr int kFailed = 1;
constexpr int kSkipped = 2;

// The time limit of a test in seconds. $FINESERVE_TEST_PATIENCE extends it for
// slow devices.
unsigned Patience() {
  const char* wanted = getenv("FINESERVE_TEST_PATIENCE");
  const int seconds = wanted == nullptr ? 0 : atoi(wanted);
  return seconds > 0 ? static_cast<unsigned>(seconds) : 300;
}

// Device memory is a sparse file, so it is in /dev/shm if that is writable.
process::TemporaryFolder MakeMachine() {
  const bool has_memory = access("/dev/shm", W_OK) == 0;
  return process::TemporaryFolder(has_memory ? "/dev/shm" : "/tmp");
}

// Reports what the child could not report itself. `end` is from
// ChildProcess::Wait.
void ReportChild(int end) {
  if (end < 0) {
    ADD_FAILURE() << "the test process died of signal " << -end
                  << (end == -SIGALRM ? " (it hung)" : "");
    return;
  }
  if (end == 0 || end == kSkipped) return;
  EXPECT_TRUE(end == kFailed && ::testing::Test::HasFailure())
      << "the test process ended with " << end;
}

}  // namespace

int Verdict() {
  Relay::Finish();
  if (::testing::Test::HasFailure()) return kFailed;
  return ::testing::Test::IsSkipped() ? kSkipped : 0;
}

void RunIsolated(void (*body)()) {
  const process::TemporaryFolder machine = MakeMachine();
  Relay relay;
  process::ChildProcess child([&] {
    alarm(Patience());
    relay.Listen();
    setenv("EMUCUDA_DIR", machine.path().c_str(), 1);
    body();
    return Verdict();
  });
  const int end = child.Wait();
  relay.Replay();
  ReportChild(end);
}

Channel::~Channel() {
  if (fd_ >= 0) close(fd_);
}

void Channel::Send(uint64_t word) {
  EXPECT_EQ(send(fd_, &word, sizeof(word), MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof(word)));
}

uint64_t Channel::Receive() {
  uint64_t word = 0;
  EXPECT_EQ(recv(fd_, &word, sizeof(word), MSG_WAITALL),
            static_cast<ssize_t>(sizeof(word)))
      << "the other process is gone";
  return word;
}

void Channel::SendDescriptor(int fd) {
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  EXPECT_EQ(sendmsg(fd_, &message, MSG_NOSIGNAL), 1);
}

int Channel::ReceiveDescriptor() {
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  EXPECT_EQ(recvmsg(fd_, &message, MSG_CMSG_CLOEXEC), 1);
  int fd = -1;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) {
    memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  }
  EXPECT_GE(fd, 0) << "no descriptor arrived";
  return fd;
}

Peer::Peer(const std::function<void(Channel&)>& body) : channel_(-1) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) abort();
  process_.emplace([&] {
    close(ends[0]);
    alarm(Patience());
    Channel channel(ends[1]);
    body(channel);
    return Verdict();
  });
  close(ends[1]);
  channel_ = Channel(ends[0]);
}

void Peer::Join() { ReportChild(process_->Wait()); }

}  // namespace fineserve::conformance
