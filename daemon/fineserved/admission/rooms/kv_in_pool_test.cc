#include "daemon/fineserved/admission/rooms/kv_in_pool.h"

#include <gtest/gtest.h>
#include <string.h>

#include <map>
#include <string>

namespace fineserve::admission {
namespace {

using slab::EngineId;
using slab::SlabId;

constexpr uint32_t kSlabs = 8;
constexpr uint64_t kBlockTokens = 16;
constexpr uint32_t kSlabBlocks = 4;
constexpr uint64_t kSlabTokens = kSlabBlocks * kBlockTokens;
constexpr uid_t kUser = 7;

// A pool of 8 slabs, whose effects are carried out at once, and the blocks that
// its engines say they use.
class KvInPoolTest : public ::testing::Test {
 protected:
  KvInPoolTest() { Settle(); }

  // Joins an engine with an active view that has a floor of one slab.
  EngineId Serve(const std::string& name, pid_t pid, uint32_t wanted) {
    const EngineId id = *pool_.Join(name, kUser, pid, now_ns_);
    const slab::ViewSpec spec = {
        abi::ViewMode::kView, {4, 1024, kBlockTokens}, kSlabBlocks, 0};
    EXPECT_TRUE(pool_.RegisterView(id, pid, spec, {}).ok());
    EXPECT_TRUE(pool_.ActivateView(id, pid, kSlabs, wanted, now_ns_).ok());
    Settle();
    return id;
  }
  // Joins an engine that spans GPUs, with a view that wishes for no slab.
  EngineId ServeGroup(const std::string& name, pid_t pid) {
    const EngineId id = *pool_.Join(name, kUser, pid, now_ns_);
    slab::ViewSpec spec = {
        abi::ViewMode::kView, {4, 1024, kBlockTokens}, kSlabBlocks, 0};
    spec.group = true;
    EXPECT_TRUE(pool_.RegisterView(id, pid, spec, {}).ok());
    EXPECT_TRUE(pool_.ActivateView(id, pid, kSlabs, 1, now_ns_).ok());
    Settle();
    return id;
  }
  void Settle() {
    pool_.Settle(now_ns_, [this](EngineId, SlabId s) { return used_[s]; });
    for (auto e = pool_.TakeEffects(); !e.empty(); e = pool_.TakeEffects()) {
      for (const SlabId slab : e.fill) pool_.Zeroed(slab);
    }
  }
  // Makes the engine use `blocks` blocks in each of its slabs.
  void Use(EngineId id, uint32_t blocks) {
    for (const auto& [slab, lease] : pool_.slabs().InView(id)) {
      used_[slab] = blocks;
    }
  }
  std::vector<EngineKv> Ask(const std::vector<EngineNeed>& needs) {
    return KvInPool(pool_, kUser, needs,
                    [this](EngineId, SlabId slab) { return used_[slab]; });
  }

  std::map<EngineId, slab::SureBlocks> Sure(
      const std::vector<EngineNeed>& needs) {
    return SureOfGroups(pool_, kUser, needs,
                        [this](EngineId, SlabId slab) { return used_[slab]; });
  }

  slab::PoolState pool_{{4096, 4, kSlabs}, kSlabs};
  std::map<SlabId, uint32_t> used_;
  uint64_t now_ns_ = 1'000'000'000;
};

TEST_F(KvInPoolTest, SlabsWithBlocksOfAnotherEngineAreNotSure) {
  const EngineId a = Serve("a", 10, kSlabs - 1);
  Serve("b", 20, 1);
  const std::vector<EngineNeed> b_waits = {{"a", 0, 0},
                                           {"b", kSlabTokens, 999}};
  EXPECT_GT(Ask(b_waits)[1].view->tokens, kSlabTokens) << "a uses nothing";
  Use(a, 1);
  EXPECT_EQ(Ask(b_waits)[1].view->tokens, kSlabTokens);
}

// If it could not count on slabs with blocks of another engine, a first prompt
// longer than the floor would never start.
TEST_F(KvInPoolTest, EngineThatRunsNothingMayCountOnThem) {
  const EngineId a = Serve("a", 10, kSlabs - 1);
  Serve("b", 20, 1);
  Use(a, 1);
  const uint64_t promised = 3 * kSlabTokens;
  const auto kv = Ask({{"a", promised, promised}, {"b", 0, 999}});
  EXPECT_EQ(kv[1].view->tokens, kSlabs / 2 * kSlabTokens);
}

TEST_F(KvInPoolTest, AViewIsReportedWithTheShapeOfItsRequests) {
  constexpr abi::KvShape kShape = {{{1, 16, 0}, {6, 16, 1024}}, 2, 64, 1, 0};
  const EngineId id = *pool_.Join("a", kUser, 10, now_ns_);
  const slab::ViewSpec spec = {
      abi::ViewMode::kView, {4, 1024, kBlockTokens}, 1, 0, false, kShape};
  ASSERT_TRUE(pool_.RegisterView(id, 10, spec, {}).ok());
  ASSERT_TRUE(pool_.ActivateView(id, 10, kSlabs, 1, now_ns_).ok());
  const auto expect_shape = [&] {
    const EngineKv kv = Ask({{"a", 0, 0}})[0];
    ASSERT_TRUE(kv.view.has_value());
    EXPECT_EQ(memcmp(&kv.view->shape, &kShape, sizeof(kShape)), 0);
    EXPECT_EQ(kv.view->block_tokens, kBlockTokens);
  };
  expect_shape();
  ASSERT_TRUE(pool_.SuspendView(id, 10).ok());
  expect_shape();
}

TEST_F(KvInPoolTest, UsedBlocksAreReportedInTokens) {
  const EngineId a = Serve("a", 10, 3);
  Use(a, 2);
  EXPECT_EQ(Ask({{"a", 0, 0}})[0].view->used_tokens, 3 * 2 * kBlockTokens);
}

TEST_F(KvInPoolTest, EngineMaySayAnything) {
  const EngineId a = Serve("a", 10, 3);
  Use(a, UINT32_MAX);
  const EngineKv kv = Ask({{"a", 0, 0}})[0];
  EXPECT_EQ(kv.view->used_tokens, 3 * kSlabTokens);
  EXPECT_EQ(kv.view->tokens, kSlabs * kSlabTokens);
}

// No new KV goes into the free blocks of a slab that was asked back.
TEST_F(KvInPoolTest, SlabsThatWereAskedBackCountByTheirUsedBlocks) {
  const EngineId a = Serve("a", 10, kSlabs - 1);
  const EngineId b = Serve("b", 20, 1);
  Use(a, 1);
  Use(b, 1);
  EXPECT_TRUE(pool_.Want(b, 20, kSlabs, now_ns_));
  Settle();
  const uint32_t returning = pool_.slabs().HeldBy(a).returning;
  ASSERT_EQ(returning, kSlabs / 2 - 1);
  const uint64_t all = (kSlabs - 1) * kSlabTokens;
  const auto kv = Ask({{"a", all, all}, {"b", 0, 0}});
  const uint64_t closed = returning * (kSlabBlocks - 1) * kBlockTokens;
  EXPECT_EQ(kv[0].view->tokens, kSlabs / 2 * kSlabTokens - closed);
}

TEST_F(KvInPoolTest, EngineOfAnotherUserHasNoKv) {
  Serve("a", 10, 3);
  const auto all = KvInPool(pool_, kUser + 1, {{"a", 0, 0}},
                            [](EngineId, SlabId) { return 0; });
  EXPECT_FALSE(all[0].view.has_value());
  EXPECT_EQ(all[0].leased_bytes, 0u);
}

TEST_F(KvInPoolTest, EngineThatSpansGpusIsSureOfWhatNeighboursLeaveHere) {
  const EngineId a = Serve("a", 10, 6);
  EXPECT_TRUE(Sure({}).empty()) << "there is none";
  const EngineId wide = ServeGroup("wide", 20);
  EXPECT_EQ(Sure({})[wide].running, 4 * kSlabBlocks) << "of two that want all";
  Use(a, 1);
  EXPECT_EQ(Sure({})[wide].running, 2 * kSlabBlocks) << "the others are in use";
  EXPECT_EQ(Sure({})[wide].first, 4 * kSlabBlocks);
  const uint64_t promised = 7 * kSlabTokens;
  const std::vector<EngineNeed> a_runs = {{"a", promised, promised}};
  EXPECT_EQ(Sure(a_runs)[wide].running, kSlabBlocks);
  EXPECT_EQ(Sure(a_runs)[wide].first, kSlabBlocks);
}

TEST_F(KvInPoolTest, AnEnginesWordAboutItsOtherGpusOnlyLowersItsRoom) {
  Serve("a", 10, 3);
  const EngineKv::View all = *Ask({{"a", 0, 0}})[0].view;
  EngineKv::View view = all;
  LimitToGroup(/*sure_blocks=*/5, /*most_blocks=*/12, &view);
  EXPECT_EQ(view.tokens, 5 * kBlockTokens);
  EXPECT_EQ(view.most_tokens, 12 * kBlockTokens);
  view = all;
  LimitToGroup(UINT64_MAX, UINT64_MAX, &view);
  EXPECT_EQ(view.tokens, all.tokens);
  EXPECT_EQ(view.most_tokens, all.most_tokens);
  LimitToGroup(/*sure_blocks=*/0, /*most_blocks=*/0, &view);
  EXPECT_EQ(view.tokens, all.tokens) << "it does not say";
}

}  // namespace
}  // namespace fineserve::admission
