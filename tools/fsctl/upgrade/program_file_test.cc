#include "tools/fsctl/upgrade/program_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/driver/descriptor.h"
#include "tools/fsctl/processes/inspected_process.h"

namespace fineserve::fsctl {
namespace {

class ProgramFileTest : public ::testing::Test {
 protected:
  ProgramFileTest() {
    char folder[] = "/tmp/fineserve-upgrade-XXXXXX";
    EXPECT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  ~ProgramFileTest() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name, const std::string& content) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << content;
    chmod(path.c_str(), 0751);
    return path;
  }
  static driver::Descriptor Open(const std::string& path) {
    return driver::Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }

  std::string folder_;
};

TEST_F(ProgramFileTest, ReplacesAndKeepsTheFormerOneAndItsMode) {
  const std::string path = File("program", "former");
  const driver::Descriptor former = Open(path);
  const driver::Descriptor next = Open(File("next", "next"));
  ASSERT_TRUE(PutInPlace(next.get(), path, path + ".former").ok());
  EXPECT_EQ(ReadFile(path), "next");
  EXPECT_EQ(ReadFile(path + ".former"), "former");
  struct stat st;
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0751u);
  // Puts back a program whose file has no name left.
  ASSERT_EQ(unlink((path + ".former").c_str()), 0);
  ASSERT_TRUE(PutInPlace(former.get(), path, path + ".failed").ok());
  EXPECT_EQ(ReadFile(path), "former");
  EXPECT_EQ(ReadFile(path + ".failed"), "next");
}

TEST_F(ProgramFileTest, FailedWriteLeavesTheFormerFile) {
  const std::string path = File("program", "former");
  const driver::Descriptor next = Open(File("next", "next"));
  EXPECT_FALSE(PutInPlace(next.get(), path, "/nonexistent/former").ok());
  EXPECT_EQ(ReadFile(path), "former");
  EXPECT_FALSE(PutInPlace(next.get(), "/nonexistent/program", "").ok());
}

TEST_F(ProgramFileTest, KnowsAFileByWhatItIs) {
  const std::string a = File("a", "x"), b = File("b", "x");
  EXPECT_TRUE(IsSameFile(Open(a).get(), a));
  EXPECT_FALSE(IsSameFile(Open(a).get(), b));
  EXPECT_FALSE(IsSameFile(Open(a).get(), "/nonexistent"));
}

TEST_F(ProgramFileTest, FileThatOthersCanChangeIsNotRootsAlone) {
  EXPECT_TRUE(CheckOnlyRootChanges("/bin/sh").ok());
  const std::string path = File("program", "new");
  if (geteuid() != 0) {
    EXPECT_FALSE(CheckOnlyRootChanges(path).ok());
    GTEST_SKIP() << "needs root for the rest";
  }
  EXPECT_TRUE(CheckOnlyRootChanges(path).ok());
  const std::string link = folder_ + "/link";
  ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
  const auto refused = [&] {
    return !CheckOnlyRootChanges(path).ok() && !CheckOnlyRootChanges(link).ok();
  };
  chmod(path.c_str(), 0775);
  EXPECT_TRUE(refused());
  chmod(path.c_str(), 0755);
  EXPECT_FALSE(refused());
  ASSERT_EQ(chown(folder_.c_str(), 4711, 0), 0);
  EXPECT_TRUE(refused());
  ASSERT_EQ(chown(folder_.c_str(), 0, 0), 0);
  ASSERT_EQ(chown(path.c_str(), 4711, 0), 0);
  EXPECT_TRUE(refused());
}

}  // namespace
}  // namespace fineserve::fsctl
