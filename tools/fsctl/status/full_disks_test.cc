#include "tools/fsctl/status/full_disks.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tools/lab/process/temporary_folder.h"

namespace fineserve::fsctl {
namespace {

constexpr int kNotPermitted = 77;

// Runs `holds` in a child process that has a file system of 1 MiB at `folder`.
// Returns the child's exit status: 0 if `holds` returns true there, 1 if not,
// or kNotPermitted.
template <typename Holds>
int OnSmallDisk(const std::string& folder, Holds holds) {
  const pid_t child = fork();
  if (child == 0) {
    const bool made =
        unshare(CLONE_NEWNS) == 0 &&
        mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        mount("none", folder.c_str(), "tmpfs", 0, "size=1m") == 0;
    _exit(!made ? kNotPermitted : holds() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(FullDisksTest, AFolderOnASmallDiskIsFound) {
  const process::TemporaryFolder folder;
  const int found = OnSmallDisk(folder.path(), [&] {
    const auto full = FullDisks({"/proc", folder.path()}, {});
    return full.size() == 1 && full[0].path == folder.path() &&
           full[0].free_bytes <= 1 << 20;
  });
  if (found == kNotPermitted) GTEST_SKIP() << "it takes root to mount";
  EXPECT_EQ(found, 0);
}

TEST(FullDisksTest, AFileThatAProcessWritesThereIsFoundOnce) {
  const process::TemporaryFolder folder;
  const int found = OnSmallDisk(folder.path(), [&] {
    const std::string log = folder.path() + "/a.log";
    std::ofstream first(log), second(folder.path() + "/b.log");
    const auto full = FullDisks({}, {getpid()});
    return full.size() == 1 && full[0].path.rfind(folder.path(), 0) == 0;
  });
  if (found == kNotPermitted) GTEST_SKIP() << "it takes root to mount";
  EXPECT_EQ(found, 0);
}

TEST(FullDisksTest, AFileThatIsOnlyReadIsNot) {
  const process::TemporaryFolder folder;
  const int found = OnSmallDisk(folder.path(), [&] {
    const std::string log = folder.path() + "/a.log";
    std::ofstream(log) << "text";
    std::ifstream reads(log);
    return FullDisks({}, {getpid()}).empty();
  });
  if (found == kNotPermitted) GTEST_SKIP() << "it takes root to mount";
  EXPECT_EQ(found, 0);
}

}  // namespace
}  // namespace fineserve::fsctl
