// Engines of several processes that have each other's memory open by CUDA's
// legacy IPC, as ranks do. This memory leaves the GPU and comes back with its
// engine.

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "tests/integration/eviction/sharing_site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Two processes of one engine, each of which has the other's workspace open.
class SharedEngineTest : public SharingSite {
 protected:
  void StartBoth() {
    first_ = StartEvictable("chat");
    second_ = StartEvictable("chat");
    of_first_ = Open(*second_, HandleOf(*first_));
    of_second_ = Open(*first_, HandleOf(*second_));
  }
  // Each process writes its own memory and the other's.
  void WriteAll(uint32_t value) {
    Poke(*first_, At(*first_), value);
    Poke(*second_, of_first_ + 4, value + 1);
    Poke(*second_, At(*second_), value + 2);
    Poke(*first_, of_second_ + 4, value + 3);
  }
  // Expects that each process sees everything that was written, in both
  // memories.
  void ExpectAll(uint32_t value) {
    for (const uint64_t offset : {0, 4}) {
      const uint32_t more = offset / 4;
      EXPECT_EQ(Ask(*first_, "peek", At(*first_, offset)), Value(value + more));
      EXPECT_EQ(Ask(*second_, "peek", of_first_ + offset), Value(value + more));
      EXPECT_EQ(Ask(*second_, "peek", At(*second_, offset)),
                Value(value + 2 + more));
      EXPECT_EQ(Ask(*first_, "peek", of_second_ + offset),
                Value(value + 2 + more));
    }
    EXPECT_THAT(first_->Ask("verify"), HasSubstr("ok verified"));
    EXPECT_THAT(second_->Ask("verify"), HasSubstr("ok verified"));
  }
  // Expects that an engine which has lost memory that it had open ends by
  // itself.
  static void ExpectEnds(Process* engine) {
    engine->Tell("verify");
    EXPECT_NE(engine->Wait(), 0);
    EXPECT_THAT(engine->Stderr(), HasSubstr("was on the host, and is gone"));
  }

  std::unique_ptr<Process> first_, second_;
  uint64_t of_first_ = 0, of_second_ = 0;  // in the other one
};

TEST_F(SharedEngineTest,
       WhatTheyShareLeavesWithThemAndComesBackAtItsAddresses) {
  const auto daemon = StartDaemon();
  const auto other = StartEngine("4MiB", {"--seed", "22"});
  StartBoth();
  Move("evict", "chat");  // the daemon's first kernel takes memory of the GPU
  Move("activate", "chat");
  const uint64_t before = FreeBytes(*other);
  for (uint32_t round = 0; round < 5; ++round) {
    WriteAll(10 * round + 1);
    const std::string left = Move("evict", "chat");
    EXPECT_THAT(left, HasSubstr("chat: 88 MiB left the GPU"));
    EXPECT_THAT(left, Not(HasSubstr("stays")));
    EXPECT_EQ(FreeBytes(*other), before + 88 * kMiB);
    EXPECT_THAT(other->Ask("write " + std::to_string(round)), HasSubstr("ok"));
    Move("activate", "chat");
    EXPECT_EQ(FreeBytes(*other), before);
    ExpectAll(10 * round + 1);
  }
}

TEST_F(SharedEngineTest, CallOfOneBringsBothBack) {
  const auto daemon = StartDaemon();
  StartBoth();
  for (uint32_t round = 0; round < 3; ++round) {
    WriteAll(10 * round + 1);
    Move("evict", "chat");
    EXPECT_EQ(Ask(*second_, "peek", of_first_), Value(10 * round + 1));
    ExpectAll(10 * round + 1);
  }
}

// The gate of the other engine is not closed with theirs, so that engine may
// write the memory at any time.
TEST_F(SharedEngineTest, MemoryThatAnotherEngineHasOpenStays) {
  const auto daemon = StartDaemon();
  const auto code = StartEvictable("code");
  const auto twin = StartEvictable("code");
  StartBoth();
  const uint64_t opened = Open(*code, HandleOf(*first_));
  WriteAll(1);
  EXPECT_THAT(Move("evict", "chat"),
              HasSubstr("84 MiB left the GPU (2 processes); 4 MiB stays"));
  Poke(*code, opened, 7);
  EXPECT_THAT(Move("evict", "code"), HasSubstr("88 MiB left the GPU"));
  EXPECT_EQ(Ask(*first_, "peek", At(*first_)), Value(7));
  EXPECT_EQ(Ask(*second_, "peek", of_first_), Value(7));
  EXPECT_EQ(Ask(*code, "peek", opened), Value(7));
  // The memory does not leave after `code` has left either, because requests to
  // `code` bring back only `code`.
  Move("evict", "code");
  EXPECT_THAT(Move("evict", "chat"), HasSubstr("4 MiB stays"));
  EXPECT_EQ(Ask(*code, "peek", opened), Value(7));
}

TEST_F(SharedEngineTest, OneThatCannotLeaveLetsTheOtherGoOn) {
  const auto daemon = StartDaemon();
  StartBoth();
  WriteAll(1);
  ASSERT_THAT(second_->Ask("stall"), HasSubstr("ok"));
  EXPECT_THAT(Move("evict", "chat", 1),
              HasSubstr("its work on the GPU did not end within"));
  EXPECT_EQ(Ask(*first_, "peek", of_second_), Value(3));
  ASSERT_THAT(second_->Ask("resume"), HasSubstr("ok"));
  ExpectAll(1);
  EXPECT_TRUE(Eventually([&] { return Fsctl({"evict", "chat"}).code == 0; }));
  ExpectAll(1);
}

TEST_F(SharedEngineTest, ExporterThatDiesWhileItIsOutEndsWhoHadItOpen) {
  const auto daemon = StartDaemon();
  StartBoth();
  Move("evict", "chat");
  first_->EndBy(SIGKILL);
  ExpectEnds(second_.get());
  EXPECT_TRUE(EventuallyFree(kSlabs));
}

TEST_F(SharedEngineTest, BorrowerThatDiesWhileItIsOutHoldsUpNoExporter) {
  const auto daemon = StartDaemon();
  first_ = StartEvictable("chat");
  second_ = StartEvictable("chat");
  const uint64_t opened = Open(*second_, HandleOf(*first_));
  Poke(*second_, opened, 5);
  Move("evict", "chat");
  second_->EndBy(SIGKILL);
  EXPECT_EQ(Ask(*first_, "peek", At(*first_)), Value(5));
  EXPECT_THAT(Move("evict", "chat"), HasSubstr("44 MiB left the GPU; the"));
}

// Such memory belongs to the borrower alone, which has it mapped, and no
// exporter is left to copy it.
TEST_F(SharedEngineTest, MemoryThatAnEndedProcessHadLentStays) {
  const auto daemon = StartDaemon();
  first_ = StartEvictable("chat");
  second_ = StartEvictable("chat");
  const uint64_t opened = Open(*second_, HandleOf(*first_));
  Poke(*second_, opened, 5);
  first_->EndBy(SIGKILL);
  for (int round = 0; round < 3; ++round) {
    Move("evict", "chat");
    EXPECT_EQ(Ask(*second_, "peek", opened), Value(5));
  }
}

TEST_F(SharedEngineTest, CloseWhileItIsOutEndsTheLoan) {
  const auto daemon = StartDaemon();
  StartBoth();
  WriteAll(1);
  Move("evict", "chat");
  EXPECT_EQ(Ask(*second_, "close", of_first_), "ok closed");
  Move("activate", "chat");
  EXPECT_THAT(Ask(*second_, "peek", of_first_), StartsWith("error"));
  EXPECT_EQ(Ask(*first_, "peek", of_second_), Value(3));
  Move("evict", "chat");
  const uint64_t opened = Open(*second_, HandleOf(*first_));
  EXPECT_EQ(Ask(*second_, "peek", opened), Value(1));
}

TEST_F(SharedEngineTest, NextDaemonBringsBothBack) {
  auto daemon = StartDaemon();
  StartBoth();
  WriteAll(1);
  Move("evict", "chat");
  daemon->EndBy(SIGKILL);
  daemon = StartDaemon();
  ExpectAll(1);
  EXPECT_TRUE(Eventually([&] { return Fsctl({"evict", "chat"}).code == 0; }));
  ExpectAll(1);
}

TEST_F(SharedEngineTest, WithoutADaemonACallBringsBothBack) {
  auto daemon = StartDaemon();
  StartBoth();
  WriteAll(1);
  Move("evict", "chat");
  daemon->EndBy(SIGKILL);
  ExpectAll(1);
}

// Kills the daemon at different points of a move, which takes some
// milliseconds.
TEST_F(SharedEngineTest, DaemonsThatDieDuringMovesLoseNothing) {
  auto daemon = StartDaemon();
  StartBoth();
  for (uint32_t round = 0; round < 10; ++round) {
    const bool comes = round % 2 == 1;
    WriteAll(10 * round + 1);
    // Both have come to this daemon.
    if (comes) {
      ASSERT_TRUE(Eventually([&] {
        return Fsctl({"evict", "chat"}).code == 0;
      }));
    }
    Process move({Program("fsctl"), comes ? "activate" : "evict", "chat"},
                 environment());
    usleep(2'000 * round);
    daemon->EndBy(SIGKILL);
    move.Wait();
    daemon = StartDaemon();
    ExpectAll(10 * round + 1);
  }
}

}  // namespace
}  // namespace fineserve::integration
