#include "daemon/contract/abi/holders.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/contract/abi/engine_scoreboard.h"
#include "daemon/contract/abi/slab_table.h"
#include "daemon/contract/abi/view_scoreboard.h"

namespace fineserve::abi {
namespace {

class Memfd {
 public:
  explicit Memfd(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {}
  ~Memfd() { close(fd_); }
  int fd() const { return fd_; }
  uint64_t inode() const {
    struct stat st = {};
    fstat(fd_, &st);
    return st.st_ino;
  }

 private:
  const int fd_;
};

std::vector<Holder> HoldersOf(uint64_t inode) {
  std::vector<Holder> all = FindHolders();
  std::erase_if(all, [&](const Holder& h) { return h.inode != inode; });
  return all;
}

TEST(HoldersTest, OwnMemfdsAreFoundWithKindAndReadablePath) {
  const Memfd table(kTableMemfdName);
  const Memfd scoreboard(kScoreboardMemfdName);
  const Memfd view(kViewScoreboardMemfdName);
  const auto tables = HoldersOf(table.inode());
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].pid, getpid());
  EXPECT_EQ(tables[0].kind, Holder::Kind::kTable);
  EXPECT_FALSE(tables[0].comm.empty());
  const int fd = open(tables[0].path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st;
  ASSERT_EQ(fstat(fd, &st), 0);
  EXPECT_EQ(st.st_ino, table.inode());
  close(fd);
  const auto scoreboards = HoldersOf(scoreboard.inode());
  ASSERT_EQ(scoreboards.size(), 1u);
  EXPECT_EQ(scoreboards[0].kind, Holder::Kind::kEngineScoreboard);
  const auto views = HoldersOf(view.inode());
  ASSERT_EQ(views.size(), 1u);
  EXPECT_EQ(views[0].kind, Holder::Kind::kViewScoreboard);
}

TEST(HoldersTest, TwoDescriptorsOfOneMemfdAreOneHolder) {
  const Memfd table(kTableMemfdName);
  const int copy = dup(table.fd());
  EXPECT_EQ(HoldersOf(table.inode()).size(), 1u);
  close(copy);
}

TEST(HoldersTest, MemfdsOfOtherNamesAreNotOurs) {
  const Memfd longer("fineserve-table-2");
  const Memfd shorter("fineserve-tabl");
  EXPECT_TRUE(HoldersOf(longer.inode()).empty());
  EXPECT_TRUE(HoldersOf(shorter.inode()).empty());
}

TEST(HoldersTest, ProcessThatInheritedTheTableIsAHolderUntilItDies) {
  const Memfd table(kTableMemfdName);
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const auto both = HoldersOf(table.inode());
  EXPECT_EQ(both.size(), 2u);
  EXPECT_TRUE(std::any_of(both.begin(), both.end(),
                          [&](const Holder& h) { return h.pid == child; }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(HoldersOf(table.inode()).size(), 1u);
  EXPECT_TRUE(FindHolders(child).empty());
}

}  // namespace
}  // namespace fineserve::abi
