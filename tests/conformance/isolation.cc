#include "tests/conformance/isolation.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/driver/descriptor.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::conformance {
namespace {

// Carries a test's results from a forked child to the parent, whose test
// repeats them: failed expectations, the reason of a skip, recorded properties.
// Reports therefore contain the results as if nothing had been forked, even if
// the child crashes later. Create the relay before the fork; call Listen and
// Finish in the child, and Replay in the parent once the child has ended. The
// child's own children inherit the relay.
class Relay {
 public:
  Relay();

  // From now on, sends this process's results to the parent instead of to
  // standard output.
  void Listen();
  // Sends the properties that the running test has recorded.
  static void Finish();
  // Repeats all results in the running test.
  void Replay() const;

 private:
  driver::Descriptor log_;  // a memfd; every writer appends
};

using ::testing::TestPartResult;

constexpr uint32_t kProperty = 1000;  // besides TestPartResult::Type

// Precedes the place (or a property's key) and the text (or its value).
struct RecordHead {
  uint32_t kind;
  int32_t line;
  uint32_t place_bytes;
  uint32_t text_bytes;
};

int listening_fd = -1;  // set in the child, before it has threads

void Append(uint32_t kind, int line, const std::string& place,
            const std::string& text) {
  const RecordHead head = {kind, line, static_cast<uint32_t>(place.size()),
                           static_cast<uint32_t>(text.size())};
  std::string record(reinterpret_cast<const char*>(&head), sizeof(head));
  record += place;
  record += text;
  // A single write keeps records of several processes from mixing. A record
  // that does not fit into memory is lost, but the exit status still shows the
  // failure.
  if (write(listening_fd, record.data(), record.size()) < 0) return;
}

class Listener : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const TestPartResult& part) override {
    if (part.passed()) return;
    const char* file = part.file_name();
    Append(part.type(), part.line_number(), file == nullptr ? "" : file,
           part.message());
  }
};

void Replay(uint32_t kind, int line, const std::string& place,
            const std::string& text) {
  switch (kind) {
    case kProperty:
      return ::testing::Test::RecordProperty(place, text);
    case TestPartResult::kSkip:
      // GoogleTest's JSON has no field for the reason of a skip.
      ::testing::Test::RecordProperty("skip_reason", text);
      GTEST_SKIP() << text;
    default:
      ADD_FAILURE_AT(place.c_str(), line) << text;
  }
}

std::string ReadAll(int fd) {
  std::string bytes(static_cast<size_t>(lseek(fd, 0, SEEK_END)), '\0');
  const ssize_t n = pread(fd, bytes.data(), bytes.size(), 0);
  bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return bytes;
}

Relay::Relay() : log_(memfd_create("relay", MFD_CLOEXEC)) {
  if (!log_.valid() || fcntl(log_.get(), F_SETFL, O_APPEND) != 0) abort();
}

void Relay::Listen() {
  listening_fd = log_.get();
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Listener);
}

void Relay::Finish() {
  if (listening_fd < 0) return;
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const ::testing::TestResult* result = test->result();
  for (int i = 0; i < result->test_property_count(); ++i) {
    const ::testing::TestProperty& p = result->GetTestProperty(i);
    Append(kProperty, 0, p.key(), p.value());
  }
}

void Relay::Replay() const {
  const std::string log = ReadAll(log_.get());
  size_t at = 0;
  RecordHead head;
  while (at + sizeof(head) <= log.size()) {
    memcpy(&head, log.data() + at, sizeof(head));
    at += sizeof(head);
    if (log.size() - at < uint64_t{head.place_bytes} + head.text_bytes) break;
    conformance::Replay(head.kind, head.line, log.substr(at, head.place_bytes),
                        log.substr(at + head.place_bytes, head.text_bytes));
    at += head.place_bytes + head.text_bytes;
  }
}

constexpr int kFailed = 1;
constexpr int kSkipped = 2;

// The time limit of a test in seconds. $FINESERVE_TEST_PATIENCE extends it for
// slow devices.
unsigned Patience() {
  const char* wanted = getenv("FINESERVE_TEST_PATIENCE");
  const int seconds = wanted == nullptr ? 0 : atoi(wanted);
  return seconds > 0 ? static_cast<unsigned>(seconds) : 300;
}

// Prefers /dev/shm if it is writable, because device memory is a sparse file.
process::TemporaryFolder MakeMachine() {
  const bool has_memory = access("/dev/shm", W_OK) == 0;
  return process::TemporaryFolder(has_memory ? "/dev/shm" : "/tmp");
}

// Reports what the child could not report itself. `end` is what
// ChildProcess::Wait returned.
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
