#include "daemon/contract/abi/socket_path.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "daemon/base/unix_socket.h"

namespace fineserve::abi {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kStranger = 12345;

class TrustedSocketTest : public ::testing::Test {
 protected:
  TrustedSocketTest() {
    char folder[] = "/tmp/fineserve-trust-XXXXXX";
    base_ = mkdtemp(folder);
    folder_ = base_ + "/run";
    path_ = folder_ + "/GPU-1.sock";
    mkdir(folder_.c_str(), 0700);
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_TRUE(base::BindUnix(listener_, path_));
  }
  ~TrustedSocketTest() override {
    close(listener_);
    std::filesystem::remove_all(base_);
  }

  // Returns why the path is not trusted; "" if it is.
  static std::string Trouble(const std::string& path) {
    char why[256] = "";
    return IsTrustedPath(path.c_str(), why, sizeof(why)) ? "" : why;
  }

  std::string base_, folder_, path_;
  int listener_;
};

TEST_F(TrustedSocketTest, SocketInAFolderOfOursAloneIsTrusted) {
  EXPECT_EQ(Trouble(path_), "");
  EXPECT_EQ(Trouble(folder_ + "/GPU-2.sock"), "") << "nothing is there yet";
}

TEST_F(TrustedSocketTest, FolderThatOthersMayEnterIsNotTrusted) {
  for (const mode_t mode : {0701, 0710, 0777, 01777}) {
    ASSERT_EQ(chmod(folder_.c_str(), mode), 0);
    EXPECT_THAT(Trouble(path_), HasSubstr("make its mode 0700"));
  }
}

TEST_F(TrustedSocketTest, SymbolicLinksAreNotFollowed) {
  const std::string folder = base_ + "/link";
  ASSERT_EQ(symlink(folder_.c_str(), folder.c_str()), 0);
  EXPECT_THAT(Trouble(folder + "/GPU-1.sock"), HasSubstr("is not a folder"));
  const std::string path = folder_ + "/GPU-3.sock";
  ASSERT_EQ(symlink(path_.c_str(), path.c_str()), 0);
  EXPECT_THAT(Trouble(path), HasSubstr("is not a socket"));
}

TEST_F(TrustedSocketTest, FileThatIsNoSocketIsNotTrusted) {
  const std::string path = folder_ + "/GPU-3.sock";
  close(open(path.c_str(), O_CREAT | O_CLOEXEC, 0600));
  EXPECT_THAT(Trouble(path), HasSubstr("is not a socket"));
}

TEST_F(TrustedSocketTest, FolderThatIsMissingIsNamed) {
  EXPECT_THAT(Trouble(base_ + "/none/GPU-1.sock"), HasSubstr("no daemon at"));
  EXPECT_THAT(Trouble(std::string(1000, 'x') + "/GPU-1.sock"),
              HasSubstr("too long"));
}

TEST_F(TrustedSocketTest, SocketOfAStrangerIsNotTrusted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chown(path_.c_str(), kStranger, kStranger), 0);
  EXPECT_THAT(Trouble(path_), HasSubstr("belongs to uid 12345"));
  ASSERT_EQ(chown(path_.c_str(), 0, 0), 0);
  ASSERT_EQ(chown(folder_.c_str(), kStranger, kStranger), 0);
  EXPECT_THAT(Trouble(path_), HasSubstr("belongs to uid 12345"));
}

// Only root can put a folder there, so root chose the user that owns it.
TEST_F(TrustedSocketTest, RootTrustsTheUserOfAServicesFolder) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  char service[] = "/run/fineserve-trust-XXXXXX";
  ASSERT_NE(mkdtemp(service), nullptr);
  const std::string folder = service;
  const std::string path = folder + "/GPU-1.sock";
  std::filesystem::rename(path_, path);
  ASSERT_EQ(chown(service, kStranger, kStranger), 0);
  ASSERT_EQ(chown(path.c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(Trouble(path), "");
  EXPECT_TRUE(IsServiceUser(service, kStranger));
  EXPECT_FALSE(IsServiceUser(service, kStranger + 1)) << "another one's socket";
  ASSERT_EQ(chown(path.c_str(), kStranger + 1, kStranger), 0);
  EXPECT_THAT(Trouble(path), HasSubstr("belongs to uid 12346"));

  const std::string below = folder + "/below";
  mkdir(below.c_str(), 0700);
  ASSERT_EQ(chown(below.c_str(), kStranger, kStranger), 0);
  EXPECT_THAT(Trouble(below + "/GPU-1.sock"), HasSubstr("belongs to uid 12345"))
      << "that user put it there";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fineserve::abi
