// Two equal replicas on two GPUs, one of which drops its parameters and reads
// those of the other replica (fsctl drop, restore).

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/eviction/sharing_site.h"
#include "tools/lab/process/daemon_log.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// 40 MiB of weights are 1 MiB of small tensors and four tensors of 9.75 MiB,
// each of which takes 10 MiB in granules of 2 MiB.
constexpr uint64_t kDropped = 4 * 10 * kMiB;

class DropTest : public SharingSite {
 protected:
  void SetUp() override {
    if (!OnEmulatedGpu()) GTEST_SKIP() << "needs two GPUs";
    Set("EMUCUDA_DEVICES", "2");
    Set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  }
  void StartAll() {
    for (const int gpu : {0, 1}) {
      StartDaemonOf(gpu);
      StartReplica(gpu, {"--freeze"});
    }
  }
  void StartDaemonOf(int gpu, std::vector<std::string> flags = {}) {
    flags.insert(flags.end(), {"--gpu", "emulated:" + std::to_string(gpu)});
    daemons_[gpu] = StartDaemon(flags);
    gpus_[gpu] = process::GpuInLog(daemons_[gpu]->Stderr());
  }
  void StartReplica(int gpu, std::vector<std::string> flags,
                    const std::string& weights = "40MiB") {
    flags.insert(flags.end(),
                 {"--ctx-device", std::to_string(gpu), "--weights", weights});
    engines_[gpu] = StartEngine(
        "4MiB", flags,
        {{"FINESERVE_EVICT", "auto"}, {"FINESERVE_ENGINE", "chat"}});
  }
  // At the daemon of that GPU.
  Finished Order(int gpu, const std::string& command,
                 const std::string& most = "") {
    std::vector<std::string> words = {"--gpu", gpus_[gpu], command, "chat"};
    if (!most.empty()) words.insert(words.end(), {"--most", most});
    return Fsctl(words);
  }
  std::string Do(int gpu, const std::string& command,
                 const std::string& most = "") {
    const Finished done = Order(gpu, command, most);
    EXPECT_EQ(done.code, 0) << done.out << done.err;
    return done.out;
  }
  std::string Refused(int gpu, const std::string& command) {
    const Finished done = Order(gpu, command);
    EXPECT_EQ(done.code, 1) << done.out << done.err;
    return done.err;
  }
  // Repeats the command until it succeeds, because a daemon that has just
  // started may not know its engine yet.
  void DoOnceItCan(int gpu, const std::string& command) {
    EXPECT_TRUE(Eventually([&] { return Order(gpu, command).code == 0; }))
        << Order(gpu, command).err;
  }
  void Verify(int gpu) {
    EXPECT_THAT(engines_[gpu]->Ask("verify"), HasSubstr("ok verified")) << gpu;
  }
  void VerifyBoth() {
    Verify(0);
    Verify(1);
  }
  std::string ExplainOf(int gpu) { return Explain(*engines_[gpu]); }
  bool HasDropped(int gpu) {
    return ExplainOf(gpu).find("dropped: ") != std::string::npos;
  }
  // Each engine drops half of its parameters, and reads that half from the
  // other engine.
  void DropHalves() {
    EXPECT_THAT(Do(0, "drop", "20MiB"), HasSubstr("chat: dropped 20 MiB"));
    EXPECT_THAT(Do(1, "drop", "15MiB"), HasSubstr("chat: dropped 20 MiB"));
  }
  uint64_t Free(int gpu) { return FreeBytes(*engines_[gpu]); }
  // Expects that both engines have their own parameters again, that fsctl says
  // so, and that no memory is left over.
  void ExpectOwnCopies(uint64_t free_0, uint64_t free_1) {
    for (const int gpu : {0, 1}) {
      EXPECT_TRUE(Eventually([&] { return !HasDropped(gpu); }));
      EXPECT_TRUE(Eventually([&] {
        return ExplainOf(gpu).find("read its parameters") == std::string::npos;
      })) << ExplainOf(gpu);
    }
    VerifyBoth();
    EXPECT_TRUE(Eventually([&] { return IsAbout(Free(0), free_0); }));
    EXPECT_TRUE(Eventually([&] { return IsAbout(Free(1), free_1); }));
  }
  // Tolerates a difference, because an engine that still serves in a dead
  // daemon's pool keeps its slabs beside the next daemon's pool.
  static bool IsAbout(uint64_t free, uint64_t wanted) {
    return free + kDropped / 2 > wanted && free < wanted + kDropped / 2;
  }
  // Makes each daemon start its first kernel, because that takes memory of its
  // GPU.
  void WarmUp() {
    for (const int gpu : {0, 1}) {
      Do(gpu, "evict");
      Do(gpu, "activate");
    }
  }

  std::unique_ptr<Process> daemons_[2], engines_[2];
  std::string gpus_[2];
};

TEST_F(DropTest, DroppedBytesAreFreeAndContentsStay) {
  StartAll();
  WarmUp();
  const uint64_t free_0 = Free(0), free_1 = Free(1);
  for (int round = 0; round < 5; ++round) {
    EXPECT_THAT(Do(0, "drop"), HasSubstr("chat: dropped 40 MiB"));
    EXPECT_EQ(Free(0), free_0 + kDropped);
    EXPECT_EQ(Free(1), free_1);
    VerifyBoth();
    EXPECT_TRUE(HasDropped(0));
    EXPECT_THAT(ExplainOf(1), HasSubstr("read its parameters"));
    EXPECT_THAT(Do(0, "drop"), HasSubstr("has dropped already"));
    Do(0, "restore");
    ExpectOwnCopies(free_0, free_1);
  }
  EXPECT_THAT(Refused(0, "restore"), HasSubstr("has dropped no parameters"));
}

// Each read of all weights happens before, across or after a change of
// mappings.
TEST_F(DropTest, ReadsGoOnDuringDropsAndRestores) {
  StartAll();
  for (int round = 0; round < 10; ++round) {
    for (const char* order : {"drop", "restore"}) {
      engines_[0]->Tell("verify");
      engines_[1]->Tell("verify");
      Do(0, order);
      EXPECT_THAT(engines_[0]->ReadLine(), HasSubstr("ok verified")) << round;
      EXPECT_THAT(engines_[1]->ReadLine(), HasSubstr("ok verified")) << round;
    }
  }
}

// The work may read the engine's own parameters until it ends.
TEST_F(DropTest, NothingIsDroppedUnderWorkThatDoesNotEnd) {
  StartAll();
  ASSERT_THAT(engines_[0]->Ask("stall"), HasSubstr("ok"));
  EXPECT_THAT(Refused(0, "drop"), HasSubstr("did not end within"));
  EXPECT_FALSE(HasDropped(0));
  ASSERT_THAT(engines_[0]->Ask("resume"), HasSubstr("ok"));
  VerifyBoth();
  DoOnceItCan(0, "drop");
  VerifyBoth();
}

// fsctl chooses which of the two replicas drops.
TEST_F(DropTest, WithoutAGpuOneOfTheTwoDrops) {
  StartAll();
  EXPECT_THAT(Fsctl({"drop", "chat"}).out, HasSubstr("chat: dropped 40 MiB"));
  EXPECT_NE(HasDropped(0), HasDropped(1));
  VerifyBoth();
  EXPECT_EQ(Fsctl({"restore", "chat"}).code, 0);
  VerifyBoth();
}

TEST_F(DropTest, SlipOfAnEnginesNameIsCorrected) {
  StartAll();
  for (const char* words :
       {"drop chut", "drop chat --from chut", "restore chut"}) {
    const Finished done = Fsctl(Words(words));
    EXPECT_EQ(done.code, 2) << words;
    EXPECT_THAT(done.err, HasSubstr("no engine 'chut' lives in the pool; did "
                                    "you mean chat?"));
  }
}

// Only its lender may write a parameter, and only once no other engine reads
// it.
TEST_F(DropTest, WriteToWhatIsReadFailsAndHarmsNoOther) {
  StartAll();
  Do(0, "drop");
  const std::string at = After(engines_[0]->Ask("weight 0"), "weight=");
  EXPECT_THAT(engines_[0]->Ask("poke " + at + " 7"), StartsWith("error"));
  Verify(1);
}

TEST_F(DropTest, NoParameterIsDroppedOnBothSides) {
  StartAll();
  Do(0, "drop");
  EXPECT_THAT(Refused(1, "drop"), HasSubstr("it lends all of its parameters"));
  VerifyBoth();
  Do(0, "restore");
  Do(1, "drop");
  VerifyBoth();
}

TEST_F(DropTest, EachDropsHalfAndReadsTheOthers) {
  StartAll();
  WarmUp();
  const uint64_t free_0 = Free(0), free_1 = Free(1);
  for (int round = 0; round < 3; ++round) {
    DropHalves();
    EXPECT_EQ(Free(0), free_0 + kDropped / 2);
    EXPECT_EQ(Free(1), free_1 + kDropped / 2);
    VerifyBoth();
    EXPECT_THAT(Do(round % 2, "drop"), HasSubstr("has dropped already"));
    Do(0, "restore");
    EXPECT_TRUE(HasDropped(1));
    VerifyBoth();
    EXPECT_THAT(Do(1, "drop"), HasSubstr("chat: dropped 40 MiB"));
    EXPECT_EQ(Free(1), free_1 + kDropped);
    VerifyBoth();
    Do(1, "restore");
    ExpectOwnCopies(free_0, free_1);
  }
  const Finished wrong = Order(0, "drop", "much");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--most much: not a size, such as 8GiB"));
}

// Neither eviction waits for the other, because each engine first gets its own
// parameters back.
TEST_F(DropTest, TwoThatReadEachOthersLeaveAtOnce) {
  StartAll();
  for (int round = 0; round < 3; ++round) {
    DropHalves();
    std::vector<std::unique_ptr<Process>> orders;
    for (const std::string& gpu : gpus_) {
      orders.push_back(std::make_unique<Process>(
          std::vector<std::string>{Program("fsctl"), "--gpu", gpu, "evict",
                                   "chat"},
          environment()));
    }
    for (const auto& order : orders) EXPECT_EQ(order->Wait(), 0);
    for (const int gpu : {0, 1}) {
      EXPECT_THAT(ExplainOf(gpu), Not(HasSubstr("read its parameters")));
    }
    VerifyBoth();
  }
}

TEST_F(DropTest, OneOfTwoThatReadEachOthersWritesOnceBothHaveTheirOwn) {
  StartAll();
  DropHalves();
  EXPECT_EQ(engines_[1]->Ask("thaw 10000"), "ok");
  EXPECT_FALSE(HasDropped(0));
  EXPECT_FALSE(HasDropped(1));
  EXPECT_EQ(engines_[1]->Ask("weights 2"), "ok wrote weights");
  VerifyBoth();
}

TEST_F(DropTest, SaysWhyNothingIsDropped) {
  StartDaemonOf(0);
  StartReplica(0, {"--freeze"});
  EXPECT_THAT(Refused(0, "drop"), HasSubstr("is on another GPU"));
  StartDaemonOf(1);
  StartReplica(1, {});
  EXPECT_THAT(Refused(0, "drop"), HasSubstr("has not said which memory"));
  EXPECT_THAT(Refused(1, "drop"), HasSubstr("has not said which memory"));
  EXPECT_EQ(engines_[1]->Ask("weights 1"), "ok wrote weights");
  EXPECT_EQ(engines_[1]->Ask("freeze"), "ok");
  EXPECT_THAT(Refused(0, "drop"), HasSubstr("are not those of the other"));
  engines_[1].reset();
  StartReplica(1, {"--freeze"}, "48MiB");
  EXPECT_THAT(Refused(0, "drop"), HasSubstr("are not those of pid"));
  Set("EMUCUDA_PEERS", "off");
  engines_[0].reset();
  StartReplica(0, {"--freeze"}, "48MiB");
  EXPECT_THAT(Refused(0, "drop"), HasSubstr("no peer access"));
  VerifyBoth();
  EXPECT_THAT(ExplainOf(0), Not(HasSubstr("dropped")));
  EXPECT_TRUE(Eventually([&] {
    return ExplainOf(1).find("read its parameters") == std::string::npos;
  }));
}

TEST_F(DropTest, LenderThatEndsHasTheReaderRestoreFromItsMemory) {
  StartAll();
  WarmUp();
  const uint64_t free_0 = Free(0);
  for (int round = 0; round < 3; ++round) {
    Do(0, "drop");
    engines_[1]->EndBy(SIGKILL);
    Verify(0);
    EXPECT_TRUE(Eventually([&] { return !HasDropped(0); }));
    EXPECT_EQ(Free(0), free_0);
    Verify(0);
    StartReplica(1, {"--freeze"});
  }
  DoOnceItCan(1, "drop");
  VerifyBoth();
}

TEST_F(DropTest, ReaderThatEndsGivesTheLenderItsMemoryBack) {
  StartAll();
  Do(0, "drop");
  engines_[0]->EndBy(SIGKILL);
  EXPECT_TRUE(Eventually([&] {
    return ExplainOf(1).find("read its parameters") == std::string::npos;
  }));
  EXPECT_THAT(Do(1, "evict"), HasSubstr("chat: 44 MiB left the GPU; the"));
  Verify(1);
}

TEST_F(DropTest, LenderThatLeavesHasTheReaderRestoreFirst) {
  StartAll();
  Do(0, "drop");
  EXPECT_THAT(Do(1, "evict"), HasSubstr("chat: 44 MiB left the GPU; the"));
  EXPECT_FALSE(HasDropped(0));
  VerifyBoth();
}

TEST_F(DropTest, ReaderThatLeavesRestoresFirst) {
  StartAll();
  Do(0, "drop");
  EXPECT_THAT(Do(0, "evict"), HasSubstr("chat: 44 MiB left the GPU"));
  EXPECT_THAT(Do(1, "evict"), HasSubstr("chat: 44 MiB left the GPU; the"));
  VerifyBoth();
}

TEST_F(DropTest, ParametersAreWrittenOnceBothHaveTheirOwn) {
  StartAll();
  Do(0, "drop");
  EXPECT_EQ(engines_[1]->Ask("thaw 10000"), "ok");
  EXPECT_FALSE(HasDropped(0));
  EXPECT_EQ(engines_[1]->Ask("weights 2"), "ok wrote weights");
  VerifyBoth();
  EXPECT_EQ(engines_[1]->Ask("weights 0"), "ok wrote weights");
  EXPECT_EQ(engines_[1]->Ask("freeze"), "ok");
  Do(0, "drop");
  EXPECT_EQ(engines_[0]->Ask("thaw 10000"), "ok");
  EXPECT_EQ(engines_[0]->Ask("weights 3"), "ok wrote weights");
  VerifyBoth();
}

// A reader that does not answer may still read.
TEST_F(DropTest, ParametersAreNotWrittenWhileAStoppedProcessReadsThem) {
  StartAll();
  Do(0, "drop");
  ASSERT_TRUE(process::SignalOne(engines_[0]->pid(), SIGSTOP));
  EXPECT_THAT(engines_[1]->Ask("thaw 100"), HasSubstr("reads the parameters"));
  EXPECT_THAT(Do(1, "evict"), HasSubstr("40 MiB stays"));
  ASSERT_TRUE(process::SignalOne(engines_[0]->pid(), SIGCONT));
  VerifyBoth();
  EXPECT_TRUE(Eventually([&] { return !HasDropped(0); }));
  VerifyBoth();
}

TEST_F(DropTest, ReaderWithoutRoomReadsOn) {
  Set("EMUCUDA_MEMORY", "352MiB");  // of these 64 are the pool's
  StartAll();
  Do(0, "drop");
  const std::string most = std::to_string((Free(0) - 48 * kMiB) / kMiB) + "MiB";
  auto hog = StartEngine("4MiB", {"--ctx-device", "0", "--weights", most});
  const uint64_t left = FreeBytes(*hog);
  ASSERT_LT(left, kDropped);
  EXPECT_THAT(Refused(0, "restore"), HasSubstr("no room"));
  EXPECT_EQ(FreeBytes(*hog), left);
  VerifyBoth();
  engines_[1]->EndBy(SIGKILL);
  Verify(0);
  hog.reset();
  EXPECT_TRUE(Eventually([&] { return !HasDropped(0); }));
  Verify(0);
}

// The pool takes what was dropped, for another engine's KV on the reader's GPU.
TEST_F(DropTest, PoolGrowsByWhatWasDropped) {
  Set("EMUCUDA_MEMORY", "768MiB");
  StartDaemonOf(0, {"--pool", "auto", "--reserve", "384MiB", "--headroom",
                    "32MiB", "--slab", "8MiB"});
  StartDaemonOf(1);
  for (const int gpu : {0, 1}) StartReplica(gpu, {"--freeze"}, "160MiB");
  const auto fits = [&](uint64_t mib) {
    const auto engine = LaunchEngine(
        std::to_string(mib / 2) + "MiB",
        {"--ctx-device", "0", "--weights", "2MiB", "--workspace", "64KiB"});
    for (std::string line; !(line = engine->ReadLine()).empty();) {
      if (line.find("ready") != std::string::npos) return true;
      if (line.find("error") != std::string::npos) return false;
    }
    return false;
  };
  uint64_t most = 256;
  while (fits(most + 16)) most += 16;
  Do(0, "drop");
  // The pool grows step by step.
  EXPECT_TRUE(Eventually([&] { return fits(most + 152); }))
      << most << daemons_[0]->Stderr();
  VerifyBoth();
  // Retries, because the slabs of the last engine are zeroed before they can
  // leave the pool.
  DoOnceItCan(0, "restore");
  VerifyBoth();
}

TEST_F(DropTest, DaemonsThatDieAfterADropChangeNothing) {
  StartAll();
  for (const int dies : {0, 1}) {
    DoOnceItCan(0, "drop");
    daemons_[dies]->EndBy(SIGKILL);
    VerifyBoth();
    StartDaemonOf(dies);
    VerifyBoth();
    EXPECT_TRUE(HasDropped(0));
    DoOnceItCan(0, "restore");
    VerifyBoth();
  }
}

// Kills engines and daemons at different points of a drop or a restore, each of
// which takes some milliseconds.
TEST_F(DropTest, DeathsInTheMiddleLoseNothing) {
  StartAll();
  WarmUp();
  const uint64_t free_0 = Free(0), free_1 = Free(1);
  for (uint32_t round = 0; round < 24; ++round) {
    const bool restores = round / 4 % 2 == 1;
    if (restores) DoOnceItCan(0, "drop");
    // In every third round of drops, the other engine first drops half of its
    // parameters, and reads that half from this engine.
    if (!restores && round % 3 == 0) {
      EXPECT_TRUE(
          Eventually([&] { return Order(1, "drop", "20MiB").code == 0; }));
    }
    Process order({Program("fsctl"), "--gpu", gpus_[0],
                   restores ? "restore" : "drop", "chat"},
                  environment());
    usleep(3'000 * (round / 2));
    const int gpu = static_cast<int>(round % 2);
    if (round / 2 % 2 == 0) {
      engines_[gpu]->EndBy(SIGKILL);
      order.Wait();
      Verify(1 - gpu);
      StartReplica(gpu, {"--freeze"});
    } else {
      daemons_[gpu]->EndBy(SIGKILL);
      order.Wait();
      VerifyBoth();
      StartDaemonOf(gpu);
    }
    VerifyBoth();
    for (const int one : {0, 1}) {
      EXPECT_TRUE(Eventually([&] {
        return !HasDropped(one) || Order(one, "restore").code == 0;
      })) << round;
    }
    ExpectOwnCopies(free_0, free_1);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace fineserve::integration
