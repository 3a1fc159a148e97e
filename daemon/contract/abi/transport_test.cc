#include "daemon/contract/abi/transport.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

namespace fineserve::abi {
namespace {

class TransportTest : public ::testing::Test {
 protected:
  TransportTest() {
    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
               ends_);
    const int on = 1;
    setsockopt(ends_[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  }
  ~TransportTest() override {
    close(ends_[0]);
    if (ends_[1] >= 0) close(ends_[1]);
  }
  static bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

  int ends_[2];
};

TEST_F(TransportTest, MessageArrivesWithSenderAndDescriptors) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  auto sent = MakeMessage<ReturnRequest>(9);
  sent.lease = 5;
  ASSERT_EQ(Send(ends_[0], sent, pipe_ends, 2), 0);
  Received received;
  ASSERT_EQ(received.ReceiveFrom(ends_[1]), 0);
  ReturnRequest got;
  ASSERT_TRUE(received.As(&got));
  EXPECT_EQ(got.lease, 5u);
  EXPECT_EQ(got.header.sequence, 9u);
  EXPECT_EQ(received.sender().pid, getpid());
  ASSERT_EQ(received.descriptor_count(), 2u);
  const int taken = received.TakeDescriptor(0);
  EXPECT_EQ(fcntl(taken, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  close(taken);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(TransportTest, DescriptorsThatWereNotTakenAreClosed) {
  int fd;
  {
    ASSERT_EQ(Send(ends_[0], MakeMessage<ReturnRequest>(1), &ends_[0], 1), 0);
    Received received;
    ASSERT_EQ(received.ReceiveFrom(ends_[1]), 0);
    fd = received.TakeDescriptor(0);
    ASSERT_TRUE(IsOpen(fd));
    close(fd);
    ASSERT_EQ(Send(ends_[0], MakeMessage<ReturnRequest>(1), &ends_[0], 1), 0);
    ASSERT_EQ(received.ReceiveFrom(ends_[1]), 0);
    EXPECT_TRUE(IsOpen(fd));  // the lowest free number again
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST_F(TransportTest, FullBatchOfDescriptorsFits) {
  const std::vector<int> fds(kMaxDescriptorsPerMessage, ends_[0]);
  ASSERT_EQ(
      Send(ends_[0], MakeMessage<GranuleBatch>(1), fds.data(), fds.size()), 0);
  Received received;
  ASSERT_EQ(received.ReceiveFrom(ends_[1]), 0);
  EXPECT_EQ(received.descriptor_count(), kMaxDescriptorsPerMessage);
  EXPECT_FALSE(received.descriptors_lost());
}

TEST_F(TransportTest, NearTheLimitOfOpenFilesTheLossIsReported) {
  const std::vector<int> fds(64, ends_[0]);
  ASSERT_EQ(
      Send(ends_[0], MakeMessage<GranuleBatch>(1), fds.data(), fds.size()), 0);
  rlimit old;
  getrlimit(RLIMIT_NOFILE, &old);
  const int next = dup(0);
  close(next);
  const rlimit tight = {static_cast<rlim_t>(next + 8), old.rlim_max};
  setrlimit(RLIMIT_NOFILE, &tight);
  Received received;
  const int result = received.ReceiveFrom(ends_[1]);
  setrlimit(RLIMIT_NOFILE, &old);
  ASSERT_EQ(result, 0);
  EXPECT_TRUE(received.descriptors_lost());
  EXPECT_LT(received.descriptor_count(), 64u);
}

TEST_F(TransportTest, ClosedPeerIsEpipe) {
  close(ends_[1]);
  ends_[1] = -1;
  Received received;
  EXPECT_EQ(received.ReceiveFrom(ends_[0]), EPIPE);
  EXPECT_EQ(Send(ends_[0], MakeMessage<ReturnRequest>(1)), EPIPE);
}

TEST_F(TransportTest, OtherBytesHaveNoHeader) {
  auto good = MakeMessage<ReturnRequest>(1);
  auto bad_magic = good;
  bad_magic.header.magic ^= 1;
  auto bad_length = good;
  bad_length.header.bytes += 1;
  Received received;
  for (const auto& message : {bad_magic, bad_length}) {
    ASSERT_EQ(Send(ends_[0], message), 0);
    ASSERT_EQ(received.ReceiveFrom(ends_[1]), 0);
    EXPECT_EQ(received.header(), nullptr);
  }
  const std::vector<char> oversized(kMaxMessageBytes + 1, 1);
  ASSERT_EQ(SendBytes(ends_[0], oversized.data(), oversized.size(), nullptr, 0),
            0);
  ASSERT_EQ(received.ReceiveFrom(ends_[1]), 0);
  EXPECT_EQ(received.header(), nullptr);
}

TEST_F(TransportTest, OtherVersionsHeaderIsReadableButItsBodyIsNot) {
  auto message = MakeMessage<ReturnRequest>(1);
  message.header.abi_version = kAbiVersion + 1;
  ASSERT_EQ(Send(ends_[0], message), 0);
  Received received;
  ASSERT_EQ(received.ReceiveFrom(ends_[1]), 0);
  ASSERT_NE(received.header(), nullptr);
  EXPECT_EQ(received.header()->abi_version, kAbiVersion + 1);
  ReturnRequest got;
  EXPECT_FALSE(received.As(&got));
}

}  // namespace
}  // namespace fineserve::abi
