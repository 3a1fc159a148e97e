#include "tests/conformance/isolation.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "tests/conformance/relay.h"

namespace fineserve::conformance {
namespace {

constexpr int kFailed = 1;
constexpr int kSkipped = 2;

// Seconds; $FINESERVE_TEST_PATIENCE where a slow device needs more.
unsigned Patience() {
  const char* wanted = getenv("FINESERVE_TEST_PATIENCE");
  const int seconds = wanted == nullptr ? 0 : atoi(wanted);
  return seconds > 0 ? static_cast<unsigned>(seconds) : 60;
}

std::string MakeMachine() {
  // tmpfs where there is one: device memory is a sparse file.
  for (const char* pattern :
       {"/dev/shm/conformance-XXXXXX", "/tmp/conformance-XXXXXX"}) {
    std::string path = pattern;
    if (mkdtemp(path.data()) != nullptr) return path;
  }
  ADD_FAILURE() << "no folder for the emulated machine: " << strerror(errno);
  return "";
}

// Everything a child needs before its body.
void BecomeChild() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(Patience());
}

int WaitFor(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// What it could not say itself.
void ReportChild(int status) {
  if (WIFSIGNALED(status)) {
    ADD_FAILURE() << "the test process died of signal " << WTERMSIG(status)
                  << (WTERMSIG(status) == SIGALRM ? " (it hung)" : "");
    return;
  }
  if (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kSkipped) return;
  EXPECT_TRUE(WEXITSTATUS(status) == kFailed && ::testing::Test::HasFailure())
      << "the test process ended with " << WEXITSTATUS(status);
}

}  // namespace

void ExitWithVerdict() {
  Relay::Finish();
  fflush(nullptr);
  if (::testing::Test::HasFailure()) _exit(kFailed);
  _exit(::testing::Test::IsSkipped() ? kSkipped : 0);
}

void RunIsolated(void (*body)()) {
  const std::string machine = MakeMachine();
  Relay relay;
  fflush(nullptr);  // or else the child repeats what is buffered
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeChild();
    relay.Listen();
    setenv("EMUCUDA_DIR", machine.c_str(), 1);
    body();
    ExitWithVerdict();
  }
  const int status = WaitFor(pid);
  std::error_code ignored;
  std::filesystem::remove_all(machine, ignored);
  relay.Replay();
  ReportChild(status);
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

Peer::Peer(const std::function<void(Channel&)>& body) : channel_(-1), pid_(-1) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) abort();
  fflush(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[0]);
    BecomeChild();
    Channel channel(ends[1]);
    body(channel);
    ExitWithVerdict();
  }
  close(ends[1]);
  channel_ = Channel(ends[0]);
}

void Peer::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  WaitFor(std::exchange(pid_, -1));
}

void Peer::Join() { ReportChild(WaitFor(std::exchange(pid_, -1))); }

}  // namespace fineserve::conformance
