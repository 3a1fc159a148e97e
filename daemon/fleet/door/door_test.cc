#include "daemon/fleet/door/door.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/unix_socket.h"

namespace fineserve::apply {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(1);

class DoorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/fineserve-door-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    auto door = Door::Open(folder_, "GPU-1", [this](const Question& q) {
      Answer answer;
      answer.process = "test";
      answer.fleet_path = q.fleet_path;
      answer.notes.assign(notes_, std::string(1000, 'x'));
      return answer;
    });
    ASSERT_TRUE(door.ok()) << door.status();
    door_ = *std::move(door);
  }
  void TearDown() override {
    StopTurning();
    door_.reset();
    std::filesystem::remove_all(folder_);
  }
  void StartTurning() {
    turning_ = std::thread([this] {
      while (!stop_) {
        pollfd ready = {door_->descriptor(), POLLIN, 0};
        if (poll(&ready, 1, 10) > 0) door_->Turn();
      }
    });
  }
  void StopTurning() {
    stop_ = true;
    if (turning_.joinable()) turning_.join();
  }
  double Silence() const {
    const absl::optional<double> silence = DoorSilence(path());
    EXPECT_TRUE(silence.has_value());
    return silence.value_or(-1);
  }
  std::string path() const { return folder_ + "/GPU-1.fleet"; }

  // A client that says nothing.
  driver::Descriptor Connect() const {
    driver::Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_TRUE(base::ConnectUnix(fd.get(), path())) << strerror(errno);
    return fd;
  }
  // Reads until the end of the stream.
  static std::string ReadToEnd(const driver::Descriptor& fd) {
    std::string text;
    char piece[4096];
    ssize_t n;
    while ((n = recv(fd.get(), piece, sizeof(piece), 0)) > 0) {
      text.append(piece, static_cast<size_t>(n));
    }
    return text;
  }

  std::string folder_;
  std::atomic<size_t> notes_ = 0;
  std::unique_ptr<Door> door_;
  std::thread turning_;
  std::atomic<bool> stop_ = false;
};

// A process that hangs makes no turns, so it gives no sign of life.
TEST_F(DoorTest, GivesASignOfLifeWithEachTurnThatIsDue) {
  const double hung = Silence();
  pollfd due = {door_->descriptor(), POLLIN, 0};
  ASSERT_EQ(poll(&due, 1, 60'000), 1);
  const double before = Silence();
  EXPECT_GE(before, hung);
  door_->Turn();
  EXPECT_LT(Silence(), before);
}

TEST_F(DoorTest, DoorOfAKilledProcessKeepsItsLastSignOfLife) {
  const std::string left = folder_ + "/left.fleet";
  std::filesystem::rename(path(), left);
  door_.reset();
  EXPECT_TRUE(DoorSilence(left).has_value());
  EXPECT_FALSE(DoorSilence(path()).has_value());
}

// Otherwise, the door would turn forever without an answer, at the expense of a
// core.
TEST_F(DoorTest, WithoutADescriptorItRestsForAWhileAndThenAnswers) {
  const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_TRUE(base::ConnectUnix(client, path()));
  rlimit before, none = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  none.rlim_max = before.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  door_->Turn();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  pollfd ready = {door_->descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0);
  close(client);
  StartTurning();
  EXPECT_TRUE(AskDoor(path(), Question(), kPatience).ok());
}

// The door turns, but no question that it should answer reaches it.
TEST_F(DoorTest, WithoutADescriptorItGivesNoSignOfLife) {
  rlimit before, none = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  none.rlim_max = before.rlim_max;
  pollfd due = {door_->descriptor(), POLLIN, 0};
  ASSERT_EQ(poll(&due, 1, 60'000), 1);
  const double silence = Silence();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  door_->Turn();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_GE(Silence(), silence);
  ASSERT_EQ(poll(&due, 1, 60'000), 1);
  const double later = Silence();
  door_->Turn();
  EXPECT_LT(Silence(), later);
}

// A door of an older release, for example, has such a time.
TEST_F(DoorTest, WithAWallClockTimeHasNoSignOfLife) {
  ASSERT_EQ(utimensat(AT_FDCWD, path().c_str(), nullptr, 0), 0);
  EXPECT_FALSE(DoorSilence(path()).has_value());
}

TEST_F(DoorTest, QuestionIsAnswered) {
  StartTurning();
  Question q;
  q.fleet_path = "/fleet.toml";
  const auto answer = AskDoor(path(), q, kPatience);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->process, "test");
  EXPECT_EQ(answer->fleet_path, "/fleet.toml");
}

TEST_F(DoorTest, LongQuestionAndAnswerArriveWhole) {
  StartTurning();
  notes_ = 2000;
  Question q;
  q.fleet_path = std::string(1 << 20, 'p');
  const auto answer = AskDoor(path(), q, kPatience);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->fleet_path.size(), q.fleet_path.size());
  EXPECT_EQ(answer->notes.size(), 2000u);
}

TEST_F(DoorTest, OnlyThisUserCanOpenIt) {
  struct stat st;
  ASSERT_EQ(stat(path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  EXPECT_EQ(AskDoor(path(), Question(), kPatience).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Door::Open(folder_, "GPU-2", nullptr).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(DoorTest, NonsenseIsAnsweredWithAnError) {
  StartTurning();
  const driver::Descriptor client = Connect();
  ASSERT_EQ(send(client.get(), "hello", 5, 0), 5);
  shutdown(client.get(), SHUT_WR);
  const auto answer = DecodeAnswer(ReadToEnd(client));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_FALSE(answer->ok());
}

TEST_F(DoorTest, EndlessQuestionEndsTheConnection) {
  StartTurning();
  const driver::Descriptor client = Connect();
  const std::string piece(1 << 16, 'x');
  size_t sent = 0;
  while (sent <= 2 * kMostBytes) {
    const ssize_t n =
        send(client.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  EXPECT_LE(sent, 2 * kMostBytes);
}

// Clients that never finish their question neither block the door nor fill it.
TEST_F(DoorTest, SilentClientsMakeRoom) {
  StartTurning();
  std::vector<driver::Descriptor> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(Connect());
    const auto answer = AskDoor(path(), Question(), kPatience);
    ASSERT_TRUE(answer.ok()) << answer.status();
  }
  EXPECT_EQ(ReadToEnd(silent.front()), "") << "it had to go";
}

TEST_F(DoorTest, AskingWhereNoProcessAnswersSaysSo) {
  EXPECT_EQ(AskDoor(path(), Question(), absl::Milliseconds(50)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  door_.reset();
  EXPECT_TRUE(ListDoors(folder_).empty()) << "it takes its socket along";
  EXPECT_EQ(AskDoor(path(), Question(), kPatience).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(DoorTest, DoorsAreListed) {
  const auto another = Door::Open(folder_, "up-1", nullptr);
  ASSERT_TRUE(another.ok()) << another.status();
  EXPECT_EQ(ListDoors(folder_),
            (std::vector<std::string>{path(), folder_ + "/up-1.fleet"}));
  EXPECT_TRUE(ListDoors(folder_ + "/none").empty());
}

}  // namespace
}  // namespace fineserve::apply
