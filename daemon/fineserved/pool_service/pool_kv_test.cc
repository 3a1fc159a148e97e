#include "daemon/fineserved/pool_service/pool_kv.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "daemon/contract/wire/message.h"
#include "daemon/fineserved/admission/admission_service.h"
#include "daemon/fineserved/pool_service/pool_fixture.h"

namespace fineserve::server {
namespace {

// A slab holds 4 blocks of 16 tokens.
constexpr slab::Format kFormat = {4, 1024, 16};
constexpr uint64_t kSlabTokens = 64;

// Admission for the engines and models "a" and "b", and the proxy that asks it.
class AdmissionOfTwo {
 public:
  AdmissionOfTwo(const PoolService* pool, const Clock* clock) {
    config::Fleet fleet;
    for (const char* name : {"a", "b"}) {
      config::FleetModel model;
      model.name = name;
      model.slo_ttft_ms = 3'600'000;
      model.kv_token_bytes = 256;
      model.profile = {1, 0, 0};
      fleet.models.push_back(model);
      fleet.engines.push_back({name, name, "127.0.0.1", 1, "", {}});
    }
    service_ = *admission::AdmissionService::Create(
        fleet, "GPU-1", kEpoch,
        {[pool](const auto& needs) { return KvInPool(*pool, needs); },
         [] { return admission::GpuFacts(); }, clock, &drained_, &plans_},
        [this](const std::string&, absl::string_view bytes) {
          Receive(*wire::Decode(bytes));
          return true;
        });
    wire::HelloT hello;
    for (const config::FleetEngine& engine : fleet.engines) {
      hello.engines.push_back(std::make_unique<wire::EngineHealthT>());
      hello.engines.back()->name = engine.name;
      hello.engines.back()->serves = true;
    }
    hello.reset = true;
    Send(0, std::move(hello));
  }
  void Submit(const std::string& model, uint32_t prompt_tokens) {
    wire::SubmitT submit;
    submit.model = model;
    submit.prompt_tokens = prompt_tokens;
    submit.max_tokens = 1;
    Send(++submitted_, std::move(submit));
  }
  void FinishFirst() {
    if (running_.empty()) return;
    Send(running_.front(), wire::FinishedT());
    running_.pop_front();
  }
  void Settle() { service_->Settle(); }
  uint64_t admitted() const { return admitted_; }
  uint64_t BookedSlabs() {
    Send(0, wire::ModelsQueryT());
    uint64_t slabs = 0;
    for (const auto& model : models_.models) {
      for (const auto& engine : model->engines) {
        slabs += (engine->held_tokens + kSlabTokens - 1) / kSlabTokens;
      }
    }
    return slabs;
  }

 private:
  static constexpr uint64_t kEpoch = 1;

  template <typename Body>
  void Send(uint64_t request, Body body) {
    service_->Handle("proxy", wire::Encode(kEpoch, request, std::move(body)));
  }
  void Receive(const wire::MessageT& message) {
    if (const auto* models = message.body.AsModels()) models_ = *models;
    const auto* verdict = message.body.AsVerdict();
    if (verdict == nullptr || !verdict->admitted) return;
    ++admitted_;
    running_.push_back(message.request);
  }

  admission::DrainedEngines drained_{""};
  admission::PlanBoard plans_;
  std::unique_ptr<admission::AdmissionService> service_;
  wire::ModelsT models_;
  std::deque<uint64_t> running_;
  uint64_t submitted_ = 0, admitted_ = 0;
};

class PoolKvTest : public PoolFixture {
 protected:
  PoolKvTest() : PoolFixture({4096, 4, kSlabs}) {}

  // Joins an engine with an active view of at most `cap_blocks` (0: any number)
  // that wants a slab.
  void Serve(const std::string& engine, pid_t pid, uint64_t cap_blocks,
             const abi::KvShape& shape = {}) {
    const slab::EngineId id = *pool_.Join(engine, geteuid(), pid);
    ASSERT_TRUE(pool_
                    .RegisterView(id, pid,
                                  {abi::ViewMode::kView, kFormat, 1, cap_blocks,
                                   false, shape},
                                  {})
                    .ok());
    ASSERT_TRUE(pool_.ActivateView(id, pid, kSlabs, 1).ok());
    Poll();
  }
  admission::EngineKv Ask(const std::string& engine) {
    return KvInPool(pool_, {{engine, 0, 0}})[0];
  }
};

TEST_F(PoolKvTest, ViewIsReportedInTokens) {
  Serve("a", 10, 0);
  const admission::EngineKv kv = Ask("a");
  ASSERT_TRUE(kv.view.has_value());
  EXPECT_EQ(kv.view->tokens, kSlabs * kSlabTokens);
  EXPECT_EQ(kv.view->most_tokens, kSlabs * kSlabTokens);
  EXPECT_EQ(kv.view->used_tokens, 0u);
}

TEST_F(PoolKvTest, ViewWithACapIsReportedUpToIt) {
  Serve("a", 10, 4);  // one slab
  EXPECT_EQ(Ask("a").view->tokens, kSlabTokens);
  EXPECT_EQ(Ask("a").view->most_tokens, kSlabTokens);
}

TEST_F(PoolKvTest, SleeperHasARoomOfNothing) {
  Serve("a", 10, 4);
  Serve("b", 11, 0);
  const slab::EngineId a = *pool_.state().Find("a", geteuid());
  ASSERT_TRUE(pool_.machine()->SuspendView(a, 10).ok());
  Poll();
  ASSERT_TRUE(Ask("a").view.has_value());
  EXPECT_EQ(Ask("a").view->tokens, 0u);
  EXPECT_EQ(Ask("a").view->most_tokens, kSlabTokens);
  EXPECT_EQ(Ask("b").view->tokens, kSlabs * kSlabTokens);
  AdmissionOfTwo admission(&pool_, &clock_);
  admission.Submit("a", 16);
  admission.Submit("b", 16);
  admission.Settle();
  EXPECT_EQ(admission.admitted(), 1u) << "b's";
}

// An engine that spans GPUs says what it can have on all of them.
TEST_F(PoolKvTest, RoomIsNoMoreThanTheEngineSaysOfItsOtherGpus) {
  Serve("a", 10, 0);
  const slab::EngineId a = *pool_.state().Find("a", geteuid());
  const auto say = [&](size_t at, uint64_t blocks) {
    EXPECT_EQ(pwrite(pool_.ScoreboardOf(a)->descriptor(), &blocks,
                     sizeof(blocks), static_cast<off_t>(at)),
              static_cast<ssize_t>(sizeof(blocks)));
  };
  using Header = abi::ViewScoreboardHeader;
  say(offsetof(Header, sure_blocks), 5);
  say(offsetof(Header, first_blocks), 9);
  EXPECT_EQ(Ask("a").view->tokens, kSlabs * kSlabTokens) << "it is not said";
  say(offsetof(Header, most_blocks), 12);
  EXPECT_EQ(Ask("a").view->tokens, 9 * 16u) << "it runs nothing";
  EXPECT_EQ(KvInPool(pool_, {{"a", 16, 16}})[0].view->tokens, 5 * 16u);
  EXPECT_EQ(Ask("a").view->most_tokens, 12 * 16u);
}

TEST_F(PoolKvTest, KvPromisedToOneEngineIsNotSureForAnother) {
  Serve("a", 10, 0);
  Serve("b", 11, 0);
  const uint64_t before = Ask("b").view->tokens;
  const auto all =
      KvInPool(pool_, {{"a", 4 * kSlabTokens, 4 * kSlabTokens}, {"b", 0, 0}});
  EXPECT_LT(all[1].view->tokens, before);
}

TEST_F(PoolKvTest, FairShareOfOneEngineIsNotTakenFromAnothersPromise) {
  Serve("a", 10, 0);
  Serve("b", 11, 0);
  const uint64_t promised = 6 * kSlabTokens;
  const auto all = KvInPool(pool_, {{"a", promised, promised}, {"b", 0, 0}});
  EXPECT_EQ(all[0].view->tokens, 7 * kSlabTokens) << "b wants a slab";
  EXPECT_EQ(all[1].view->tokens, 2 * kSlabTokens);
}

TEST_F(PoolKvTest, RequestsOfOneEngineLimitAnotherToItsFairShare) {
  Serve("a", 10, 0);
  Serve("b", 11, 0);
  const uint64_t much = 100 * kSlabTokens;
  auto all = KvInPool(pool_, {{"a", kSlabTokens, much}, {"b", 0, much}});
  EXPECT_EQ(all[0].view->tokens, kSlabs / 2 * kSlabTokens);
  EXPECT_EQ(all[1].view->tokens, (kSlabs - 1) * kSlabTokens)
      << "it runs nothing, and its first prompt may be long";
}

// Requests of random sizes for two engines, many of which start in one round.
TEST_F(PoolKvTest, BookingEndsAtThePoolsSize) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Serve("a", 10, 0);
  Serve("b", 11, 0);
  AdmissionOfTwo admission(&pool_, &clock_);
  for (int round = 0; round < 2000; ++round) {
    for (uint32_t n = random() % 8; n > 0; --n) {
      admission.Submit(random() % 2 == 0 ? "a" : "b", 1 + random() % 300);
    }
    for (uint32_t n = random() % 8; n > 0; --n) admission.FinishFirst();
    admission.Settle();
    ASSERT_LE(admission.BookedSlabs(), kSlabs) << "round " << round;
  }
  EXPECT_GT(admission.admitted(), 1000u);
}

// One group keeps everything, and three groups keep 64 tokens each.
TEST_F(PoolKvTest, ARequestIsAdmittedWhenTheBlocksOfAllItsGroupsFit) {
  constexpr abi::KvShape kShape = {{{1, 16, 0}, {3, 16, 64}}, 0, 64, 1, 0};
  Serve("a", 10, 0, kShape);  // the whole pool: 32 blocks
  AdmissionOfTwo admission(&pool_, &clock_);
  const auto admitted = [&](uint32_t prompt, int requests) {
    const uint64_t before = admission.admitted();
    while (requests-- > 0) admission.Submit("a", prompt);
    admission.Settle();
    return admission.admitted() - before;
  };
  EXPECT_EQ(admitted(128, 1), 0u) << "and a token: 4 groups of 9 blocks";
  EXPECT_EQ(admitted(127, 1), 1u) << "4 groups of 8 blocks";
  EXPECT_EQ(admitted(1, 1), 0u) << "no block is left";
  admission.FinishFirst();
  admission.Settle();
  EXPECT_EQ(admission.admitted(), 2u) << "the one that waited";
  admission.FinishFirst();
  EXPECT_EQ(admitted(20, 6), 4u) << "of 4 groups of 2 blocks each";
  admission.FinishFirst();
  admission.Settle();
  EXPECT_EQ(admission.admitted(), 7u);
}

TEST_F(PoolKvTest, WholeSlabsAreReportedInBytes) {
  const slab::EngineId id = *pool_.Join("a", geteuid(), 10);
  pool_.Lease(id, 2, 1);
  EXPECT_EQ(Ask("a").leased_bytes, 2 * pool_.slab_bytes());
  EXPECT_FALSE(Ask("a").view.has_value());
}

TEST_F(PoolKvTest, BytesOfThePoolAreThoseThatEnginesHoldAndTheRest) {
  EXPECT_EQ(PoolBytes(pool_), kSlabs * pool_.slab_bytes());
  EXPECT_EQ(LeasedBytes(pool_), 0u);
  const slab::EngineId id = *pool_.Join("a", geteuid(), 10);
  pool_.Lease(id, 2, 1);
  EXPECT_EQ(LeasedBytes(pool_), 2 * pool_.slab_bytes());
  pool_.Exited(10);
  EXPECT_EQ(LeasedBytes(pool_), 2 * pool_.slab_bytes())
      << "the dead engine's, until the driver forgets it";
  EXPECT_EQ(PoolBytes(pool_), kSlabs * pool_.slab_bytes());
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
