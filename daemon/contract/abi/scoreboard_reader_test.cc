#include "daemon/contract/abi/scoreboard_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <stop_token>
#include <string>
#include <thread>

#include "daemon/contract/abi/transport.h"

namespace fineserve::abi {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A memfd with a valid, empty scoreboard, writable here.
class ScoreboardReaderTest : public ::testing::Test {
 protected:
  ScoreboardReaderTest() {
    fd_ = memfd_create(kScoreboardMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd_, kScoreboardBytes), 0);
    base_ = static_cast<char*>(mmap(
        nullptr, kScoreboardBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    FillHeader();
  }
  ~ScoreboardReaderTest() override {
    munmap(base_, kScoreboardBytes);
    close(fd_);
  }

  void FillHeader() {
    memcpy(header().magic, kScoreboardMagic, sizeof(kScoreboardMagic));
    header().abi_version = kAbiVersion;
    header().pid = 4712;
    header().scoreboard_bytes = kScoreboardBytes;
  }

  ScoreboardHeader& header() {
    return *reinterpret_cast<ScoreboardHeader*>(base_);
  }
  Decision& place(uint32_t i) {
    return reinterpret_cast<Decision*>(base_ + sizeof(ScoreboardHeader))[i];
  }

  static DecisionRecord Record(uint64_t bytes) {
    DecisionRecord record = {};
    record.bytes = bytes;
    record.hook = Hook::kMemAlloc;
    record.verdict = Verdict::kRedirected;
    record.reason = Reason::kDeclaredSize;
    record.frame_count = 2;
    record.frames[0] = bytes + 1;
    record.frames[1] = bytes + 2;
    return record;
  }

  // Appends as the shim does.
  void Append(const DecisionRecord& record) {
    const uint64_t n = header().decisions.fetch_add(1);
    Decision& d = place(n % kDecisionCapacity);
    uint64_t words[sizeof(record) / 8];
    memcpy(words, &record, sizeof(record));
    d.sequence.store(2 * n + 1, std::memory_order_relaxed);
    for (size_t i = 0; i < sizeof(record) / 8; ++i) {
      d.record[i].store(words[i], std::memory_order_release);
    }
    d.sequence.store(2 * n + 2, std::memory_order_release);
  }

  int fd_;
  char* base_;
};

TEST_F(ScoreboardReaderTest, CopiesHeaderCountersAndDecisions) {
  CopyText(header().program, "vllm");
  CopyText(header().link_message, "no daemon\n\x1b[31m");
  header().link_state = static_cast<uint32_t>(LinkState::kNoDaemon);
  header().engine_id = 3;
  header().small_allocations = 11;
  header().redirected_bytes = 12;
  Append(Record(64));
  const auto scoreboard = ReadScoreboard(fd_);
  ASSERT_TRUE(scoreboard.ok()) << scoreboard.status();
  EXPECT_EQ(scoreboard->pid, 4712u);
  EXPECT_EQ(scoreboard->engine_id, 3u);
  EXPECT_EQ(scoreboard->link_state, LinkState::kNoDaemon);
  EXPECT_EQ(scoreboard->program, "vllm");
  EXPECT_EQ(scoreboard->link_message, "no daemon??[31m");
  EXPECT_EQ(scoreboard->small_allocations, 11u);
  EXPECT_EQ(scoreboard->redirected_bytes, 12u);
  ASSERT_EQ(scoreboard->decisions.size(), 1u);
  EXPECT_EQ(scoreboard->decisions[0].bytes, 64u);
  EXPECT_EQ(scoreboard->decisions[0].reason, Reason::kDeclaredSize);
  EXPECT_THAT(scoreboard->decisions[0].frames, ElementsAre(65u, 66u));
}

TEST_F(ScoreboardReaderTest, OtherVersionIsRefusedNamingBoth) {
  header().abi_version = 41;
  const absl::Status status = ReadScoreboard(fd_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 41"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("version " + std::to_string(kAbiVersion)));
}

TEST_F(ScoreboardReaderTest, WrapAroundKeepsTheNewestInOrderAndCountsTheLost) {
  constexpr uint64_t kWritten = 2 * kDecisionCapacity + 17;
  for (uint64_t i = 0; i < kWritten; ++i) Append(Record(i));
  const auto scoreboard = ReadScoreboard(fd_);
  ASSERT_TRUE(scoreboard.ok());
  EXPECT_EQ(scoreboard->decisions_begun, kWritten);
  EXPECT_EQ(scoreboard->overwritten, kWritten - kDecisionCapacity);
  ASSERT_EQ(scoreboard->decisions.size(), kDecisionCapacity);
  for (uint64_t i = 0; i < kDecisionCapacity; ++i) {
    EXPECT_EQ(scoreboard->decisions[i].number,
              kWritten - kDecisionCapacity + i);
    EXPECT_EQ(scoreboard->decisions[i].bytes, scoreboard->decisions[i].number);
  }
}

TEST_F(ScoreboardReaderTest, RecordBeingWrittenIsSkippedAndCounted) {
  for (uint64_t i = 0; i < 3; ++i) Append(Record(i));
  place(1).sequence = 2 * (kDecisionCapacity + 1) + 1;
  const auto scoreboard = ReadScoreboard(fd_);
  ASSERT_TRUE(scoreboard.ok());
  EXPECT_EQ(scoreboard->unfinished, 1u);
  ASSERT_EQ(scoreboard->decisions.size(), 2u);
  EXPECT_EQ(scoreboard->decisions[0].number, 0u);
  EXPECT_EQ(scoreboard->decisions[1].number, 2u);
}

TEST_F(ScoreboardReaderTest, CutFileIsAnErrorNotASignal) {
  ASSERT_EQ(ftruncate(fd_, kScoreboardBytes - 1), 0);
  EXPECT_EQ(ReadScoreboard(fd_).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_EQ(ftruncate(fd_, 0), 0);
  EXPECT_EQ(ReadScoreboard(fd_).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_EQ(ftruncate(fd_, kScoreboardBytes), 0);
}

struct BadRecord {
  const char* name;
  void (*apply)(DecisionRecord&);
};

class MalformedRecord : public ScoreboardReaderTest,
                        public ::testing::WithParamInterface<BadRecord> {};

TEST_P(MalformedRecord, IsCountedAndNotShown) {
  DecisionRecord record = Record(1);
  GetParam().apply(record);
  Append(record);
  Append(Record(2));
  const auto scoreboard = ReadScoreboard(fd_);
  ASSERT_TRUE(scoreboard.ok());
  EXPECT_EQ(scoreboard->malformed, 1u);
  ASSERT_EQ(scoreboard->decisions.size(), 1u);
  EXPECT_EQ(scoreboard->decisions[0].bytes, 2u);
}

INSTANTIATE_TEST_SUITE_P(
    , MalformedRecord,
    ::testing::Values(
        BadRecord{"Hook", [](DecisionRecord& r) { r.hook = Hook{999}; }},
        BadRecord{"Verdict", [](DecisionRecord& r) { r.verdict = Verdict{0}; }},
        BadRecord{"Reason", [](DecisionRecord& r) { r.reason = Reason{99}; }},
        BadRecord{"Frames", [](DecisionRecord& r) { r.frame_count = 0xffff; }}),
    [](const auto& info) { return info.param.name; });

TEST_F(ScoreboardReaderTest, SequenceOfAnotherPlaceIsMalformed) {
  Append(Record(1));
  place(0).sequence = 2 * 5 + 2;
  const auto scoreboard = ReadScoreboard(fd_);
  ASSERT_TRUE(scoreboard.ok());
  EXPECT_EQ(scoreboard->malformed, 1u);
  EXPECT_TRUE(scoreboard->decisions.empty());
}

TEST_F(ScoreboardReaderTest, LinkStateOutOfRangeIsNoScoreboard) {
  header().link_state = 6;
  EXPECT_EQ(ReadScoreboard(fd_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ScoreboardReaderTest, RecordUnderAFastWriterIsWholeOrSkipped) {
  std::jthread writer([&](std::stop_token stop) {
    for (uint64_t i = 0; !stop.stop_requested(); ++i) {
      Append(Record(i));
    }
  });
  // The ring wraps around many times during one reading, so most of it is
  // skipped; every entry that is shown has to be whole.
  while (header().decisions < 10 * kDecisionCapacity) std::this_thread::yield();
  uint64_t skipped = 0;
  for (int i = 0; i < 500; ++i) {
    const auto scoreboard = ReadScoreboard(fd_);
    ASSERT_TRUE(scoreboard.ok()) << scoreboard.status();
    ASSERT_EQ(scoreboard->malformed, 0u);
    skipped += scoreboard->unfinished;
    for (const DecisionSnapshot& d : scoreboard->decisions) {
      ASSERT_EQ(d.bytes, d.number);
      ASSERT_THAT(d.frames, ElementsAre(d.number + 1, d.number + 2));
    }
  }
  EXPECT_GT(skipped, 0u);  // else writer and reader never met
}

TEST_F(ScoreboardReaderTest, ScribbledAndCutScoreboardNeverBreaksTheReader) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int readable = 0;
  for (int i = 0; i < 2000; ++i) {
    for (int n = 0; n < 50; ++n) {
      base_[random() % kScoreboardBytes] = static_cast<char>(random());
    }
    if (i % 2 == 0) {
      FillHeader();
      header().link_state = 0;
    }
    const auto scoreboard = ReadScoreboard(fd_);
    if (!scoreboard.ok()) continue;
    ++readable;
    ASSERT_LE(scoreboard->decisions.size() + scoreboard->unfinished +
                  scoreboard->malformed,
              kDecisionCapacity);
    ASSERT_LT(scoreboard->program.size() + scoreboard->link_message.size(),
              64u + 256u + 1);
    for (const DecisionSnapshot& d : scoreboard->decisions) {
      ASSERT_LE(d.frames.size(), kFrameCapacity);
    }
  }
  EXPECT_GE(readable, 1000);
}

TEST_F(ScoreboardReaderTest, HooksThatWereUsedAreListedWithTheirPaths) {
  const auto hook = static_cast<uint32_t>(Hook::kMemFree);
  header().hook_uses[hook][static_cast<uint32_t>(Path::kResolver2)] = 3;
  header().hook_uses[hook][static_cast<uint32_t>(Path::kCalled)] = 8;
  UsesOf(header(), kHookCapacity - 1)[0] = 5;  // a hook of no name
  const auto last = kHookCount - 1;            // in the later rows
  UsesOf(header(), last)[static_cast<uint32_t>(Path::kCalled)] = 4;
  header().deepbind_stripped = 2;
  header().foreign_namespaces = 1;
  const auto scoreboard = ReadScoreboard(fd_);
  ASSERT_TRUE(scoreboard.ok());
  ASSERT_EQ(scoreboard->hooks.size(), 2u);
  EXPECT_EQ(scoreboard->hooks[1].hook, static_cast<Hook>(last));
  EXPECT_EQ(scoreboard->hooks[1].by(Path::kCalled), 4u);
  EXPECT_EQ(scoreboard->hooks[0].hook, Hook::kMemFree);
  EXPECT_EQ(scoreboard->hooks[0].by(Path::kResolver2), 3u);
  EXPECT_EQ(scoreboard->hooks[0].by(Path::kCalled), 8u);
  EXPECT_EQ(scoreboard->hooks[0].by(Path::kDefault), 0u);
  EXPECT_EQ(scoreboard->deepbind_stripped, 2u);
  EXPECT_EQ(scoreboard->foreign_namespaces, 1u);
}

}  // namespace
}  // namespace fineserve::abi
