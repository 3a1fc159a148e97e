// Tests LocalScheduler under random events: engines that come, go, stall and
// change their KV; requests that are cancelled, degraded, and end without a
// first token. The test's own books are compared with the scheduler's.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/scheduling/local/local_scheduler.h"
#include "daemon/scheduling/local/policy/make_policy.h"

namespace fineserve::sched {
namespace {

constexpr uint32_t kModels = 3;
constexpr uint32_t kEngines = 5;
constexpr uint32_t kChunk = 512;
constexpr uint32_t kMostBatch = 6;

ModelId ModelOf(ReplicaId engine) {
  return ModelId{static_cast<uint32_t>(Number(engine) % kModels)};
}

std::vector<ModelSpec> Specs() {
  return std::vector<ModelSpec>(
      kModels, {"m", 200'000, 40'000, kChunk, kMostBatch, {3000, 30, 500}});
}

class RandomWorld {
 public:
  RandomWorld(const std::string& policy, uint64_t seed)
      : random_(seed),
        sched_(Specs(), std::move(*MakePolicy(policy, kDefaultFloorShare))) {}

  void Step() {
    now_ += static_cast<Micros>(UpTo(4000));
    switch (UpTo(9)) {
      case 0:
        SetEngine();
        break;
      case 1:
        if (UpTo(9) == 0) EngineGone();
        break;
      case 2:
        if (const auto id = Any(waiting_)) Cancel(*id);
        break;
      case 3:
      case 4:
        if (const auto id = AnyRunning()) Finish(*id);
        break;
      case 5:
        if (const auto id = AnyRunning()) sched_.FirstToken(*id, now_);
        break;
      case 6:
        if (const auto id = AnyRunning()) Grow(*id);
        break;
      default:
        Submit();
    }
    Decide();
  }

  // Expects that every request gets its decision without further arrivals.
  void Drain() {
    for (uint32_t e = 0; e < kEngines; ++e) SetEngine(ReplicaId{e}, 50'000);
    for (int i = 0; i < 20'000 && !waiting_.empty(); ++i) {
      Decide();
      if (const auto id = AnyRunning()) Finish(*id);
      const Micros wake = sched_.NextWake(now_);
      if (wake != kNever && wake > now_) now_ = wake;
    }
    EXPECT_TRUE(waiting_.empty()) << waiting_.size() << " never get a decision";
    while (const auto id = AnyRunning()) Finish(*id);
    for (const auto& [engine, figures] : sched_.Engines(now_)) {
      EXPECT_EQ(figures.held_tokens, 0u) << Number(engine);
      EXPECT_EQ(figures.running, 0u);
    }
    EXPECT_TRUE(sched_.Requests().empty());
  }

  uint64_t admitted = 0, rejected = 0, degraded = 0, cancelled = 0;

 private:
  struct Run {
    ReplicaId engine{0};
    uint32_t prompt = 0, most = 0, generated = 0;  // tokens; most 0: any
  };

  uint64_t UpTo(uint64_t n) { return random_() % (n + 1); }

  template <typename Map>
  absl::optional<RequestId> Any(const Map& map) {
    if (map.empty()) return absl::nullopt;
    return std::next(map.begin(),
                     static_cast<std::ptrdiff_t>(UpTo(map.size() - 1)))
        ->first;
  }
  absl::optional<RequestId> AnyRunning() { return Any(running_); }

  void SetEngine() {
    SetEngine(ReplicaId{static_cast<uint32_t>(UpTo(kEngines - 1))},
              UpTo(3) == 0 ? UpTo(500) : UpTo(12'000));
  }
  void SetEngine(ReplicaId engine, uint64_t tokens) {
    kv_[engine] = tokens;
    ASSERT_TRUE(
        sched_.SetEngine(engine, ModelOf(engine), {tokens, 50'000, 10}).ok());
  }
  void EngineGone() {
    const ReplicaId engine{static_cast<uint32_t>(UpTo(kEngines - 1))};
    sched_.EngineGone(engine);
    kv_.erase(engine);
    for (auto r = running_.begin(); r != running_.end();) {
      r = r->second.engine == engine ? running_.erase(r) : std::next(r);
    }
  }
  void Cancel(RequestId id) {
    sched_.Cancel(id);
    waiting_.erase(id);
    ++cancelled;
  }
  void Finish(RequestId id) {
    sched_.Finished(id, static_cast<uint32_t>(UpTo(600)));
    running_.erase(id);
  }

  // Grows a request by some tokens, now and then by more than it may grow.
  void Grow(RequestId id) {
    Run& run = running_.at(id);
    const auto reported =
        static_cast<uint32_t>(run.generated + UpTo(UpTo(9) ? 300 : 90'000));
    sched_.Progress(id, reported);
    run.generated = run.most == 0 ? reported : std::min(reported, run.most);
  }

  void Submit() {
    Submission s;
    s.id = RequestId{++next_id_};
    s.model = ModelId{static_cast<uint32_t>(UpTo(kModels - 1))};
    s.prompt_tokens = static_cast<uint32_t>(1 + UpTo(UpTo(3) ? 300 : 4000));
    if (UpTo(200) == 0) s.prompt_tokens = 60'000;
    s.max_tokens = static_cast<uint32_t>(UpTo(300));
    s.arrival = now_;
    if (UpTo(3) == 0) s.slo_ttft_us = static_cast<Micros>(1 + UpTo(300'000));
    s.priority = static_cast<int32_t>(UpTo(2)) - 1;
    s.tenant = std::string(1, static_cast<char>('a' + UpTo(2)));
    s.degrade_ok = UpTo(4) == 0;
    ASSERT_TRUE(sched_.Submit(s).ok());
    waiting_[s.id] = s;
  }

  void Decide() {
    const auto before = sched_.Engines(now_);
    std::map<ReplicaId, uint64_t> sent;
    for (const Decision& d : sched_.Decide(now_)) {
      const auto asked = waiting_.find(d.id);
      ASSERT_NE(asked, waiting_.end()) << Number(d.id) << " decided twice";
      if (d.engine) {
        Check(asked->second, d, before.at(*d.engine), &sent[*d.engine]);
        const Submission& s = asked->second;
        running_[d.id] = {*d.engine, s.prompt_tokens, s.max_tokens};
        ++(d.degraded ? degraded : admitted);
      } else {
        ++rejected;
        ASSERT_GE(d.retry_after, 0);
      }
      waiting_.erase(asked);
    }
    for (const auto& [engine, tokens] : sent) CheckRoom(engine);
    CheckFigures();
  }

  // Before this round of decisions, the engine was as `before`; in this round,
  // it has already been sent *sent tokens.
  void Check(const Submission& asked, const Decision& d,
             const EngineFigures& before, uint64_t* sent) {
    ASSERT_EQ(before.model, asked.model);
    ASSERT_TRUE(!d.degraded || asked.degrade_ok);
    const uint64_t behind = before.backlog_tokens + *sent;
    if (behind > 0) {
      ASSERT_LE(behind + asked.prompt_tokens, 2 * kChunk);
    }
    *sent += asked.prompt_tokens;
  }

  // Requests just sent to the engine had room beside what runs.
  void CheckRoom(ReplicaId engine) {
    ASSERT_LE(sched_.Engines(now_).at(engine).held_tokens, kv_.at(engine));
  }

  void CheckFigures() {
    std::map<ReplicaId, uint32_t> batch;
    std::map<ReplicaId, uint64_t> filled;
    for (const auto& [id, run] : running_) {
      ++batch[run.engine];
      filled[run.engine] += uint64_t{run.prompt} + run.generated;
    }
    for (const auto& [engine, figures] : sched_.Engines(now_)) {
      ASSERT_EQ(figures.running, batch[engine]);
      ASSERT_GE(figures.held_tokens, filled[engine]) << "KV that is not booked";
      ASSERT_LE(figures.running, kMostBatch);
    }
    uint32_t queued = 0;
    for (uint32_t m = 0; m < kModels; ++m) {
      queued += sched_.Figures(ModelId{m}).queued;
    }
    ASSERT_EQ(queued, waiting_.size());
    ASSERT_EQ(sched_.Requests().size(), waiting_.size() + running_.size());
  }

  std::mt19937_64 random_;
  LocalScheduler sched_;
  std::map<RequestId, Submission> waiting_;
  std::map<RequestId, Run> running_;
  std::map<ReplicaId, uint64_t> kv_;
  uint64_t next_id_ = 0;
  Micros now_ = 1'000'000;
};

class SchedulerPropertyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SchedulerPropertyTest, EveryRequestIsDecidedOnceAndNoCapIsBroken) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomWorld world(GetParam(), seed);
  for (int i = 0; i < 30'000 && !testing::Test::HasFatalFailure(); ++i) {
    world.Step();
  }
  if (testing::Test::HasFatalFailure()) return;
  world.Drain();
  EXPECT_GT(world.admitted, 1000u);
  EXPECT_GT(world.cancelled, 100u);
  EXPECT_GT(world.rejected, 10u);
  const bool drops = std::string(GetParam()) != "fcfs";
  EXPECT_GE(world.degraded, drops ? 10u : 0u);
}

INSTANTIATE_TEST_SUITE_P(Policies, SchedulerPropertyTest,
                         ::testing::Values("fineserve", "moore-hodgson",
                                           "fcfs"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace fineserve::sched
