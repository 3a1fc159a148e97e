#include "shim/link/scoreboard_writer.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "shim/testdata/plain_view_scoreboard.h"
#include "shim/testdata/scoreboard_copy.h"

namespace fineserve::shim {
namespace {

// Every field repeats `seed`, so that a torn copy is detected.
abi::DecisionRecord Patterned(uint64_t seed) {
  abi::DecisionRecord r = {};
  r.time_ns = r.address = r.bytes = seed;
  r.lease = r.result = static_cast<uint32_t>(seed);
  for (uint64_t& frame : r.frames) frame = seed;
  for (uint64_t& word : r.reserved) word = seed;
  return r;
}

bool IsWhole(const abi::DecisionRecord& r) {
  const abi::DecisionRecord want = Patterned(r.time_ns);
  return memcmp(&r, &want, sizeof(r)) == 0;
}

// A writer on a scoreboard that the test can read.
class ScoreboardTest : public testing::Test {
 protected:
  void SetUp() override {
    fd_ = memfd_create(abi::kScoreboardMemfdName, MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd_, abi::kScoreboardBytes), 0);
    mapped_ =
        mmap(nullptr, abi::kScoreboardBytes, PROT_READ, MAP_SHARED, fd_, 0);
    ASSERT_TRUE(writer_.Adopt(fd_, /*epoch=*/42, /*engine_id=*/3));
  }
  void TearDown() override { writer_.AbandonInChild(); }

  ScoreboardCopy Copy() const { return CopyScoreboard(mapped_); }

  ScoreboardWriter writer_;
  int fd_ = -1;
  void* mapped_ = nullptr;
};

TEST_F(ScoreboardTest, AdoptedScoreboardNamesProcessAndEpoch) {
  const ScoreboardCopy scoreboard = Copy();
  EXPECT_EQ(scoreboard.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(scoreboard.epoch, 42u);
  EXPECT_EQ(scoreboard.program, program_invocation_short_name);
}

TEST_F(ScoreboardTest, RecordsAreReadInTheOrderWritten) {
  for (uint64_t i = 1; i <= 3; ++i) writer_.Record(Patterned(i));
  const ScoreboardCopy scoreboard = Copy();
  ASSERT_EQ(scoreboard.decisions.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(scoreboard.decisions[i].time_ns, i + 1);
    EXPECT_TRUE(IsWhole(scoreboard.decisions[i]));
  }
}

TEST_F(ScoreboardTest, RingKeepsTheLatestRecords) {
  constexpr uint64_t kCount = 2 * abi::kDecisionCapacity + 7;
  for (uint64_t i = 0; i < kCount; ++i) writer_.Record(Patterned(i));
  const ScoreboardCopy scoreboard = Copy();
  EXPECT_EQ(scoreboard.begun, kCount);
  ASSERT_EQ(scoreboard.decisions.size(), abi::kDecisionCapacity);
  EXPECT_EQ(scoreboard.decisions.front().time_ns,
            kCount - abi::kDecisionCapacity);
  EXPECT_EQ(scoreboard.decisions.back().time_ns, kCount - 1);
}

TEST_F(ScoreboardTest, ReaderNeverSeesAHalfWrittenRecord) {
  std::atomic<bool> done{false};
  std::vector<std::thread> writers;
  for (uint64_t t = 0; t < 2; ++t) {
    writers.emplace_back([this, t] {
      for (uint64_t i = 0; i < 20'000; ++i) {
        writer_.Record(Patterned(t << 32 | i));
      }
    });
  }
  std::thread reader([&] {
    while (!done) {
      for (const auto& r : Copy().decisions) ASSERT_TRUE(IsWhole(r));
    }
  });
  for (std::thread& t : writers) t.join();
  done = true;
  reader.join();
  EXPECT_EQ(Copy().begun, 40'000u);
}

TEST_F(ScoreboardTest, CountersOfSeveralThreadsAddUp) {
  std::thread other([this] {
    for (int i = 0; i < 1000; ++i) writer_.CountLarge();
  });
  for (int i = 0; i < 1000; ++i) writer_.CountLarge();
  other.join();
  EXPECT_EQ(Copy().large_allocations, 2000u);
}

TEST_F(ScoreboardTest, ReleasedBytesLeaveTheGauge) {
  writer_.CountRedirected(100);
  writer_.CountRedirected(11);
  writer_.CountReleased(100);
  EXPECT_EQ(Copy().redirected_bytes, 11u);
  EXPECT_EQ(Copy().redirected_allocations, 2u);
}

TEST_F(ScoreboardTest, FirstLinkMessageStays) {
  writer_.SetLink(abi::LinkState::kLost, "went away");
  writer_.SetLink(abi::LinkState::kLost, "another reason");
  EXPECT_EQ(Copy().link_message, "went away");
}

TEST_F(ScoreboardTest, NewScoreboardCarriesTheCountersOver) {
  writer_.AddSmall(5, 500);
  writer_.CountRedirected(77);
  const int fd = memfd_create(abi::kScoreboardMemfdName, MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, abi::kScoreboardBytes), 0);
  const void* fresh =
      mmap(nullptr, abi::kScoreboardBytes, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_TRUE(writer_.Adopt(fd, 43, 3));
  EXPECT_EQ(CopyScoreboard(fresh).small_allocations, 5u);
  EXPECT_EQ(CopyScoreboard(fresh).redirected_bytes, 77u);
  EXPECT_EQ(CountScoreboards(getpid()), 1)
      << "the old scoreboard's descriptor is closed";
}

TEST_F(ScoreboardTest, FileThatIsTooShortIsNoScoreboard) {
  const int fd = memfd_create("short", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, abi::kScoreboardBytes - 1), 0);
  EXPECT_FALSE(writer_.Adopt(fd, 43, 3));
  EXPECT_EQ(Copy().epoch, 42u);
}

TEST(ViewScoreboardWriterTest, TwoProcessesWriteWordsOfTheirOwn) {
  constexpr uint32_t kSlabs = 4;
  const int fd = MakeViewScoreboard(kSlabs);
  ViewScoreboardWriter rank, core;
  ASSERT_TRUE(core.Adopt(dup(fd), 42, 3, kSlabs));
  ASSERT_TRUE(rank.Adopt(fd, 42, 3, kSlabs));
  EXPECT_FALSE(core.IsMapped(kSlabs, 0)) << "no memory is never mapped";
  for (uint32_t v = 0; v <= kSlabs; ++v) {
    core.ShowUsed(v, 10 + v);
    core.ShowWished(v, v % 2 == 0);
    rank.ShowMapped(v, 20 + v);
  }
  for (uint32_t v = 0; v <= kSlabs; ++v) {
    EXPECT_EQ(core.Used(v), 10 + v);
    EXPECT_TRUE(core.IsMapped(v, 20 + v));
    EXPECT_FALSE(core.IsMapped(v, 21 + v));
  }
  core.ShowUsed(kSlabs + 1, 7);  // ignored
  rank.ShowMapped(kSlabs + 1, 7);
  EXPECT_EQ(core.Used(kSlabs + 1), 0u);
  EXPECT_FALSE(core.IsMapped(kSlabs + 1, 7));
  core.Close();
  rank.Close();
}

TEST(ScoreboardWriter, CountsBeforeThereIsAScoreboardAreKeptForIt) {
  ScoreboardWriter writer;
  writer.AddSmall(9, 900);
  writer.Record(Patterned(1));
  ASSERT_TRUE(writer.CreateOwn());
  const ScoreboardCopy scoreboard = CopyScoreboard(MapScoreboardOf(getpid()));
  EXPECT_EQ(scoreboard.small_allocations, 9u);
  EXPECT_EQ(scoreboard.begun, 0u);
  EXPECT_EQ(scoreboard.epoch, 0u);
  writer.AbandonInChild();
  EXPECT_EQ(CountScoreboards(getpid()), 0);
}

}  // namespace
}  // namespace fineserve::shim
