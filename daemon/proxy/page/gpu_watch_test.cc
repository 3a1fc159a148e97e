// Tests that need no daemon. Reading tables, and noticing a daemon's end and
// return, is tested with real ones (tests/integration/page).

#include "daemon/proxy/page/gpu_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "daemon/base/unix_socket.h"

namespace fineserve::proxy {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GpuWatchTest : public ::testing::Test {
 protected:
  GpuWatchTest() {
    char folder[] = "/tmp/fineserve-gpu-watch-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~GpuWatchTest() override { std::filesystem::remove_all(folder_); }

  // Leaves a socket behind, as a dead daemon does.
  void LeaveSocket(const std::string& name) {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_TRUE(base::BindUnix(fd, absl::StrCat(folder_, "/", name)));
    close(fd);
  }

  std::string folder_;
  ManualClock clock_;
};

TEST_F(GpuWatchTest, AFolderThatIsNotThereHasNoGpus) {
  GpuWatch watch(folder_ + "/none", &clock_);
  EXPECT_THAT(watch.Look(), IsEmpty());
}

TEST_F(GpuWatchTest, ASocketWithoutADaemonIsAGpuThatDoesNotAnswer) {
  LeaveSocket("GPU-7.sock");
  GpuWatch watch(folder_, &clock_);
  const std::vector<GpuSight> sights = watch.Look();
  ASSERT_EQ(sights.size(), 1u);
  EXPECT_EQ(sights[0].name, "GPU-7");
  EXPECT_FALSE(sights[0].answers);
  EXPECT_FALSE(sights[0].table);
  EXPECT_THAT(sights[0].why, HasSubstr("GPU-7.sock"));
  EXPECT_GT(sights[0].since_ms, 0);
}

TEST_F(GpuWatchTest, SocketsAreBoundedAndLookedForOnceInAWhile) {
  GpuWatch watch(folder_, &clock_);
  EXPECT_THAT(watch.Look(), IsEmpty());
  for (size_t n = 0; n < GpuWatch::kMostGpus + 2; ++n) {
    LeaveSocket(absl::StrCat("GPU-", n, ".sock"));
  }
  EXPECT_THAT(watch.Look(), IsEmpty()) << "not yet";
  clock_.AdvanceNs(GpuWatch::kRelookNs);
  EXPECT_EQ(watch.Look().size(), GpuWatch::kMostGpus);
}

}  // namespace
}  // namespace fineserve::proxy
