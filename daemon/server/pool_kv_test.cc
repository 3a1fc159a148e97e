#include "daemon/server/pool_kv.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "daemon/backing/sim_backing.h"
#include "daemon/server/pool_service.h"
#include "daemon/slab/table_writer.h"

namespace fineserve::server {
namespace {

constexpr uint32_t kSlabs = 8;
// A slab holds 4 blocks of 16 tokens.
constexpr slab::Format kFormat = {4, 1024, 16};
constexpr uint64_t kSlabTokens = 64;

class PoolKvTest : public ::testing::Test {
 protected:
  PoolKvTest() { EXPECT_TRUE(pool_.Poll().ok()); }

  static slab::TableIdentity Identity() {
    slab::TableIdentity identity;
    identity.epoch = 1;
    identity.geometry = {4096, 4, kSlabs};
    return identity;
  }
  // An active view of at most `cap_blocks` (0: any number) that wants a slab.
  void Serve(const std::string& engine, pid_t pid, uint64_t cap_blocks) {
    const slab::EngineId id = *pool_.Join(engine, geteuid(), pid);
    ASSERT_TRUE(
        pool_
            .RegisterView(id, pid,
                          {abi::ViewMode::kView, kFormat, 1, cap_blocks}, {})
            .ok());
    ASSERT_TRUE(pool_.ActivateView(id, pid, kSlabs, 1).ok());
    EXPECT_TRUE(pool_.Poll().ok());
  }
  admission::EngineKv Ask(const std::string& engine) {
    return KvInPool(pool_, {{engine, 0}})[0];
  }

  ManualClock clock_;
  backing::SimBacking backing_ =
      *backing::SimBacking::Create(Identity().geometry);
  std::unique_ptr<slab::TableWriter> table_ =
      *slab::TableWriter::Create(Identity(), &clock_);
  backing::InlineQueue device_{&backing_};
  PoolService pool_{&device_, Identity().geometry, table_.get(), &clock_};
};

TEST_F(PoolKvTest, ViewIsToldInTokens) {
  Serve("a", 10, 0);
  const admission::EngineKv kv = Ask("a");
  ASSERT_TRUE(kv.view.has_value());
  EXPECT_EQ(kv.view->tokens, kSlabs * kSlabTokens);
  EXPECT_EQ(kv.view->most_tokens, kSlabs * kSlabTokens);
  EXPECT_EQ(kv.view->used_tokens, 0u);
}

TEST_F(PoolKvTest, ViewWithACapIsToldNoMore) {
  Serve("a", 10, 4);  // one slab
  EXPECT_EQ(Ask("a").view->tokens, kSlabTokens);
  EXPECT_EQ(Ask("a").view->most_tokens, kSlabTokens);
}

TEST_F(PoolKvTest, WhatOneEngineWasPromisedIsNotSureForAnother) {
  Serve("a", 10, 0);
  Serve("b", 11, 0);
  const uint64_t before = Ask("b").view->tokens;
  const auto all = KvInPool(pool_, {{"a", 4 * kSlabTokens}, {"b", 0}});
  EXPECT_LT(all[1].view->tokens, before);
}

TEST_F(PoolKvTest, WholeSlabsAreToldInBytes) {
  const slab::EngineId id = *pool_.Join("a", geteuid(), 10);
  pool_.Lease(id, 2, 1);
  EXPECT_EQ(Ask("a").leased_bytes, 2 * pool_.slab_bytes());
  EXPECT_FALSE(Ask("a").view.has_value());
}

TEST_F(PoolKvTest, EngineThatThePoolDoesNotKnowHasNothing) {
  ASSERT_TRUE(pool_.Join("b", geteuid() + 1, 10).ok());
  for (const char* engine : {"a", "b"}) {
    EXPECT_FALSE(Ask(engine).view.has_value()) << engine;
    EXPECT_EQ(Ask(engine).leased_bytes, 0u) << engine;
  }
}

}  // namespace
}  // namespace fineserve::server
