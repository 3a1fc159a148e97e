#include "shim/weights/gate.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tools/lab/process/eventually.h"

namespace fineserve::shim {
namespace {

using process::Eventually;

constexpr uint64_t kPatientMs = 60'000;

class GateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(g_gate.Prepare()); }
  ~GateTest() override { g_gate.Open(); }
};

TEST_F(GateTest, CallWaitsBehindTheClosedGateAndIsCounted) {
  const uint64_t before = g_gate.waits();
  ASSERT_TRUE(g_gate.Close(kPatientMs));
  std::atomic<bool> passed{false};
  std::thread caller([&] { passed = g_gate.Pass([] { return true; }); });
  EXPECT_TRUE(Eventually([] { return g_gate.waiting() == 1; }));
  EXPECT_FALSE(passed);
  g_gate.Open();
  caller.join();
  EXPECT_TRUE(passed);
  EXPECT_EQ(g_gate.waits(), before + 1);
  EXPECT_EQ(g_gate.waiting(), 0u);
}

TEST_F(GateTest, ClosingWaitsForCallsThatAreInsideAndGivesUpWithTheGateOpen) {
  std::atomic<bool> inside{false}, go{false};
  std::thread caller([&] {
    g_gate.Pass([&] {
      inside = true;
      while (!go) std::this_thread::yield();
      return true;
    });
  });
  EXPECT_TRUE(Eventually([&] { return inside.load(); }));
  EXPECT_FALSE(g_gate.Close(0));
  EXPECT_FALSE(g_gate.is_closed());
  std::thread closer([] { EXPECT_TRUE(g_gate.Close(kPatientMs)); });
  EXPECT_TRUE(Eventually([] { return g_gate.is_closed(); }));
  go = true;
  closer.join();
  caller.join();
}

// A driver may call its own exported functions.
TEST_F(GateTest, CallWithinACallPasses) {
  std::thread closer;
  const bool passed = g_gate.Pass([&] {
    closer = std::thread([] { EXPECT_TRUE(g_gate.Close(kPatientMs)); });
    EXPECT_TRUE(Eventually([] { return g_gate.is_closed(); }));
    return g_gate.Pass([] { return true; });
  });
  closer.join();
  EXPECT_TRUE(passed);
}

// The thread that forks is the only one that the child has.
TEST_F(GateTest, ChildThatIsForkedWithinACallIsInsideUntilItLeaves) {
  bool is_awaited = false;
  const pid_t child = g_gate.Pass([&] {
    const pid_t forked = fork();
    if (forked == 0) {
      g_gate.RestartInChild();
      is_awaited = !g_gate.Close(0);
    }
    return forked;
  });
  if (child == 0) _exit(is_awaited && g_gate.Close(kPatientMs) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(GateTest, ThreadsThatHaveEndedAreNotWaitedFor) {
  for (int i = 0; i < 20; ++i) {
    std::thread([] { g_gate.Pass([] { return true; }); }).join();
  }
  EXPECT_TRUE(g_gate.Close(kPatientMs));
}

// It moves what is behind the gate.
TEST_F(GateTest, ThreadOfOursPassesTheClosedGate) {
  ASSERT_TRUE(g_gate.Close(kPatientMs));
  std::thread([] {
    t_gate_visitor.place = GateVisitor::kExempt;
    EXPECT_TRUE(g_gate.Pass([] { return true; }));
  }).join();
}

// While the gate is closed no call is between TryEnter and Leave.
TEST_F(GateTest, NoCallIsInsideWhileItIsClosed) {
  std::atomic<int> inside{0};
  std::atomic<bool> ends{false};
  std::atomic<uint64_t> calls{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      while (!ends) {
        g_gate.Pass([&] {
          inside.fetch_add(1, std::memory_order_relaxed);
          return inside.fetch_sub(1, std::memory_order_relaxed);
        });
        // On one processor, too, the closer comes to run often.
        if (calls.fetch_add(1, std::memory_order_relaxed) % 64 == 0) {
          std::this_thread::yield();
        }
      }
    });
  }
  for (int round = 0; round < 500; ++round) {
    // Each round meets callers that run: they may all be late on a busy
    // machine.
    for (const uint64_t before = calls; calls == before;) {
      std::this_thread::yield();
    }
    ASSERT_TRUE(g_gate.Close(kPatientMs));
    const uint64_t seen = calls;
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(inside.load(), 0) << "round " << round;
    }
    EXPECT_LE(calls - seen, 4u) << "counted after Leave";
    g_gate.Open();
  }
  ends = true;
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace fineserve::shim
