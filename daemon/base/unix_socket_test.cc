#include "daemon/base/unix_socket.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "kernels/driver/descriptor.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::base {
namespace {

class UnixSocketTest : public ::testing::Test {
 protected:
  static driver::Descriptor NewSocket() {
    return driver::Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  const process::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/socket";
};

TEST_F(UnixSocketTest, BindTakesThePlaceOfWhatIsThereForThisUserAlone) {
  const auto former = NewSocket(), now = NewSocket(), client = NewSocket();
  ASSERT_TRUE(BindUnix(former.get(), path_));
  ASSERT_TRUE(BindUnix(now.get(), path_));
  struct stat st;
  ASSERT_EQ(lstat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  ASSERT_EQ(listen(now.get(), 1), 0);
  EXPECT_TRUE(ConnectUnix(client.get(), path_));
}

TEST_F(UnixSocketTest, MissingListenerAndLongPathAreDistinguished) {
  const auto client = NewSocket();
  EXPECT_FALSE(ConnectUnix(client.get(), path_));
  EXPECT_EQ(errno, ENOENT);
  const std::string long_path(200, 'x');
  EXPECT_FALSE(ConnectUnix(client.get(), long_path));
  EXPECT_EQ(errno, ENAMETOOLONG);
  EXPECT_FALSE(BindUnix(client.get(), long_path));
  EXPECT_EQ(errno, ENAMETOOLONG);
}

}  // namespace
}  // namespace fineserve::base
