// Repeats kill -9 at any moment of an engine's life, while it and others serve:
// no slab is lost for good, no engine sees another's bytes, and none ends
// because another one did. Each run of the tests has a few kills;
// FINESERVE_KILLS and FINESERVE_DAEMON_KILLS set other numbers.

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/site.h"
#include "tools/lab/process/from_environment.h"
#include "tools/lab/process/random_seed.h"

namespace fineserve::integration {
namespace {

using abi::SlabState;
using process::FromEnvironment;

class ViewDeathTest : public Site {
 protected:
  static constexpr uint32_t kPoolSlabs = 24;
  static constexpr size_t kEngines = 3;

  // An engine and, sometimes, a second member of it with its own slabs.
  struct Seat {
    std::unique_ptr<Process> engine;
    std::unique_ptr<Process> member;
  };

  ViewDeathTest() {
    Set("EMUCUDA_MEMORY", "4GiB");
    StartPool();
    for (Seat& seat : seats_) Fill(&seat);
  }

  void StartPool() {
    daemon_ =
        StartDaemon({"--pool", "96MiB", "--slab", "4MiB", "--planes", "2"});
  }

  // Starts a new engine with a random format, mode, children and lingering
  // work.
  void Fill(Seat* seat) {
    constexpr const char* kFormats[] = {
        "--page 33792", "--page 65536 --planes 2",
        "--page 18432 --planes 2 --mode guarded"};
    ++started_;
    const std::string name = "engine-" + std::to_string(started_);
    std::string command = "view_engine --random 3600 --watermark 100 --seed " +
                          std::to_string(started_) + " --most " +
                          std::to_string(200 + random_() % 600) + " " +
                          kFormats[random_() % std::size(kFormats)];
    if (random_() % 4 == 0) command += " --child-outlives-ms 40";
    Process::Environment environment = {{"FINESERVE_ENGINE", name}};
    if (OnEmulatedGpu() && random_() % 4 == 0) {
      environment["EMUCUDA_LINGER_MS"] = std::to_string(random_() % 100);
      environment["EMUCUDA_STREAM_DELAY_US"] = "200";
    }
    seat->engine = LaunchPreloaded(Words(command), environment);
    seat->member.reset();
    if (random_() % 8 == 0) {
      seat->member = LaunchEngine("4MiB", {}, {{"FINESERVE_ENGINE", name}});
    }
  }

  // Kills the engine and its member in the middle of anything, including their
  // start.
  void Kill(Seat* seat) {
    usleep(random_() % 60'000);
    Process* first = seat->engine.get();
    Process* second = seat->member.get();
    if (random_() % 2 == 0) std::swap(first, second);
    for (Process* process : {first, second}) {
      if (process == nullptr) continue;
      process->EndBy(SIGKILL);
    }
  }

  void ExpectAllServe() {
    for (const Seat& seat : seats_) {
      ASSERT_TRUE(seat.engine->alive())
          << "ended by itself: " << seat.engine->ReadAll()
          << seat.engine->Stderr();
    }
  }

  // Kills the daemon. Engines outlive it with what they have. The new daemon
  // has a separate pool, for which the GPU has room.
  void KillDaemon() {
    // An engine that is still starting would rightly fail.
    for (const Seat& seat : seats_) {
      ASSERT_NE(seat.engine->ReadLineWith("ready"), "")
          << seat.engine->Stderr();
    }
    daemon_->EndBy(SIGKILL);
    usleep(50'000);
    ExpectAllServe();
    StartPool();
    for (Seat& seat : seats_) {
      Kill(&seat);
      Fill(&seat);
    }
  }

  const unsigned seed_ = static_cast<unsigned>(FromEnvironment(
      "FINESERVE_SEED", static_cast<int>(process::RandomSeed())));
  std::mt19937 random_{seed_};
  int started_ = 0;
  std::unique_ptr<Process> daemon_;
  std::vector<Seat> seats_{kEngines};
};

TEST_F(ViewDeathTest, NoSlabIsLostAndNoEngineEndsByAnothersDeath) {
  SCOPED_TRACE(testing::Message() << "FINESERVE_SEED=" << seed_);
  printf("FINESERVE_SEED=%u\n", seed_);
  const int kills = FromEnvironment("FINESERVE_KILLS", 20);
  const int daemon_kills = FromEnvironment("FINESERVE_DAEMON_KILLS", 2);
  int daemons = 0;
  for (int i = 0; i < kills; ++i) {
    Seat& seat = seats_[random_() % seats_.size()];
    Kill(&seat);
    ASSERT_NO_FATAL_FAILURE(Fill(&seat));
    ASSERT_NO_FATAL_FAILURE(ExpectAllServe());
    if ((i + 1) * daemon_kills / kills > daemons) {
      ++daemons;
      ASSERT_NO_FATAL_FAILURE(KillDaemon());
    }
    if (kills >= 1000 && (i + 1) % 500 == 0) {
      printf("%d kills, %d of the daemon, %d engines started\n", i + 1, daemons,
             started_);
    }
  }
  for (Seat& seat : seats_) Kill(&seat);
  EXPECT_TRUE(EventuallyFree(kPoolSlabs))
      << SlabsIn(SlabState::kFree) << " free, "
      << SlabsIn(SlabState::kQuarantined) << " quarantined\n"
      << daemon_->Stderr();
}

// One engine cannot get the slabs that it wants, and another engine dies
// holding them. The first gets "not now", and then the slabs (kvcached #262's
// recipe).
TEST_F(ViewDeathTest, ExhaustionWithAKillIsNotNowAndThenMore) {
  seats_.clear();
  ASSERT_TRUE(EventuallyFree(kPoolSlabs));
  const auto start = [&](const std::string& name) {
    auto engine = LaunchPreloaded(
        Words("view_engine --page 65536 --planes 2 --watermark 2000"),
        {{"FINESERVE_ENGINE", name}});
    EXPECT_EQ(engine->ReadLine().substr(0, 5), "ready") << engine->Stderr();
    return engine;
  };
  const auto greedy = start("greedy");
  const auto modest = start("modest");
  // Each engine takes all it can, until both have been refused.
  int refused = 0;
  EXPECT_TRUE(Eventually([&] {
    refused = 0;
    for (Process* engine : {greedy.get(), modest.get()}) {
      engine->Ask("idle 5");
      const std::string answer = engine->Ask("alloc 16");
      if (answer.rfind("error 5", 0) == 0) ++refused;
    }
    return refused == 2;
  }));
  EXPECT_EQ(modest->Ask("write").substr(0, 2), "ok");
  greedy->EndBy(SIGKILL);
  EXPECT_EQ(modest->Ask("verify").substr(0, 2), "ok");
  EXPECT_TRUE(Eventually([&] {
    modest->Ask("idle 5");
    return modest->Ask("alloc 16").substr(0, 2) == "ok";
  }));
  EXPECT_EQ(modest->Ask("nanscan").substr(0, 2), "ok");
  EXPECT_EQ(modest->Ask("verify").substr(0, 2), "ok");
}

}  // namespace
}  // namespace fineserve::integration
