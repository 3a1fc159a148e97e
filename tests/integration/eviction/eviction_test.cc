// Engines whose weights leave the GPU and come back (fsctl evict, activate).
// The stock engine is bound to the driver's symbols, so all its launches go
// through the symbols that the shim exports.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <string>

#include "kernels/driver/cuda_types.h"
#include "shim/fineserve_kv.h"
#include "tests/integration/eviction/eviction_site.h"
#include "tools/lab/stage/fleet_text.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

class EvictionTest : public EvictionSite {
 protected:
  // Starts an engine with a view, none of whose blocks is used yet.
  std::unique_ptr<Process> StartEvictableView(const std::string& name) {
    auto engine = LaunchPreloaded(
        {"view_engine", "--page", "33792", "--before", "4MiB"},
        {{"FINESERVE_EVICT", "auto"}, {"FINESERVE_ENGINE", name}});
    EXPECT_THAT(engine->ReadLine(), HasSubstr("before CUDA_SUCCESS"));
    EXPECT_THAT(engine->ReadLine(), HasSubstr("ready"));
    return engine;
  }
  // Waits for that.
  static bool IsAskedToLeave(Process& engine) {
    const std::string asked =
        "ok presence=" + std::to_string(FS_KV_ASKED_TO_LEAVE);
    return Eventually([&] { return engine.Ask("presence") == asked; });
  }
  static ptrdiff_t OpenFilesOf(pid_t pid) {
    return std::distance(std::filesystem::directory_iterator(
                             "/proc/" + std::to_string(pid) + "/fd"),
                         {});
  }
  static std::string StoreFileOf(pid_t pid) {
    for (const auto& fd : std::filesystem::directory_iterator(
             "/proc/" + std::to_string(pid) + "/fd")) {
      const std::string target =
          std::filesystem::read_symlink(fd.path()).string();
      if (target.find("fineserve-store") != std::string::npos) {
        return fd.path();
      }
    }
    return "";
  }
};

TEST_F(EvictionTest, EachReturnBringsEveryByteBackWhileAnotherEngineServes) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const auto other = StartEngine("4MiB", {"--seed", "22"});
  Move("evict", "chat");  // the daemon's first kernel takes memory of the GPU
  Move("activate", "chat");
  const uint64_t before = FreeBytes(*other);
  for (int round = 0; round < 10; ++round) {
    ASSERT_THAT(Move("evict", "chat"), HasSubstr("chat: 44 MiB left the GPU"));
    EXPECT_EQ(FreeBytes(*other), before + kResidentBytes);
    ASSERT_THAT(other->Ask("write " + std::to_string(round)), HasSubstr("ok"));
    ASSERT_THAT(Move("activate", "chat"),
                HasSubstr("chat: 44 MiB is on the GPU"));
    ASSERT_THAT(chat->Ask("verify"), HasSubstr("ok verified")) << round;
    ASSERT_THAT(other->Ask("verify"), HasSubstr("ok verified"));
  }
  EXPECT_EQ(FreeBytes(*other), before);
}

TEST_F(EvictionTest, EnginesShowWhatCouldLeave) {
  const auto daemon = StartDaemon();
  const auto engine = StartEvictable("chat");
  const auto says = [&](uint64_t bytes) {
    return Eventually([&] {
      return JsonAt(Fsctl({"engines", "--json"}).out,
                    "/engines/0/memory/resident_bytes") ==
             std::to_string(bytes);
    });
  };
  EXPECT_TRUE(says(kResidentBytes));
  engine->Ask("workspace " + std::to_string(12 * kMiB));
  EXPECT_TRUE(says(kResidentBytes + 8 * kMiB));
  engine->Ask("workspace " + std::to_string(3 * kMiB));
  EXPECT_TRUE(says(kResidentBytes));
}

// Weights that did not change are copied once, and contents that several
// engines share are held once. The copies stay for the next eviction, and are
// freed with the last engine that has them.
TEST_F(EvictionTest, EqualContentsAreCopiedOnceAndHeldOnce) {
  const auto daemon = StartDaemon();
  auto chat = StartEvictable("chat");
  auto twin = StartEvictable("twin");
  Move("evict", "chat");
  const uint64_t one = StoreBytesIn(daemon->pid());
  EXPECT_EQ(one, kResidentBytes);
  for (int round = 0; round < 3; ++round) {
    Move("evict", "twin");
    Move("activate", "chat");
    Move("activate", "twin");
    Move("evict", "chat");
    EXPECT_EQ(StoreBytesIn(daemon->pid()), one) << round;
  }
  EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(twin->Ask("verify"), HasSubstr("ok verified"));
  chat.reset();
  EXPECT_EQ(StoreBytesIn(daemon->pid()), one) << "the twin has them";
  twin.reset();
  EXPECT_TRUE(Eventually([&] { return StoreBytesIn(daemon->pid()) == 0; }));
}

// It would compute with it.
TEST_F(EvictionTest, EngineWhoseCopyHasChangedEndsWithOneLine) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const auto other = StartEvictable("other", "48MiB");
  Move("evict", "chat");
  const int file = open(StoreFileOf(chat->pid()).c_str(), O_RDWR);
  ASSERT_EQ(pwrite(file, "!", 1, 5 * kMiB + 7), 1);
  close(file);
  EXPECT_THAT(Move("activate", "chat", 1), HasSubstr("chat: "));
  chat->Wait();
  EXPECT_THAT(chat->Stderr(), HasSubstr("its copy in the store has changed"));
  EXPECT_TRUE(Eventually([&] { return StoreBytesIn(daemon->pid()) == 0; }));
  Move("evict", "other");
  Move("activate", "other");
  EXPECT_THAT(other->Ask("verify"), HasSubstr("ok verified"));
}

// If the gate let the copy through, it would read memory that is not there.
TEST_F(EvictionTest, CopyBehindTheClosedGateBringsTheMemoryBack) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  for (int round = 0; round < 5; ++round) {
    Move("evict", "chat");
    EXPECT_THAT(Move("evict", "chat"), HasSubstr("was there already"));
    EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
    EXPECT_THAT(Move("activate", "chat"), HasSubstr("was there already"));
  }
}

TEST_F(EvictionTest,
       AnotherEngineUsesTheMemoryAndWhoNeedsItComesBackWhenThereIsRoom) {
  Set("EMUCUDA_MEMORY", "352MiB");  // of these 64 are the pool's
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat", "128MiB");
  Move("evict", "chat");
  auto code = StartEngine("4MiB", {"--weights", "160MiB"});
  EXPECT_THAT(Move("activate", "chat", 1),
              HasSubstr("chat: the GPU has no room for its"));
  EXPECT_THAT(code->Ask("verify"), HasSubstr("ok verified"));
  chat->Tell("verify");
  EXPECT_THAT(code->Ask("verify"), HasSubstr("ok verified"));
  code.reset();
  EXPECT_THAT(chat->ReadLine(), HasSubstr("ok verified"));
}

TEST_F(EvictionTest, ActivationWaitsForRoomThatOthersAreAboutToLeave) {
  Set("EMUCUDA_MEMORY", "352MiB");  // of these 64 are the pool's
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat", "128MiB");
  Move("evict", "chat");
  auto code = StartEngine("4MiB", {"--weights", "160MiB"});
  Process comes({Program("fsctl"), "activate", "chat"}, environment());
  EXPECT_TRUE(Eventually([&] {
    return daemon->Stderr().find("has no room for its") != std::string::npos;
  }));
  code.reset();
  EXPECT_EQ(comes.Wait(), 0);
  EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
}

TEST_F(EvictionTest, NextDaemonTakesTheCopyOverAndActivates) {
  auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  Move("evict", "chat");
  daemon->EndBy(SIGKILL);
  daemon = StartDaemon();
  EXPECT_TRUE(Eventually(
      [&] { return StoreBytesIn(daemon->pid()) == kResidentBytes; }));
  EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
}

TEST_F(EvictionTest, EngineThatIsNeededWhileThereIsNoDaemonComesBackByItself) {
  auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  Move("evict", "chat");
  daemon->EndBy(SIGKILL);
  EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
  daemon = StartDaemon();
  EXPECT_TRUE(Eventually([&] {
    return Fsctl({"activate", "chat"}).out.find("was there already") !=
           std::string::npos;
  }));
}

TEST_F(EvictionTest, CopyOfAnEngineThatWasKilledIsGone) {
  const auto daemon = StartDaemon();
  auto chat = StartEvictable("chat");
  Move("evict", "chat");
  EXPECT_EQ(StoreBytesIn(daemon->pid()), kResidentBytes);
  EXPECT_EQ(chat->EndBy(SIGKILL), -SIGKILL);
  EXPECT_TRUE(Eventually([&] { return StoreBytesIn(daemon->pid()) == 0; }));
  EXPECT_TRUE(EventuallyFree(kSlabs));
}

// If an engine begins steps, the shim runs its block pool. It still knows this
// when the view is back and no step has begun since.
TEST_F(EvictionTest, EngineOfStepsLeavesAgainBeforeItsNextStep) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictableView("chat");
  ASSERT_THAT(chat->Ask("step"), HasSubstr("ok step"));
  for (int round = 0; round < 3; ++round) {
    Move("evict", "chat");
    Move("activate", "chat");
  }
  EXPECT_THAT(chat->Ask("step"), HasSubstr("ok step"));
}

// It would wait for its view without end.
TEST_F(EvictionTest, EngineWhosePoolHasAnotherSizeEndsWithOneLine) {
  auto daemon = StartDaemon();
  const auto chat = StartEvictableView("chat");
  ASSERT_THAT(chat->Ask("step"), HasSubstr("ok step"));
  Move("evict", "chat");
  daemon->EndBy(SIGKILL);
  daemon = StartDaemon({"--pool", "32MiB"});
  EXPECT_TRUE(
      Eventually([&] { return StoreBytesIn(daemon->pid()) == 4 * kMiB; }));
  EXPECT_THAT(Move("activate", "chat", 1), HasSubstr("restart the engine"));
  EXPECT_EQ(chat->Wait(), EXIT_FAILURE);
  EXPECT_THAT(chat->Stderr(), HasSubstr("pool has another size"));
}

TEST_F(EvictionTest, EngineThatBeginsItsFirstStepWhenItIsAskedLeaves) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictableView("chat");
  const auto fsctl = LaunchProgram({"fsctl", "evict", "chat"});
  ASSERT_TRUE(IsAskedToLeave(*chat));
  ASSERT_THAT(chat->Ask("step"), HasSubstr("ok step"));
  EXPECT_EQ(fsctl->Wait(), 0) << fsctl->Stderr();
}

// Like a waiting thread that was still busy waking the engine for another
// reason.
TEST_F(EvictionTest, EngineThatWaitsOnlyAfterItWasAskedIsWokenAtOnce) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictableView("chat");
  ASSERT_TRUE(Eventually([&] { return chat->Ask("wait 0") == "ok woken=0"; }));
  const auto fsctl = LaunchProgram({"fsctl", "evict", "chat"});
  ASSERT_TRUE(IsAskedToLeave(*chat));
  EXPECT_EQ(chat->Ask("wait 0"), "ok woken=1");
  ASSERT_THAT(chat->Ask("step"), HasSubstr("ok step"));
  EXPECT_EQ(fsctl->Wait(), 0) << fsctl->Stderr();
}

TEST_F(EvictionTest, EngineLeavesAndReturnsWhenItAsks) {
  auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const auto other = StartEngine("4MiB", {"--seed", "22"});
  const auto evicted = [&] {
    return JsonAt(Fsctl({"explain", std::to_string(chat->pid()), "--json"}).out,
                  "/evicted_bytes");
  };
  // The answer comes from the daemon that starts after the question.
  const auto ask_next_daemon = [&](const std::string& line) {
    daemon->EndBy(SIGKILL);
    chat->Tell(line);
    daemon = StartDaemon();
    return chat->ReadLine();
  };
  ptrdiff_t files = 0;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ask_next_daemon("return 60000"), "ok") << "it is here";
    EXPECT_EQ(ask_next_daemon("leave 60000"), "ok");
    EXPECT_EQ(chat->Ask("leave 60000"), "ok");
    EXPECT_EQ(evicted(), std::to_string(kResidentBytes));
    EXPECT_EQ(ask_next_daemon("return 60000"), "ok");
    EXPECT_EQ(evicted(), "0");
    EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
    if (round == 0) files = OpenFilesOf(chat->pid());
    EXPECT_EQ(OpenFilesOf(chat->pid()), files);
  }
  EXPECT_THAT(chat->Ask("leave -1"), HasSubstr("negative"));
  EXPECT_THAT(other->Ask("leave 60000"), HasSubstr("FINESERVE_EVICT=auto"));
  ASSERT_THAT(chat->Ask("stall"), HasSubstr("ok"));
  EXPECT_THAT(chat->Ask("leave 60000"),
              HasSubstr("its work on the GPU did not end within"));
  ASSERT_THAT(chat->Ask("resume"), HasSubstr("ok"));
  daemon->EndBy(SIGKILL);
  EXPECT_THAT(chat->Ask("leave 60000"), HasSubstr("there is no daemon"));
  EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
}

TEST_F(EvictionTest, EngineWithWorkThatDoesNotEndStaysAndGoesOn) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  ASSERT_THAT(chat->Ask("stall"), HasSubstr("ok"));
  EXPECT_THAT(Move("evict", "chat", 1),
              HasSubstr("its work on the GPU did not end within"));
  ASSERT_THAT(chat->Ask("resume"), HasSubstr("ok"));
  EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_TRUE(Eventually([&] { return Fsctl({"evict", "chat"}).code == 0; }));
}

TEST_F(EvictionTest, EngineThatCapturesAGraphStaysAndItsCaptureIsWhole) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  ASSERT_THAT(chat->Ask("capture begin"), HasSubstr("ok"));
  EXPECT_THAT(Move("evict", "chat", 1), HasSubstr("it captures a CUDA graph"));
  ASSERT_THAT(chat->Ask("capture end"), HasSubstr("ok"));
  Move("evict", "chat");
  EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
}

TEST_F(EvictionTest, ProgramThatCallsTheDriverAtItsEndWhileItIsAwayEnds) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  Move("evict", "chat");
  EXPECT_EQ(chat->Ask("last"),
            "last call: " + std::to_string(driver::CUDA_ERROR_DEINITIALIZED));
  EXPECT_EQ(chat->Wait(), 0);
}

TEST_F(EvictionTest, EngineThatWasNotStartedForItIsRefused) {
  const auto daemon = StartDaemon();
  const auto chat = StartEngine("4MiB", {}, {{"FINESERVE_ENGINE", "chat"}});
  EXPECT_THAT(Move("evict", "chat", 1), HasSubstr("FINESERVE_EVICT=auto"));
  EXPECT_THAT(Move("evict", "chatt", 2), HasSubstr("did you mean chat?"));
  EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
}

// No engine is evicted in vain, so the daemon must learn how much memory an
// eviction would free. This engine allocated nearly all of its memory after it
// had connected.
TEST_F(EvictionTest,
       EngineThatHasGrownSinceItCameLeavesForOneThatNeedsAllOfIt) {
  constexpr uint64_t kContext = 16 * kMiB;
  Set("EMUCUDA_MEMORY", "512MiB");
  Set("EMUCUDA_CONTEXT_MEMORY", std::to_string(kContext));
  stage::FleetText fleet;
  for (const char* name : {"chat", "code"}) {
    fleet.Model(name, {{"slo_ttft_ms", 1000}});
    fleet.Engine(name, name, /*port=*/1, {{"evict", "auto"}});
  }
  fleet.WriteTo(folder() + "/fleet.toml");
  const auto daemon =
      StartDaemon({"--pool", "auto", "--reserve", "400MiB", "--headroom",
                   "16MiB", "--fleet", folder() + "/fleet.toml"});
  const auto chat = StartEvictableView("chat");
  ASSERT_THAT(chat->Ask("step"), HasSubstr("ok step"));
  Move("evict", "chat");  // by now it has come
  Move("activate", "chat");
  ASSERT_EQ(chat->Ask("more " + std::to_string(128 * kMiB)),
            "more CUDA_SUCCESS");
  const auto table = Table();
  const uint64_t pool =
      (table.slabs.size() - SlabsIn(abi::SlabState::kAbsent)) *
      table.slab_bytes();
  const uint64_t lacking = FreeBytes(*chat) + pool - kContext + 32 * kMiB;
  std::unique_ptr<Process> code;
  EXPECT_TRUE(Eventually([&] {
    code = LaunchPreloaded(
        {"view_engine", "--page", "33792", "--before", std::to_string(lacking)},
        {{"FINESERVE_ENGINE", "code"}});
    return code->ReadLine() == "before CUDA_SUCCESS";
  })) << daemon->Stderr();
  EXPECT_THAT(Fsctl({"engines"}).out, HasSubstr(" evicted "));
}

}  // namespace
}  // namespace fineserve::integration
