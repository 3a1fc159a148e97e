#include "daemon/contract/finding/daemon_sockets.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "daemon/base/unix_socket.h"
#include "kernels/driver/descriptor.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::finding {
namespace {

constexpr char kUuid[] = "GPU-ab12cd34-0000-1111-2222-333344445555";

TEST(MeansGpuTest, UuidAndItsBeginningNameTheGpuInAnyCase) {
  for (const char* name : {kUuid, "GPU-ab12", "gpu-AB12", "ab12cd34-0000", "AB",
                           "GPU-", "G", "MIG-ab12cd34", "mig-AB", ""}) {
    EXPECT_TRUE(MeansGpu(name, kUuid)) << name;
  }
}

TEST(MeansGpuTest, PartWithinTheUuidAndPatternsNameNone) {
  for (const char* name : {"12cd34", "GPU-cd", "3333", "GPU-ab12*", "*", "?",
                           "[a]", "GPU-ab12cd34-0000-1111-2222-3333444455550",
                           "/run/fineserve/GPU-ab12", "PU-ab12"}) {
    EXPECT_FALSE(MeansGpu(name, kUuid)) << name;
  }
}

TEST(MayBeOneGpuTest, LongerNameMayBeTheShorterOnesGpu) {
  EXPECT_TRUE(MayBeOneGpu("GPU-a", "GPU-ab"));
  EXPECT_TRUE(MayBeOneGpu("GPU-AB", "MIG-a"));
  EXPECT_FALSE(MayBeOneGpu("GPU-aa", "GPU-ab"));
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DaemonSocketsTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return folder_.path() + "/" + name;
  }
  // Listens until the descriptor is closed; the file stays, as a killed
  // daemon's does.
  driver::Descriptor Listen(const std::string& name) const {
    driver::Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_TRUE(base::BindUnix(fd.get(), Path(name)));
    EXPECT_EQ(listen(fd.get(), 1), 0);
    return fd;
  }

  const process::TemporaryFolder folder_;
};

TEST_F(DaemonSocketsTest, FolderIsMadeForThisUserAlone) {
  const std::string path = Path("run");
  ASSERT_TRUE(MakeRuntimeFolder(path).ok()) << MakeRuntimeFolder(path);
  struct stat st;
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700u);
  EXPECT_TRUE(MakeRuntimeFolder(path).ok()) << "it is there";
  ASSERT_EQ(chmod(path.c_str(), 0750), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(MakeRuntimeFolder(path)));
  ASSERT_EQ(symlink(path.c_str(), Path("link").c_str()), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(MakeRuntimeFolder(Path("link"))));
  EXPECT_FALSE(MakeRuntimeFolder(Path("none/run")).ok());
}

TEST_F(DaemonSocketsTest, OnlySocketsAreListed) {
  const auto daemon = Listen("GPU-ab.sock");
  const auto admission = Listen("GPU-ab.admission");
  close(open(Path("GPU-cd.sock").c_str(), O_CREAT | O_CLOEXEC, 0600));
  EXPECT_THAT(ListSockets(folder_.path()), ElementsAre(Path("GPU-ab.sock")));
  EXPECT_THAT(ListSockets(Path("missing")), IsEmpty());
}

// The folder's name contains letters that a UUID may contain, too.
TEST_F(DaemonSocketsTest, NameIsComparedWithTheGpuNotWithTheFolder) {
  const auto a = Listen("GPU-1a.sock");
  const auto b = Listen("GPU-2b.sock");
  EXPECT_THAT(ListSockets(folder_.path(), "1A"),
              ElementsAre(Path("GPU-1a.sock")));
  EXPECT_THAT(ListSockets(folder_.path(), "gpu-2"),
              ElementsAre(Path("GPU-2b.sock")));
  EXPECT_THAT(ListSockets(folder_.path(), "b"), IsEmpty());
  EXPECT_THAT(ListSockets(folder_.path(), "f"), IsEmpty());
}

TEST_F(DaemonSocketsTest, PathNamesItsSocketAlone) {
  const auto daemon = Listen("GPU-1a.sock");
  EXPECT_THAT(ListSockets(folder_.path(), "/run/GPU-9.sock"),
              ElementsAre("/run/GPU-9.sock"));
}

TEST_F(DaemonSocketsTest, AdmissionPathIsBesideTheDaemonsSocket) {
  EXPECT_EQ(AdmissionPath("/run/fineserve/GPU-1.sock"),
            "/run/fineserve/GPU-1.admission");
  EXPECT_EQ(GpuOfSocket("/run/fineserve/GPU-1.admission"), "GPU-1");
}

// A daemon that was killed does not remove its socket.
TEST_F(DaemonSocketsTest, SocketOfADaemonThatWasKilledIsNoDaemon) {
  const auto living = Listen("GPU-1.admission");
  auto killed = Listen("GPU-2.admission");
  EXPECT_TRUE(IsListenedAt(Path("GPU-2.admission")));
  EXPECT_EQ(FindAdmissionPath(folder_.path(), "").status().code(),
            absl::StatusCode::kFailedPrecondition);
  killed = driver::Descriptor();
  EXPECT_FALSE(IsListenedAt(Path("GPU-2.admission")));
  EXPECT_THAT(ListAdmissionPaths(folder_.path(), ""),
              ElementsAre(Path("GPU-1.admission")));
  const auto found = FindAdmissionPath(folder_.path(), "");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, Path("GPU-1.admission"));
}

TEST_F(DaemonSocketsTest, FleetFileMayWriteItsGpuInAnyCase) {
  const auto a = Listen("GPU-1a.admission");
  const auto b = Listen("GPU-2b.admission");
  for (const char* name : {"GPU-2B", "gpu-2b", "2b", "MIG-2b"}) {
    const auto found = FindAdmissionPath(folder_.path(), name);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, Path("GPU-2b.admission"));
  }
}

// A name is no pattern of files.
TEST_F(DaemonSocketsTest, StarInAFleetFileNamesNoGpu) {
  const auto a = Listen("GPU-1a.admission");
  for (const char* name : {"*", "GPU-[1]", "GPU-?a"}) {
    EXPECT_EQ(FindAdmissionPath(folder_.path(), name).status().code(),
              absl::StatusCode::kNotFound);
  }
}

}  // namespace

}  // namespace fineserve::finding
