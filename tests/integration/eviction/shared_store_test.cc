// Replicas on two GPUs, each with its own daemon, whose stores share their
// copies.

#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/integration/eviction/eviction_site.h"
#include "tools/lab/process/daemon_log.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

class SharedStoreTest : public EvictionSite {
 protected:
  void SetUp() override {
    if (!OnEmulatedGpu()) GTEST_SKIP() << "needs two GPUs";
    Set("EMUCUDA_DEVICES", "2");
    Set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    for (int gpu = 0; gpu < 2; ++gpu) {
      Start(gpu);
      engines_[gpu] =
          StartEvictable(kNames[gpu], weights_,
                         {{"CUDA_VISIBLE_DEVICES", std::to_string(gpu)}});
    }
  }
  void Start(int gpu) {
    daemons_[gpu] = StartDaemon({"--gpu", "emulated:" + std::to_string(gpu)});
    gpus_[gpu] = process::GpuInLog(daemons_[gpu]->Stderr());
  }
  void Kill(int gpu) { EXPECT_EQ(daemons_[gpu]->EndBy(SIGKILL), -SIGKILL); }
  Finished Order(int gpu, const std::string& command) {
    return Fsctl({"--gpu", gpus_[gpu], command, kNames[gpu]});
  }
  // Repeats the command until it succeeds, because a daemon that has just
  // started may not know its engine yet.
  void Do(int gpu, const std::string& command) {
    EXPECT_TRUE(Eventually([&] { return Order(gpu, command).code == 0; }))
        << command << " " << kNames[gpu];
  }
  void Verify(int gpu) {
    EXPECT_THAT(engines_[gpu]->Ask("verify"), HasSubstr("ok verified"))
        << kNames[gpu];
  }
  std::string Store(int gpu) {
    return Fsctl({"--gpu", gpus_[gpu], "store"}).out;
  }
  uint64_t HeldBytes() {
    return StoreBytesIn({daemons_[0]->pid(), daemons_[1]->pid(),
                         engines_[0]->pid(), engines_[1]->pid()});
  }

  static constexpr const char* kNames[] = {"chat", "twin"};
  const char* weights_ = "40MiB";
  std::unique_ptr<Process> daemons_[2], engines_[2];
  std::string gpus_[2];
};

TEST_F(SharedStoreTest, ReplicasOnTwoGpusAreHeldOnce) {
  Do(0, "evict");
  EXPECT_EQ(HeldBytes(), kResidentBytes);
  Do(1, "evict");
  EXPECT_EQ(HeldBytes(), kResidentBytes);
  EXPECT_THAT(Store(1), HasSubstr("44 MiB more is needed by them, and held in "
                                  "the stores of other daemons"));
  EXPECT_THAT(Store(1), HasSubstr("the store holds 0 B in 0 copies"));
  const std::string all = Fsctl({"store"}).out;
  EXPECT_THAT(all, HasSubstr("2 daemons, which use each other's copies, hold "
                             "44 MiB"));
  for (const std::string& gpu : gpus_) EXPECT_THAT(all, HasSubstr(gpu));
  EXPECT_THAT(Store(1), HasSubstr("0 B was copied, and 44 MiB was here"));
  EXPECT_THAT(Store(0), HasSubstr("44 MiB was copied, and 0 B was here"));
  for (int round = 0; round < 3; ++round) {
    for (const int gpu : {1, 0, 0, 1}) {
      Do(gpu, "activate");
      Verify(gpu);
      Do(gpu, "evict");
      EXPECT_EQ(HeldBytes(), kResidentBytes) << round;
    }
  }
  engines_[0].reset();
  Do(1, "activate");
  Verify(1);
  engines_[1].reset();
  EXPECT_TRUE(Eventually([&] {
    return StoreBytesIn({daemons_[0]->pid(), daemons_[1]->pid()}) == 0;
  }));
}

// Each daemon dies after every move. At the end, the daemon that made the
// shared copy dies together with its engine.
TEST_F(SharedStoreTest, WhicheverDaemonDiesNoEngineLosesItsCopy) {
  const struct {
    int gpu;
    const char* command;
  } moves[] = {{0, "evict"},    {1, "evict"},    {0, "activate"},
               {1, "activate"}, {1, "evict"},    {0, "evict"},
               {1, "activate"}, {0, "activate"}, {0, "evict"}};
  for (const int dies : {0, 1}) {
    for (const auto& move : moves) {
      Do(move.gpu, move.command);
      Kill(dies);
      if (move.gpu != dies) {  // one without a daemon comes back by itself
        Do(move.gpu, "activate");
        Verify(move.gpu);
        Do(move.gpu, move.command);
      }
      Start(dies);
    }
    for (const int gpu : {0, 1}) {
      Do(gpu, "activate");
      Verify(gpu);
    }
  }
  Do(0, "evict");
  Do(1, "evict");
  EXPECT_EQ(HeldBytes(), kResidentBytes);
  Kill(0);
  engines_[0].reset();
  Do(1, "activate");
  Verify(1);
}

// The first rounds kill the daemon that makes the copy, while it copies. The
// last two kill a daemon while it looks for the other's copy.
TEST_F(SharedStoreTest, DaemonThatDiesWhileItCopiesTakesNothingAlong) {
  for (int round = 0; round < 6; ++round) {
    const int gpu = round % 2;
    const uint64_t copied = static_cast<uint64_t>(round) * 8 * kMiB;
    if (round >= 4) Do(1 - gpu, "evict");  // there is something to be found
    Process leaves(
        {Program("fsctl"), "--gpu", gpus_[gpu], "evict", kNames[gpu]},
        environment());
    EXPECT_TRUE(Eventually([&] {
      return !leaves.alive() || StoreBytesIn(daemons_[gpu]->pid()) > copied;
    }));
    Kill(gpu);
    leaves.Wait();
    Start(gpu);
    Do(gpu, "evict");
    Do(1 - gpu, "evict");
    for (const int each : {0, 1}) {
      Do(each, "activate");
      Verify(each);
    }
  }
}

// A copy comes back over the links of both GPUs, whose speed SetUp limits.
class SharedLinkTest : public SharedStoreTest {
 protected:
  void SetUp() override {
    Set("EMUCUDA_LINK_MB_S", "200");
    weights_ = "160MiB";  // allocations of 40 MiB, and pieces of 32
    SharedStoreTest::SetUp();
  }
  static int CountOf(const std::string& what, const std::string& text) {
    int count = 0;
    for (size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + 1)) {
      ++count;
    }
    return count;
  }
  // Returns how often a part came over the other GPU's link.
  int Shared(int gpu) {
    return CountOf("came by other GPUs' links", daemons_[gpu]->Stderr());
  }
  // Returns how often an engine filled its memory itself because the daemon
  // could not.
  int Unfilled(int gpu) {
    return CountOf("it does so itself", engines_[gpu]->Stderr());
  }
  // True if the daemon copies for the other engine. It then has the file of
  // that engine's store mapped.
  bool Carries(int gpu) {
    std::ifstream maps(absl::StrCat("/proc/", daemons_[gpu]->pid(), "/maps"));
    const std::string text((std::istreambuf_iterator<char>(maps)), {});
    return text.find("fineserve-store") != std::string::npos;
  }
  void MoveOnce(int gpu) {
    Do(gpu, "evict");
    Do(gpu, "activate");
  }
};

TEST_F(SharedLinkTest, WhatComesBackComesByBothLinks) {
  for (int round = 1; round <= 3; ++round) {
    MoveOnce(0);
    Verify(0);
    EXPECT_EQ(Shared(0), round);
  }
  EXPECT_EQ(CountOf("copied once more", daemons_[0]->Stderr()), 0);
  EXPECT_EQ(Shared(1), 0);
  EXPECT_EQ(HeldBytes(), (4 * 40 + 4) * kMiB);
  EXPECT_TRUE(Carries(1));
  Verify(1);
  engines_[0].reset();
  EXPECT_TRUE(Eventually([&] {
    return StoreBytesIn({daemons_[0]->pid(), daemons_[1]->pid()}) == 0 &&
           !Carries(1);
  }));
}

TEST_F(SharedLinkTest, BothComeBackAtOnceAndNoneWaitsForTheOther) {
  for (int round = 0; round < 3; ++round) {
    for (const int gpu : {0, 1}) Do(gpu, "evict");
    Process other({Program("fsctl"), "--gpu", gpus_[1], "activate", kNames[1]},
                  environment());
    Do(0, "activate");
    EXPECT_EQ(other.Wait(), 0);
    for (const int gpu : {0, 1}) Verify(gpu);
  }
  EXPECT_EQ(Unfilled(0) + Unfilled(1), 0);
}

// A daemon that hung may still write later. By then the engine uses other
// memory.
TEST_F(SharedLinkTest, DaemonThatEndsOrHangsWhileItCopiesForAnotherHarmsNone) {
  for (int round = 0; round < 4; ++round) {
    MoveOnce(1);
    Do(0, "evict");
    Process comes({Program("fsctl"), "--gpu", gpus_[0], "activate", kNames[0]},
                  environment());
    EXPECT_TRUE(Eventually([&] { return Carries(1); }));
    const bool hangs = round % 2 == 1;
    if (hangs) kill(daemons_[1]->pid(), SIGSTOP);
    if (!hangs) Kill(1);
    comes.Wait();
    Do(0, "activate");
    Verify(0);
    EXPECT_EQ(engines_[0]->Ask(absl::StrCat("weights ", round)),
              "ok wrote weights");
    if (hangs) {
      kill(daemons_[1]->pid(), SIGCONT);
      MoveOnce(1);  // after what it was asked for
      Kill(1);
    }
    Verify(0);
    Start(1);
  }
  EXPECT_GT(Unfilled(0), 0);
}

}  // namespace
}  // namespace fineserve::integration
