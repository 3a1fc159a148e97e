#include "tools/lab/sim/simulated_engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace fineserve::sim {
namespace {

using sched::RequestId;

// A step takes 1,000 µs, plus 10 µs per prompt token and 100 µs per sequence.
constexpr StepTime kTimes{{1000, 10, 100}};
constexpr uint32_t kBlockTokens = 4;

Work Of(uint64_t id, uint32_t prompt, uint32_t output, uint32_t cached = 0) {
  return {RequestId{id}, prompt, cached, output};
}

// An engine that has `blocks` blocks of 4 tokens for itself.
struct Alone {
  explicit Alone(uint32_t blocks, uint32_t chunk = 100, uint32_t batch = 8)
      : kv(1), engine({chunk, batch, kBlockTokens}, kTimes, &kv) {
    kv.Link(0, blocks);
  }
  // Takes one step, or a run of up to `most` steps. Returns its duration in µs;
  // 0 if there was nothing to do.
  Micros Step(uint32_t most = 1) {
    tokens.clear();
    if (!engine.Plan()) return 0;
    engine.Begin(now, 1, most, UINT64_MAX);
    const Micros took = engine.ends() - now;
    now = engine.ends();
    engine.End(&tokens);
    return took;
  }
  SlabBlocks kv;
  Engine engine;
  Micros now = 0;
  std::vector<Engine::Token> tokens;  // of the last step
};

TEST(SimEngineTest, PromptIsFilledInChunksAndThenDecoded) {
  Alone a(1000);
  a.engine.Send(Of(1, 150, 2));
  EXPECT_EQ(a.Step(), 1000 + 100 * 10);
  EXPECT_TRUE(a.tokens.empty());
  EXPECT_EQ(a.Step(), 1000 + 50 * 10);
  ASSERT_EQ(a.tokens.size(), 1u);
  EXPECT_EQ(a.tokens[0].generated, 1u);
  EXPECT_FALSE(a.tokens[0].last);
  EXPECT_EQ(a.Step(), 1000 + 100);
  ASSERT_EQ(a.tokens.size(), 1u);
  EXPECT_EQ(a.tokens[0].generated, 2u);
  EXPECT_TRUE(a.tokens[0].last);
  EXPECT_TRUE(a.engine.idle());
  EXPECT_EQ(a.kv.used_blocks(), 0u);
}

TEST(SimEngineTest, DecodesTakeOfTheChunk) {
  Alone a(1000);
  a.engine.Send(Of(1, 10, 9));
  a.Step();
  a.engine.Send(Of(2, 200, 9));
  EXPECT_EQ(a.Step(), 1000 + 100 + 99 * 10);
}

TEST(SimEngineTest, CachedPromptIsNotComputedButHoldsItsBlocks) {
  Alone a(1000);
  a.engine.Send(Of(1, 80, 2, /*cached=*/60));
  EXPECT_EQ(a.Step(), 1000 + 20 * 10);
  EXPECT_EQ(a.kv.used_blocks(), 20u);
}

TEST(SimEngineTest, TensorParallelismDividesTheTokensAndAddsTheExchange) {
  StepTime times = kTimes;
  times.tp = 4;
  times.exchange_us = 50;
  times.exchange_token_us = 1;
  EXPECT_EQ(times(100, 0), 1000 + 250 + 50 + 100);
  EXPECT_EQ(times(0, 8, 2.0), 2 * (1000 + 200 + 50 + 8));
}

TEST(SimEngineTest, WithoutBlocksTheLastIsFreedAndComputedAgain) {
  Alone a(7);  // 28 tokens
  a.engine.Send(Of(1, 10, 8));
  a.engine.Send(Of(2, 10, 8));
  std::map<uint64_t, int> firsts, lasts;
  for (int step = 0; step < 100 && !a.engine.idle(); ++step) {
    a.Step();
    for (const Engine::Token& t : a.tokens) {
      if (t.generated == 1) ++firsts[Number(t.id)];
      if (t.last) ++lasts[Number(t.id)];
    }
  }
  EXPECT_TRUE(a.engine.idle());
  EXPECT_EQ(firsts, (std::map<uint64_t, int>{{1, 1}, {2, 1}}));
  EXPECT_EQ(lasts, (std::map<uint64_t, int>{{1, 1}, {2, 1}}));
  EXPECT_EQ(a.engine.preemptions(), 1u);
  EXPECT_EQ(a.engine.tokens(), 16u);
}

TEST(SimEngineTest, RunEndsWithTheFirstSequenceThatEnds) {
  Alone a(1000);
  a.engine.Send(Of(1, 10, 30));
  a.engine.Send(Of(2, 10, 12));
  a.Step();
  EXPECT_EQ(a.Step(UINT32_MAX), 11 * 1200);
  ASSERT_EQ(a.tokens.size(), 1u);
  EXPECT_EQ(a.tokens[0].id, RequestId{2});
  EXPECT_EQ(a.Step(UINT32_MAX), 18 * 1100);
}

TEST(SimEngineTest, RunTakesOnlyTheBlocksThatItMay) {
  Alone a(1000);
  a.engine.Send(Of(1, 8, 50));
  a.Step();
  ASSERT_TRUE(a.engine.Plan());  // the ninth token's block
  const uint64_t held = a.kv.used_blocks();
  a.engine.Begin(a.now, 1, UINT32_MAX, /*most_blocks=*/2);
  EXPECT_EQ(a.engine.ends() - a.now, 12 * 1100) << "three blocks of 4 tokens";
  a.engine.End(&a.tokens);
  EXPECT_EQ(a.kv.used_blocks(), held + 2);
}

TEST(SimEngineTest, CutRunEndsWithTheStepUnderWay) {
  for (const auto& [at, begun, steps] :
       {std::tuple(0, true, 1), std::tuple(1, true, 1),
        std::tuple(1099, true, 1), std::tuple(1100, false, 1),
        std::tuple(1100, true, 2), std::tuple(1101, false, 2),
        std::tuple(90'000, true, 20)}) {
    Alone a(1000);
    a.engine.Send(Of(1, 8, 21));
    a.Step();
    ASSERT_TRUE(a.engine.Plan());
    a.engine.Begin(a.now, 1, UINT32_MAX, UINT64_MAX);
    a.engine.Cut(a.now + at, begun);
    EXPECT_EQ(a.engine.ends() - a.now, steps * 1100) << at << " " << begun;
    a.engine.End(&a.tokens);
    uint32_t generated = 0;
    a.engine.ForEachDecoding(
        [&](RequestId id, uint32_t tokens) { generated = tokens; });
    EXPECT_EQ(generated, steps == 20 ? 0u : 1u + static_cast<uint32_t>(steps));
  }
}

// The outcome of a random history of sends, looks and cuts.
struct History {
  std::vector<std::tuple<Micros, uint64_t, uint32_t, bool>> tokens;
  std::vector<uint64_t> used;  // blocks, when looked at
  uint64_t preemptions = 0, steps = 0;
  bool operator==(const History&) const = default;
};

History Live(uint64_t seed, uint32_t most_steps) {
  std::mt19937_64 random(seed);
  SlabBlocks kv(4);
  for (uint32_t slab = 0; slab < 4; ++slab) kv.Link(slab, 10);
  Engine engine({32, 4, kBlockTokens}, kTimes, &kv);
  History history;
  uint64_t sent = 0;
  Micros now = 0, next_send = 0, next_look = 0;
  const auto end = [&] {
    std::vector<Engine::Token> tokens;
    engine.End(&tokens);
    for (const Engine::Token& t : tokens) {
      history.tokens.emplace_back(now, Number(t.id), t.generated, t.last);
    }
  };
  while (sent < 60 || !engine.idle()) {
    now = std::min({engine.stepping() ? engine.ends() : kNever,
                    sent < 60 ? next_send : kNever, next_look});
    if (engine.stepping() && engine.ends() == now) end();
    if (now == next_look) {
      next_look += 1 + static_cast<Micros>(random() % 9000);
      if (engine.stepping()) engine.AdvanceTo(now, /*begun=*/false);
      history.used.push_back(kv.used_blocks());
    }
    if (now == next_send && sent < 60) {
      next_send += 1 + static_cast<Micros>(random() % 30'000);
      engine.Send(Of(++sent, 1 + random() % 60, 1 + random() % 40));
      if (engine.stepping()) engine.Cut(now, /*begun=*/false);
      if (engine.stepping() && engine.ends() == now) end();
    }
    if (!engine.stepping() && engine.Plan()) {
      engine.Begin(now, 1, most_steps, UINT64_MAX);
    }
  }
  history.preemptions = engine.preemptions();
  history.steps = engine.steps();
  EXPECT_EQ(kv.used_blocks(), 0u);
  return history;
}

TEST(SimEngineTest, RunsComeOutAsStepByStep) {
  uint64_t preemptions = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const History by_step = Live(seed, 1);
    const History by_run = Live(seed, UINT32_MAX);
    ASSERT_TRUE(by_step == by_run) << "seed " << seed;
    preemptions += by_run.preemptions;
  }
  EXPECT_GT(preemptions, 0u) << "the KV was never tight";
}

}  // namespace
}  // namespace fineserve::sim
