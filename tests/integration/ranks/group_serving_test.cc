// An engine on two GPUs behind the proxy, beside an engine on the second GPU
// alone. A request brings the first engine back to both GPUs, and it leaves
// when either GPU needs its room. Each byte of its ranks is checked for each
// answer. Daemons are killed in between.

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/ranks/group_serving_site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

using GroupServingTest = GroupServingSite;

TEST_F(GroupServingTest, RequestBringsItBackToBothGpus) {
  ExpectWideAnswers();
  for (int round = 0; round < 3; ++round) {
    Evict("wide");
    ExpectWideAnswers();
    std::string line;
    EXPECT_TRUE(Eventually([&] {
      line = LastOfAccessLog();
      return JsonText(line, "/waited_for") == "activation";
    })) << line;
    EXPECT_GT(JsonInt(line, "/waited_ms"), 0) << line;
    EXPECT_EQ(JsonText(line, "/decided_by"), "fineserved") << line;
  }
}

TEST_F(GroupServingTest, FsctlShowsTheModelsOfAllGpus) {
  const Finished models = Fsctl({"models"});
  EXPECT_EQ(models.code, 0) << models.err;
  EXPECT_THAT(models.out, HasSubstr("wide"));
  EXPECT_THAT(models.out, HasSubstr("narrow"));
  EXPECT_EQ(Fsctl({"requests"}).code, 0);
}

TEST_F(GroupServingTest, ManyRequestsWaitForOneReturn) {
  for (int round = 0; round < 2; ++round) {
    Evict("wide");
    std::vector<std::thread> clients;
    for (int n = 0; n < 8; ++n) {
      clients.emplace_back([this] { ExpectWideAnswers(); });
    }
    for (std::thread& client : clients) client.join();
  }
}

// The dead daemon may be the one that admits and moves, or the one that has the
// other rank's memory.
TEST_F(GroupServingTest, RequestThatWaitsOutlivesEitherDaemon) {
  for (int round = 0; round < 4; ++round) {
    const int gpu = round % kGpus;
    Evict("wide");
    if (round < kGpus) {
      Kill(gpu);
    } else {
      EndForGood(gpu);
    }
    std::thread client([this] { ExpectWideAnswers(); });
    if (round >= kGpus) StartDaemonOn(gpu);
    client.join();
  }
}

// Wherever in the way back.
TEST_F(GroupServingTest, DaemonsThatDieWhileARequestBringsItBackLoseNothing) {
  for (int round = 0; round < 6; ++round) {
    Evict("wide");
    std::thread client([this] { ExpectWideAnswers(); });
    usleep(static_cast<useconds_t>(random_() % 60'000));
    Kill(round % kGpus);
    client.join();
  }
}

class AdmittedBySecondGpuTest : public GroupServingSite {
 protected:
  int gpu_of_wide() const override { return 1; }
};

TEST_F(AdmittedBySecondGpuTest, RequestBringsItBackToBothGpus) {
  for (int round = 0; round < 3; ++round) {
    Evict("wide");
    ExpectWideAnswers();
  }
}

// Beside the pool, there is room for the weights of one engine.
class CrowdedSecondGpuTest : public GroupServingSite {
 protected:
  const char* memory() const override { return "116MiB"; }
};

// The engine on the second GPU cannot leave.
TEST_F(CrowdedSecondGpuTest, RequestIsRefusedIfItCannotComeBack) {
  Evict("wide");
  StartNarrow(/*more=*/{});
  const HttpResponse refused = AskWide("1500");
  EXPECT_EQ(refused.status, 429) << refused.body << Logs();
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  EXPECT_THAT(refused.body, HasSubstr("first token"));
  EXPECT_TRUE(Eventually([&] {
    return IsEvicted("wide", 0) && IsEvicted("wide", 1);
  })) << "a part of it stays on one side";
  narrow_->process().EndBy(SIGKILL);
  ExpectWideAnswers();
}

// The engine of the second GPU needs the room that the spanning engine has
// there. The spanning engine comes back for its next request.
TEST_F(CrowdedSecondGpuTest, ModelsOfOneAndOfBothGpusTakeTurns) {
  ExpectWideAnswers();
  StartNarrow();
  EXPECT_TRUE(IsEvicted("wide", 0) && IsEvicted("wide", 1)) << Logs();
  for (uint32_t round = 0; round < 4; ++round) {
    ExpectWideAnswers();
    EXPECT_TRUE(IsEvicted("narrow", 1));
    ExpectNarrowAnswers(round);
    EXPECT_TRUE(IsEvicted("wide", 0) && IsEvicted("wide", 1));
  }
}

// Neither is ever idle.
TEST_F(CrowdedSecondGpuTest, ModelsThatAreNeverIdleTakeTurns) {
  StartNarrow();
  std::atomic<bool> ends{false};
  std::atomic<int> of_wide{0}, of_narrow{0};
  std::vector<std::thread> clients;
  for (uint32_t n = 0; n < 2; ++n) {
    clients.emplace_back([&] {
      for (; !ends && !HasFailure(); ++of_wide) ExpectWideAnswers();
    });
    clients.emplace_back([&, n] {
      for (; !ends && !HasFailure(); ++of_narrow) ExpectNarrowAnswers(n);
    });
  }
  for (int turn = 0; turn < 3; ++turn) {
    const int wide = of_wide, narrow = of_narrow;
    EXPECT_TRUE(Eventually([&] {
      return HasFailure() || (of_wide > wide && of_narrow > narrow);
    })) << Logs();
  }
  ends = true;
  for (std::thread& client : clients) client.join();
  printf("%d and %d answers\n", of_wide.load(), of_narrow.load());
}

// Daemons die while one daemon asks the other for room on its GPU.
TEST_F(CrowdedSecondGpuTest, DaemonsThatDieWhileOneGpuNeedsRoomLoseNothing) {
  StartNarrow();
  for (uint32_t round = 0; round < 8; ++round) {
    const bool wide_waits = round / 2 % 2 == 0;
    std::thread client(
        [&] { wide_waits ? ExpectWideAnswers() : ExpectNarrowAnswers(round); });
    usleep(static_cast<useconds_t>(random_() % 80'000));
    Kill(static_cast<int>(round % kGpus));
    client.join();
  }
  ExpectWideAnswers();
  ExpectNarrowAnswers(1);
  // All slabs become free when their engines end.
  narrow_->process().EndBy(SIGKILL);
  wide_->parent().Signal(SIGKILL);
  EXPECT_TRUE(wide_->EventuallyEnds());
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    EXPECT_TRUE(Eventually([&] {
      const abi::TableSnapshot table = TableOf(gpu);
      return std::all_of(table.slabs.begin(), table.slabs.end(),
                         [](const abi::SlabSnapshot& slab) {
                           return slab.word.state == abi::SlabState::kFree;
                         });
    })) << gpu;
  }
}

// The engine that the ended daemon moved continues to serve, and no other
// engine can have its room.
TEST_F(CrowdedSecondGpuTest, DaemonThatEndsForGoodKeepsItsEngineHere) {
  StartNarrow();
  ExpectWideAnswers();
  EndForGood(0);
  EXPECT_EQ(AskNarrow(1, "1500").status, 429);
  const Finished evict = Fsctl({"evict", "wide"});
  EXPECT_EQ(evict.code, 3) << evict.out;
  EXPECT_THAT(evict.err, HasSubstr("does not answer"));
  ExpectWideAnswers();
  wide_->parent().Signal(SIGKILL);
  EXPECT_TRUE(wide_->EventuallyEnds());
  ExpectNarrowAnswers(1);
}

}  // namespace
}  // namespace fineserve::integration
