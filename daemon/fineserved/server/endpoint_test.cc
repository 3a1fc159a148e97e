#include "daemon/fineserved/server/endpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>

#include <filesystem>
#include <string>

#include "kernels/driver/descriptor.h"

namespace fineserve::server {
namespace {

// systemd-tmpfiles takes this lock before it removes old files.
TEST(EndpointTest, RuntimeFolderIsNotCleanedUpWhileADaemonUsesIt) {
  char path[] = "/tmp/endpoint_test.XXXXXX";
  const std::string folder = mkdtemp(path);
  const driver::Descriptor cleaner(open(path, O_RDONLY | O_CLOEXEC));
  {
    const uint8_t gpu[16] = {1};
    const auto endpoint = Endpoint::Claim(folder, gpu);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_NE(flock(cleaner.get(), LOCK_EX | LOCK_NB), 0);
  }
  EXPECT_EQ(flock(cleaner.get(), LOCK_EX | LOCK_NB), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fineserve::server
