#include "tools/fsctl/process/inspected_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace fineserve::fsctl {
namespace {

TEST(DescriptorTableTest, IsFullWhenNoFileCanBeOpened) {
  EXPECT_EQ(FullDescriptorTable(getpid()), "");
  rlimit before, tight;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  tight = before;
  tight.rlim_cur = 40;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  std::vector<int> open_files;
  int file;
  while ((file = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
    open_files.push_back(file);
  }
  // The look itself needs one.
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const pid_t child = fork();
  if (child == 0) {
    setrlimit(RLIMIT_NOFILE, &tight);
    pause();
    _exit(0);
  }
  std::string full;
  while ((full = FullDescriptorTable(child)).empty()) usleep(1000);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (int fd : open_files) close(fd);
  EXPECT_THAT(full, testing::HasSubstr(" of 40)"));
}

TEST(DescriptorTableTest, OfNoProcessIsNotFull) {
  EXPECT_EQ(FullDescriptorTable(999999999), "");
}

}  // namespace
}  // namespace fineserve::fsctl
