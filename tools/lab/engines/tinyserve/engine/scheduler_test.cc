#include "tools/lab/engines/tinyserve/engine/scheduler.h"

#include <gmock/gmock.h>
#include <sys/random.h>

#include <map>
#include <random>
#include <set>
#include <utility>

namespace tinyserve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest() {
    Reset({.block_tokens = 4, .most_sequences = 3, .step_tokens = 10}, 100);
  }

  void Reset(const Limits& limits, uint32_t blocks) {
    limits_ = limits;
    scheduler_.reset();
    blocks_ = std::make_unique<OwnBlocks>(blocks + 1);
    scheduler_ = std::make_unique<Scheduler>(limits, blocks_.get());
  }
  void Add(uint64_t id, uint32_t prompt) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = id;
    sequence->prompt_tokens = prompt;
    sequence->states.push_back(0);
    for (uint32_t i = 0; i < prompt; ++i) sequence->Append(i);
    scheduler_->Add(std::move(sequence));
  }
  // Runs a step as the engine does. Returns the (id, tokens) of its work.
  std::vector<std::pair<uint64_t, uint32_t>> Step() {
    std::vector<std::pair<uint64_t, uint32_t>> done;
    for (const Work& work : scheduler_->Schedule()) {
      done.emplace_back(work.sequence->id, work.tokens);
      const bool chooses = work.chooses();
      work.sequence->computed += work.tokens;
      if (chooses) work.sequence->Append(7);
    }
    return done;
  }

  Limits limits_;
  std::unique_ptr<OwnBlocks> blocks_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, LongPromptIsCutToTheBudgetAndOthersFollowInWhatIsLeft) {
  Add(1, 14);
  Add(2, 9);
  EXPECT_THAT(Step(), ElementsAre(Pair(1, 10)));
  EXPECT_THAT(Step(), ElementsAre(Pair(1, 4), Pair(2, 6)));
  EXPECT_THAT(Step(), ElementsAre(Pair(1, 1), Pair(2, 3)));
  EXPECT_THAT(Step(), ElementsAre(Pair(1, 1), Pair(2, 1)));
}

TEST_F(SchedulerTest, OnlySoManySequencesRunAtOnce) {
  for (uint64_t id = 1; id <= 5; ++id) Add(id, 1);
  EXPECT_THAT(Step(), ElementsAre(Pair(1, 1), Pair(2, 1), Pair(3, 1)));
  EXPECT_EQ(scheduler_->waiting(), 2u);
  EXPECT_TRUE(scheduler_->Remove(2));
  EXPECT_THAT(Step(), ElementsAre(Pair(1, 1), Pair(3, 1), Pair(4, 1)));
}

TEST_F(SchedulerTest, WaitingPromptThatHasNoBlocksHoldsThoseBehindIt) {
  Reset({.block_tokens = 4, .most_sequences = 3, .step_tokens = 40}, 4);
  Add(1, 12);
  Add(2, 8);
  Add(3, 1);
  EXPECT_THAT(Step(), ElementsAre(Pair(1, 12)));
  EXPECT_EQ(scheduler_->waiting(), 2u);
  EXPECT_TRUE(scheduler_->Remove(1));
  EXPECT_THAT(Step(), ElementsAre(Pair(2, 8), Pair(3, 1)));
}

TEST_F(SchedulerTest, LastStartedIsPreemptedAndComputedAgainFromItsPrompt) {
  Reset({.block_tokens = 4, .most_sequences = 3, .step_tokens = 40}, 4);
  Add(1, 8);
  Add(2, 7);
  EXPECT_THAT(Step(), ElementsAre(Pair(1, 8), Pair(2, 7)));
  // Both sequences would need a third block in the end. The first one asks for
  // it first.
  EXPECT_THAT(Step(), ElementsAre(Pair(1, 1)));
  EXPECT_EQ(scheduler_->preemptions(), 1u);
  EXPECT_EQ(scheduler_->waiting(), 1u);
  EXPECT_EQ(blocks_->used_blocks(), 3u);
  EXPECT_TRUE(scheduler_->Remove(1));
  EXPECT_THAT(Step(), ElementsAre(Pair(2, 8))) << "with what it had chosen";
}

TEST_F(SchedulerTest, SequenceThatIsAloneIsPreemptedByItself) {
  Reset({.block_tokens = 4, .most_sequences = 3, .step_tokens = 40}, 2);
  Add(1, 8);
  EXPECT_THAT(Step(), ElementsAre(Pair(1, 8)));
  EXPECT_THAT(Step(), IsEmpty());
  EXPECT_EQ(blocks_->used_blocks(), 0u);
  EXPECT_EQ(scheduler_->running(), 0u);
}

TEST_F(SchedulerTest, RemovedSequencesBlocksAreFreeWhereverItWas) {
  Add(1, 8);
  Add(2, 8);
  Step();
  Add(3, 1);
  EXPECT_TRUE(scheduler_->Remove(3)) << "waiting";
  EXPECT_TRUE(scheduler_->Remove(1)) << "running";
  EXPECT_TRUE(scheduler_->Remove(2)) << "in the middle of its prompt";
  EXPECT_FALSE(scheduler_->Remove(1));
  EXPECT_EQ(blocks_->used_blocks(), 0u);
}

// The scheduler announces the blocks that it could use before it asks for them,
// so that leases can arrive.
TEST_F(SchedulerTest, BlocksAreExpectedForAStepAndForAllThatWait) {
  class Expecting : public OwnBlocks {
   public:
    Expecting() : OwnBlocks(100) {}
    void Expect(uint64_t blocks) override { expected = blocks; }
    uint64_t expected = 99;
  };
  Expecting blocks;
  scheduler_ = std::make_unique<Scheduler>(limits_, &blocks);
  Step();
  EXPECT_EQ(blocks.expected, 0u) << "nothing to do";
  Add(1, 14);
  Add(2, 9);
  Step();
  EXPECT_EQ(blocks.expected, 3u + 3 + 4 + 3) << "10 tokens, 3 sequences; 14, 9";
  Step();
  Step();
  EXPECT_EQ(blocks.expected, 3u + 3) << "all run";
  scheduler_.reset();
}

// Random requests on few blocks: in every step, no block is used twice, each
// sequence's blocks hold what it computes, and the budget is kept. In the end,
// every request has been served.
TEST_F(SchedulerTest, RandomRequestsAreAllServedWithBlocksOfTheirOwn) {
  unsigned seed = 0;
  ASSERT_EQ(getrandom(&seed, sizeof(seed), 0), ssize_t{sizeof(seed)});
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  Reset({.block_tokens = 4, .most_sequences = 6, .step_tokens = 16}, 20);
  std::map<uint64_t, uint32_t> wanted;  // tokens still to be chosen
  uint64_t next = 1;
  for (int step = 0; step < 20'000 && (next <= 300 || !wanted.empty());
       ++step) {
    while (next <= 300 && wanted.size() < 8) {
      wanted[next] = 1 + random() % 30;
      Add(next++, 1 + static_cast<uint32_t>(random() % 40));
    }
    std::set<BlockId> held;
    uint32_t tokens = 0;
    for (const Work& work : scheduler_->Schedule()) {
      Sequence* s = work.sequence;
      tokens += work.tokens;
      ASSERT_GT(work.tokens, 0u);
      ASSERT_GE(s->blocks.size() * 4, s->computed + work.tokens);
      for (const BlockId block : s->blocks) {
        ASSERT_TRUE(held.insert(block).second) << "block " << block;
        ASSERT_NE(block, 0u) << "the null block";
      }
      const bool chooses = work.chooses();
      s->computed += work.tokens;
      if (!chooses) continue;
      s->Append(7);
      if (--wanted[s->id] == 0 || random() % 200 == 0) {
        wanted.erase(s->id);
        scheduler_->Remove(s->id);
      }
    }
    ASSERT_LE(tokens, 16u);
    ASSERT_LE(scheduler_->running(), 6u);
  }
  EXPECT_THAT(wanted, IsEmpty()) << "all were served";
  EXPECT_GT(scheduler_->preemptions(), 10u);
  EXPECT_EQ(blocks_->used_blocks(), 0u);
}

}  // namespace
}  // namespace tinyserve
