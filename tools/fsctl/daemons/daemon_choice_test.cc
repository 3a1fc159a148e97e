#include "tools/fsctl/daemons/daemon_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/fsctl/daemons/fabricated_pool.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

class PickTest : public ::testing::Test {
 protected:
  PickTest() : a_(FabricatePool()), b_(FabricatePool()) {
    a_.table.gpu_uuid[0] = 0xaa;
    a_.socket = "/run/fineserve/a.sock";
    b_.table.gpu_uuid[0] = 0xbb;
    b_.table.daemon_pid = 4800;
    b_.socket = "/run/fineserve/b.sock";
  }
  std::string PickedSocket(const std::string& gpu) {
    const auto pool = Pick({a_, b_}, gpu);
    return pool.ok() ? pool->socket : std::string(pool.status().message());
  }
  Pool a_, b_;
};

TEST_F(PickTest, OnlyOneNeedsNoName) {
  ASSERT_TRUE(Pick({a_}, "").ok());
  EXPECT_EQ(Pick({a_}, "")->socket, a_.socket);
}

TEST_F(PickTest, SeveralWithoutANameIsAUsageErrorThatListsThem) {
  const absl::Status status = Pick({a_, b_}, "").status();
  EXPECT_EQ(ExitCodeOf(status), kExitUsage);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("--gpu"));
  EXPECT_THAT(message, HasSubstr("GPU-aa000000"));
  EXPECT_THAT(message, HasSubstr("GPU-bb000000"));
  EXPECT_THAT(message, HasSubstr("daemon 4800"));
}

TEST_F(PickTest, UuidItsBeginningAndSocketAllName) {
  EXPECT_EQ(PickedSocket("GPU-bb000000-0000-0000-0000-000000000000"),
            b_.socket);
  EXPECT_EQ(PickedSocket("GPU-bb"), b_.socket);
  EXPECT_EQ(PickedSocket("BB"), b_.socket);
  EXPECT_EQ(PickedSocket(b_.socket), b_.socket);
}

TEST_F(PickTest, NameOfNoneListsWhatThereIs) {
  const absl::Status status = Pick({a_, b_}, "GPU-cc").status();
  EXPECT_EQ(ExitCodeOf(status), kExitNoDaemon);
  EXPECT_THAT(std::string(status.message()), HasSubstr("GPU-aa000000"));
}

TEST_F(PickTest, NoneAtAllSaysWhereItLookedAndHowToStartOne) {
  setenv("FINESERVE_RUNTIME_DIR", "/nonexistent/folder", 1);
  const absl::Status status = ChoosePool("GPU-nobody-has-this").status();
  unsetenv("FINESERVE_RUNTIME_DIR");
  EXPECT_EQ(ExitCodeOf(status), kExitNoDaemon);
}

TEST_F(PickTest, FolderOfAnotherUserIsNoReasonToStartASecondDaemon) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  char folder[] = "/tmp/daemon-choice-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  setenv("FINESERVE_RUNTIME_DIR", folder, 1);
  ASSERT_EQ(seteuid(65534), 0);
  const absl::Status status = ChoosePool("GPU-nobody-has-this").status();
  ASSERT_EQ(seteuid(0), 0);
  unsetenv("FINESERVE_RUNTIME_DIR");
  rmdir(folder);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(ExitCodeOf(status), kExitNoDaemon);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("belongs to another user"));
  EXPECT_EQ(message.find("start one"), std::string::npos);
}

TEST_F(PickTest, SocketWithoutDaemonSaysHowToStartOne) {
  const absl::Status status = ChoosePool("/nonexistent/x.sock").status();
  EXPECT_EQ(ExitCodeOf(status), kExitNoDaemon);
  EXPECT_EQ(status.message(),
            "no fineserved is running (looked in /nonexistent/x.sock); start "
            "one: fineserved --gpu 0 --pool 16GiB");
}

}  // namespace
}  // namespace fineserve::fsctl
