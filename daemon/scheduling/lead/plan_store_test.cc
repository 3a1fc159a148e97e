#include "daemon/scheduling/lead/plan_store.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace fineserve::lead {
namespace {

class PlanStoreTest : public testing::Test {
 protected:
  PlanStoreTest() {
    char path[] = "/tmp/plan_store_test.XXXXXX";
    folder_ = mkdtemp(path);
  }
  ~PlanStoreTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

StandingPlan Numbered(uint64_t number) {
  StandingPlan plan;
  plan.number = number;
  return plan;
}

TEST_F(PlanStoreTest, NextLeaderReadsWhatTheLastOneWrote) {
  {
    auto store = PlanStore::Open(folder_);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_TRUE(absl::IsNotFound(store->Read().status()));
    ASSERT_TRUE(store->Write(Numbered(7), "first").ok());
    ASSERT_TRUE(store->Write(Numbered(8), "").ok());
    ASSERT_TRUE(store->Write(Numbered(9), "second").ok());
  }
  auto next = PlanStore::Open(folder_);
  ASSERT_TRUE(next.ok()) << next.status();
  ASSERT_TRUE(next->Read().ok());
  EXPECT_EQ(next->Read()->number, 9u);
  EXPECT_EQ(next->History(10), (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(next->History(1), std::vector<std::string>{"second"});
}

TEST(UnkeptPlanStoreTest, RemembersItsHistoryAndWritesNothing) {
  PlanStore store = PlanStore::Unkept();
  EXPECT_TRUE(absl::IsNotFound(store.Read().status()));
  ASSERT_TRUE(store.Write(Numbered(7), "first").ok());
  ASSERT_TRUE(store.Write(Numbered(8), "").ok());
  EXPECT_EQ(store.History(10), std::vector<std::string>{"first"});
  EXPECT_TRUE(absl::IsNotFound(store.Read().status()));
  EXPECT_FALSE(std::filesystem::exists("/plan.json"));
}

TEST_F(PlanStoreTest, OneProcessLeads) {
  const auto first = PlanStore::Open(folder_);
  ASSERT_TRUE(first.ok()) << first.status();
  // Another open file description acts like another process.
  EXPECT_TRUE(absl::IsFailedPrecondition(PlanStore::Open(folder_).status()));
}

TEST_F(PlanStoreTest, KilledLeaderLeavesTheLead) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto store = PlanStore::Open(folder_);
    const char ok = store.ok() ? 'y' : 'n';
    if (write(ready[1], &ok, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char ok = 0;
  ASSERT_EQ(read(ready[0], &ok, 1), 1);
  ASSERT_EQ(ok, 'y');
  EXPECT_TRUE(absl::IsFailedPrecondition(PlanStore::Open(folder_).status()));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(PlanStore::Open(folder_).ok());
}

// The files may be removed by systemd-tmpfiles, or by hand.
TEST_F(PlanStoreTest, RemovedFilesAreMadeAgainAndTheLeadIsKept) {
  auto store = PlanStore::Open(folder_);
  ASSERT_TRUE(store->Write(Numbered(7), "").ok());
  std::filesystem::remove(folder_ + "/leader.lock");
  std::filesystem::remove(folder_ + "/plan.json");
  EXPECT_TRUE(store->Hold().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(PlanStore::Open(folder_).status()));
  EXPECT_EQ(store->Read()->number, 7u);
}

TEST_F(PlanStoreTest, LeaderWhoseLockWasRemovedAndTakenStopsWriting) {
  auto first = PlanStore::Open(folder_);
  ASSERT_TRUE(first->Write(Numbered(7), "").ok());
  std::filesystem::remove(folder_ + "/leader.lock");
  auto second = PlanStore::Open(folder_);
  ASSERT_TRUE(second->Write(Numbered(8), "").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(first->Hold()));
  EXPECT_TRUE(absl::IsFailedPrecondition(first->Write(Numbered(9), "")));
  EXPECT_EQ(second->Read()->number, 8u);
  EXPECT_TRUE(second->Hold().ok());
}

// The former leader was stopped between its look at the lock and its
// replacement of the file.
TEST_F(PlanStoreTest, PlanThatAFormerLeaderWroteLateIsReplaced) {
  auto store = PlanStore::Open(folder_);
  ASSERT_TRUE(store->Write(Numbered(7), "").ok());
  std::ofstream(folder_ + "/late") << PlanText(Numbered(3));
  std::filesystem::rename(folder_ + "/late", folder_ + "/plan.json");
  EXPECT_TRUE(store->Hold().ok());
  EXPECT_EQ(store->Read()->number, 7u);
}

TEST_F(PlanStoreTest, FileThatIsNoPlanIsAnErrorThatNamesIt) {
  const auto store = PlanStore::Open(folder_);
  ASSERT_TRUE(store.ok());
  std::ofstream(folder_ + "/plan.json") << "{ half";
  const absl::Status s = store->Read().status();
  EXPECT_TRUE(absl::IsInvalidArgument(s));
  EXPECT_NE(s.message().find("plan.json"), absl::string_view::npos);
}

TEST_F(PlanStoreTest, PlanThatCannotBeWrittenLeavesTheOldOne) {
  auto store = PlanStore::Open(folder_);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(store->Write(Numbered(7), "").ok());
  // A folder has the new file's name: no user can write it, not even root.
  std::filesystem::create_directory(
      absl::StrCat(folder_, "/plan.json.", getpid(), ".new"));
  EXPECT_TRUE(absl::IsUnavailable(store->Write(Numbered(8), "")));
  EXPECT_EQ(store->Read()->number, 7u);
}

TEST_F(PlanStoreTest, HistoryDoesNotGrowForEver) {
  std::ofstream file(folder_ + "/plan.history");
  for (int i = 0; i < 1999; ++i) file << i << "\n";
  file.close();
  for (int life = 0; life < 2; ++life) {
    auto store = PlanStore::Open(folder_);
    ASSERT_TRUE(store.ok());
    if (life == 0) {
      ASSERT_TRUE(store->Write(Numbered(1), "last").ok());
    }
    const std::vector<std::string> lines = store->History(100'000);
    EXPECT_EQ(lines.size(), 1000u);
    EXPECT_EQ(lines.back(), "last");
  }
}

}  // namespace
}  // namespace fineserve::lead
