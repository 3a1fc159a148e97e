#include "daemon/fineserved/server/endpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <string>

#include "absl/status/status.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::server {
namespace {

constexpr uint8_t kGpu[16] = {1};

class EndpointTest : public ::testing::Test {
 protected:
  ~EndpointTest() override { std::filesystem::remove_all(folder_); }

  char path_[32] = "/tmp/endpoint_test.XXXXXX";
  const std::string folder_ = mkdtemp(path_);
};

// systemd-tmpfiles takes this lock before it removes old files.
TEST_F(EndpointTest, RuntimeFolderIsNotCleanedUpWhileADaemonUsesIt) {
  const driver::Descriptor cleaner(open(folder_.c_str(), O_RDONLY | O_CLOEXEC));
  {
    const auto endpoint = Endpoint::Claim(folder_, kGpu);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_NE(flock(cleaner.get(), LOCK_EX | LOCK_NB), 0);
  }
  EXPECT_EQ(flock(cleaner.get(), LOCK_EX | LOCK_NB), 0);
}

TEST_F(EndpointTest, ThatOfADaemonWhichIsEndingIsWaitedFor) {
  auto ending = Endpoint::Claim(folder_, kGpu);
  ASSERT_TRUE(ending.ok()) << ending.status();
  auto next = std::async(std::launch::async,
                         [&] { return Endpoint::Claim(folder_, kGpu); });
  next.wait_for(std::chrono::milliseconds(50));
  ending = absl::CancelledError("it has ended");
  EXPECT_EQ(next.get().status(), absl::OkStatus());
}

}  // namespace
}  // namespace fineserve::server
