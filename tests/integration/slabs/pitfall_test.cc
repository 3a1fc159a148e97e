// Errors of earlier interposers that only show with several processes, numbered
// as in shim/hooks/process_pitfall_test.cc.
#include <gmock/gmock.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

class Pitfall : public Site {
 protected:
  struct Memory {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
  };

  // Returns the result of cuMemGetInfo in the engine.
  static Memory MemoryIn(Process* engine) {
    const std::string said = engine->Ask("checkfree");
    Memory m;
    EXPECT_EQ(sscanf(said.c_str(), "ok free=%zu total=%zu", &m.free_bytes,
                     &m.total_bytes),
              2)
        << said;
    return m;
  }

  // Returns the inodes of FineServe's shared memory that a process has mapped
  // writable.
  static std::set<std::string> WritableShared(pid_t pid) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    std::set<std::string> inodes;
    for (std::string line; std::getline(maps, line);) {
      std::istringstream words(line);
      std::string range, mode, offset, device, inode, name;
      words >> range >> mode >> offset >> device >> inode >> name;
      if (name.rfind("/memfd:fineserve", 0) == 0 && mode[1] == 'w') {
        inodes.insert(inode);
      }
    }
    return inodes;
  }
};

// vLLM measures free memory before and after its profiling run, and gives up if
// it has grown. So free memory must not grow, whatever vLLM and its neighbours
// do with KV in between.
TEST_F(Pitfall, Number12FreeNeverGrowsWhileSomebodyProfiles) {
  const auto daemon = StartDaemon();
  const auto profiling = StartEngine("8MiB");
  const auto neighbour = StartEngine("12MiB", {"--seed", "5"});
  Memory before = MemoryIn(profiling.get());
  const auto check = [&](const std::string& after) {
    const Memory now = MemoryIn(profiling.get());
    EXPECT_LE(now.free_bytes, before.free_bytes) << after;
    EXPECT_EQ(now.total_bytes, before.total_bytes) << after;
    before = now;
  };
  EXPECT_THAT(neighbour->Ask("free"), HasSubstr("ok freed"));
  check("a neighbour's free");
  EXPECT_THAT(neighbour->Ask("alloc"), HasSubstr("ok allocated"));
  check("a neighbour's allocation");
  EXPECT_THAT(profiling->Ask("free"), HasSubstr("ok freed"));
  check("its own free");
  EXPECT_THAT(profiling->Ask("alloc"), HasSubstr("ok allocated"));
  check("its own allocation");
}

// The engine asks a daemon that has stopped and then dies. It gets the driver's
// own memory instead of waiting forever.
TEST_F(Pitfall, Number13EngineWhoseDaemonDiesWhileItAsksGoesOn) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB");
  EXPECT_THAT(engine->Ask("free"), HasSubstr("ok freed"));
  daemon->Signal(SIGSTOP);
  std::thread killer([&] {
    usleep(300'000);
    daemon->Signal(SIGKILL);
  });
  EXPECT_THAT(engine->Ask("alloc"), HasSubstr("ok allocated"));
  killer.join();
  EXPECT_THAT(engine->Ask("write 9"), HasSubstr("ok"));
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
}

// An engine that stops in the middle of its own requests, and dies there, holds
// up neither the daemon nor another engine.
TEST_F(Pitfall, Number13OwnerThatStopsAndDiesDelaysNoOther) {
  // A process stops when it returns from the kernel, so it never stops inside
  // the lock of a real driver. Inside the emulated driver's lock it may.
  Set("EMUCUDA_LOCK", "process");
  const auto daemon = StartDaemon();
  const auto survivor = StartEngine("4MiB");
  for (int ms : {0, 5, 10, 20, 40}) {
    const auto victim = LaunchEngine("8MiB", {"--rounds", "1000"});
    usleep(static_cast<useconds_t>(ms) * 1000);
    victim->Signal(SIGSTOP);
    EXPECT_THAT(survivor->Ask("free"), HasSubstr("ok freed"));
    EXPECT_THAT(survivor->Ask("alloc"), HasSubstr("ok allocated"));
    victim->EndBy(SIGKILL);
    EXPECT_THAT(survivor->Ask("checkzero"), HasSubstr("ok zero"));
  }
  EXPECT_TRUE(EventuallyFree(kSlabs - 2));
}

// Memory with two writers would need a lock, which a dead owner would keep. So
// each shared memory has one writer.
TEST_F(Pitfall, Number13NothingSharedHasTwoWriters) {
  const auto daemon = StartDaemon();
  const auto a = StartEngine("4MiB");
  const auto b = StartEngine("4MiB");
  std::set<std::string> seen;
  for (const Process* process : {daemon.get(), a.get(), b.get()}) {
    const std::set<std::string> own = WritableShared(process->pid());
    EXPECT_FALSE(own.empty()) << "the table, or its own scoreboard";
    for (const std::string& inode : own) {
      EXPECT_TRUE(seen.insert(inode).second) << "written by two: " << inode;
    }
  }
}

// The engine's device 0 is the machine's device 1, whose daemon serves it.
TEST_F(Pitfall, Number14EngineFindsTheDaemonOfItsGpuNotOfItsIndex) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "needs two GPUs";
  Set("EMUCUDA_DEVICES", "2");
  Set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");  // as the daemon counts
  const auto daemon = StartDaemon({"--gpu", "emulated:1"});
  const auto engine = StartEngine("8MiB", {}, {{"CUDA_VISIBLE_DEVICES", "1"}});
  EXPECT_EQ(SlabsOf(engine->pid()), 4u);
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
  const auto other =
      StartEngineWithoutDaemon("8MiB", {}, {{"CUDA_VISIBLE_DEVICES", "0"}});
  EXPECT_EQ(SlabsOf(other->pid()), 0u);
  EXPECT_THAT(other->Stderr(), HasSubstr("no daemon"));
}

}  // namespace
}  // namespace fineserve::integration
