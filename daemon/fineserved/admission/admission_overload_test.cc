// Tests of equal replicas on several GPUs that give up weights for KV.

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "daemon/fineserved/admission/admission_fixture.h"

namespace fineserve::admission {
namespace {

using overload::Why;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Model "small" on this GPU and on another GPU, each with 8 MB of weights. A
// token has 256 bytes of KV.
class DropTest : public AdmissionServiceTest {
 protected:
  static constexpr uint64_t kCopy = 8'000'000;
  static constexpr uint64_t kTokenBytes = 256;
  // At this rate an engine reads its own weights in half of a step.
  static constexpr double kLinkGbS = 16;

  DropTest() {
    sights_ = {SightOf("small-a", "GPU-1234", 11),
               SightOf("small-b", "GPU-2", 22)};
    drops_.would_grow = [this](uint64_t short_bytes) {
      EXPECT_GT(short_bytes, 0u);
      return grows_;
    };
    drops_.grow = [this] { ++grown_; };
    drops_.look = [this] { return sights_; };
    drops_.drop = [this](const std::string& engine,
                         const abi::ShareAddress& lender, uint64_t bytes) {
      asked_bytes_ = bytes;
      ordered_.push_back("drop " + engine + " for " +
                         std::to_string(lender.pid));
      dropped_of_small_a_.moves = true;
      return true;
    };
    drops_.restore = [this](const std::string& engine) {
      ordered_.push_back("restore " + engine);
      dropped_of_small_a_.moves = true;
      return true;
    };
    Begin(FleetWith(kLinkGbS));
  }
  static config::Fleet FleetWith(double link_gb_s) {
    config::Fleet fleet = TwoModels();
    fleet.models[0].max_batch = 64;
    fleet.models[0].slo_tpot_ms = 50;
    fleet.engines.push_back({"small-b", "small", "127.0.0.1", 4, "GPU-2", {}});
    fleet.overload.link_gb_s = link_gb_s;
    fleet.overload.rereads = 1;
    return fleet;
  }
  void Begin(const config::Fleet& fleet) {
    service_ = ServiceOf(fleet, kEpoch);
    SetKv(0);
    Pass(1);
  }
  static AdmissionService::Sight SightOf(const std::string& name,
                                         const std::string& gpu, uint32_t pid) {
    AdmissionService::Sight sight;
    sight.name = name;
    sight.gpu = gpu;
    sight.frozen_bytes = kCopy;
    sight.address.pid = pid;
    sight.in_reach = true;
    return sight;
  }
  // Sets a capacity of 2,000 tokens plus that of the dropped bytes.
  void SetKv(uint64_t dropped) {
    const uint64_t tokens = 2000 + dropped / kTokenBytes;
    view_of_small_a_ = EngineKv::View{tokens, 200'000, 0, kTokenBytes};
    dropped_of_small_a_ = {dropped, dropped == 0 ? 0u : 22u};
    dropped_of_small_a_.of_bytes = kCopy;
  }
  // Lets time pass in steps of a tenth of a second, like the loop while
  // something is due.
  void Pass(double seconds) {
    for (int i = 0; i < seconds * 10; ++i) {
      clock_.AdvanceNs(100'000'000);
      sent_.clear();
      if (i % 10 == 0) Hello();
      service_->Settle();
    }
    sent_.clear();
  }
  // Sends so many prompts that all KV is promised and others wait.
  void Burst(uint64_t first = 1) {
    for (uint64_t n = first; n < first + 12; ++n) {
      wire::SubmitT submit = Ask("small", 400);
      submit.max_tokens = 50;
      submit.slo_ttft_us = 60'000'000;
      Send(n, std::move(submit));
    }
    sent_.clear();
  }
  void EndBurst(uint64_t first = 1) {
    for (uint64_t n = first; n < first + 12; ++n) Finish(n, 50);
    sent_.clear();
  }
  std::vector<std::string> Ordered() { return std::exchange(ordered_, {}); }
  std::string WhyNot() {
    const wire::ModelsT models = Models();
    return models.models[0]->engines[0]->keeps_weights;
  }

  Why grows_ = Why::kDrops;
  int grown_ = 0;
  absl::optional<std::vector<AdmissionService::Sight>> sights_;
  std::vector<std::string> ordered_;
  uint64_t asked_bytes_ = 0;  // by the last order to drop
};

TEST_F(DropTest, BurstDropsAndItsEndRestores) {
  Pass(3);
  EXPECT_THAT(Ordered(), IsEmpty());
  EXPECT_EQ(WhyNot(), "KV is not short");
  Burst();
  Pass(1);
  EXPECT_THAT(Ordered(), ElementsAre("drop small-a for 22"));
  Pass(1);
  EXPECT_THAT(Ordered(), IsEmpty()) << "one at a time";
  EXPECT_EQ(grown_, 0);
  // 12 requests of 450 tokens are short of 0.9 MB.
  EXPECT_EQ(asked_bytes_, kCopy / 8) << "the part of half a copy";
  dropped_of_small_a_ = {kCopy / 2, 22};
  dropped_of_small_a_.of_bytes = kCopy;
  Pass(1);
  EXPECT_GT(grown_, 0) << "the pool has not grown yet";
  SetKv(kCopy / 2);
  Pass(2);
  sent_.clear();
  const wire::ModelsT models = Models();
  const wire::EngineFiguresT& engine = *models.models[0]->engines[0];
  EXPECT_EQ(engine.dropped_bytes, kCopy / 2);
  EXPECT_EQ(engine.lender_pid, 22u);
  EXPECT_NEAR(engine.dropped_s, 3, .2);
  EXPECT_GT(engine.running, 4u) << "all of the burst has room";
  const wire::WelcomeT welcome = Hello();
  ASSERT_EQ(welcome.reading.size(), 1u) << "proxies know it, too";
  EXPECT_EQ(welcome.reading[0]->engine, "small-a");
  EXPECT_EQ(welcome.reading[0]->bytes, kCopy / 2);
  EXPECT_EQ(welcome.reading[0]->lender_pid, 22u);
  EXPECT_NEAR(welcome.reading[0]->s, 3, .2);
  EXPECT_EQ(welcome.reading[0]->step_us, engine.reads_us);
  EXPECT_THAT(Ordered(), IsEmpty()) << "it runs";
  EndBurst();
  Pass(1);
  EXPECT_THAT(Ordered(), ElementsAre("restore small-a"));
  SetKv(0);
  Pass(3);
  EXPECT_THAT(Ordered(), IsEmpty());
  Burst(100);
  Pass(1);
  EXPECT_THAT(Ordered(), ElementsAre("drop small-a for 22"));
}

TEST_F(DropTest, ReadsAreInTheRoomAndKappaDoesNotLearnThem) {
  const auto ttft = [&](uint64_t request) {
    Send(request, Ask("small", 100));
    const wire::VerdictT verdict = Verdict(request);
    EXPECT_TRUE(verdict.admitted);
    return verdict.predicted_ttft_ms;
  };
  const uint32_t own = ttft(1);
  Finish(1, 1);
  // 8 MB at 16 GB/s take 500 µs, which a step of 1 ms hides; over a link with a
  // tenth of that rate they take 5 ms.
  Begin(FleetWith(kLinkGbS / 10));
  SetKv(kCopy);
  Pass(1);
  for (uint64_t n = 10; n < 40; ++n) {
    const uint32_t reads = ttft(n);
    ASSERT_EQ(reads, own + 3) << n;  // 5 ms less the 2 ms of work
    clock_.AdvanceNs(uint64_t{reads} * 1'000'000);
    wire::FirstTokenT first;
    Send(n, std::move(first));
    Finish(n, 1);
    sent_.clear();
  }
  EXPECT_NEAR(service_->Measure().engines[0].kappa, 1, .1);
  EXPECT_GT(Models().models[0]->engines[0]->reads_us, 3000);
  SetKv(0);
  Pass(1);
  EXPECT_EQ(ttft(50), own) << "restored";
}

TEST_F(DropTest, NothingIsDroppedAndTheReasonIsSaid) {
  const auto refused = [&] {
    static uint64_t first = 1000;
    first += 100;
    Burst(first);
    Pass(2);
    EXPECT_THAT(Ordered(), IsEmpty());
    const std::string why = WhyNot();
    EndBurst(first);
    Pass(1);
    return why;
  };
  const auto all = *sights_;
  const auto other = [&]() -> AdmissionService::Sight& {
    sights_ = all;
    return (*sights_)[1];
  };
  grows_ = Why::kFixedPool;
  EXPECT_THAT(refused(), HasSubstr("the pool has a fixed size"));
  grows_ = Why::kDrops;
  sights_->pop_back();
  EXPECT_EQ(refused(), "there is no other replica");
  other().frozen_bytes = kCopy - 1;
  EXPECT_EQ(refused(), "no other replica has the same weights");
  other().frozen_bytes = 0;  // it writes them, and has thawed them
  EXPECT_EQ(refused(), "no other replica has the same weights");
  other().in_reach = false;
  EXPECT_EQ(refused(), "no GPU of an equal replica can be read from");
  other().readers = 1;
  EXPECT_EQ(refused(),
            "all equal replicas in reach lend or have dropped theirs");
  other().lender_pid = 33;  // a third one's
  EXPECT_EQ(refused(),
            "all equal replicas in reach lend or have dropped theirs");
  other().name = "large-b";
  EXPECT_EQ(refused(), "there is no other replica") << "another model's";
  other();
  (*sights_)[0].frozen_bytes = 0;
  EXPECT_THAT(refused(), HasSubstr("fs_weights_freeze"));
  other();
  (*sights_)[0].readers = 1;  // a third one
  EXPECT_EQ(refused(),
            "all equal replicas in reach lend or have dropped theirs");
  sights_.reset();
  refused();  // it looks still
}

TEST_F(DropTest, OneThatIsReadDropsToo) {
  (*sights_)[0].readers = 1;
  (*sights_)[1].lender_pid = 11;
  (*sights_)[1].dropped_bytes = kCopy / 2;
  Burst();
  Pass(1);
  EXPECT_THAT(Ordered(), ElementsAre("drop small-a for 22"));
}

TEST_F(DropTest, SwitchedOffOrWithoutALinkNothingIsDroppedOrRestored) {
  config::Fleet never = FleetWith(kLinkGbS);
  never.overload.may_drop = false;
  for (const config::Fleet& fleet : {never, FleetWith(0)}) {
    Begin(fleet);
    Burst();
    Pass(3);
    SetKv(kCopy);
    EndBurst();
    Pass(5);
    EXPECT_THAT(Ordered(), IsEmpty());
    EXPECT_EQ(WhyNot(), "");
    EXPECT_NEAR(Models().models[0]->engines[0]->dropped_s, 5, .2);
  }
}

TEST_F(DropTest, RefusalOfTheMechanismIsTheReasonAndTheNextTryIsLater) {
  Burst();
  Pass(1);
  EXPECT_THAT(Ordered(), ElementsAre("drop small-a for 22"));
  dropped_of_small_a_.moves = false;
  dropped_of_small_a_.trouble = "its parameters are not those of the other";
  Pass(1);
  EXPECT_EQ(WhyNot(), "its parameters are not those of the other");
  Pass(30);
  EXPECT_LE(Ordered().size(), 4u);
}

TEST_F(DropTest, IdleEngineLeavesBeforeWeightsAreDropped) {
  config::Fleet fleet = FleetWith(kLinkGbS);
  fleet.engines[1].may_evict = true;  // "large-a"
  Begin(fleet);
  Pass(60);  // it has not just come
  Burst();
  Pass(.5);
  EXPECT_THAT(evicted_, ElementsAre("large-a"));
  EXPECT_THAT(Ordered(), IsEmpty());
  away_.insert("large-a");
  Pass(2);
  EXPECT_THAT(Ordered(), ElementsAre("drop small-a for 22"));
}

TEST_F(DropTest, BytesThatAreReadAreCounted) {
  SetKv(kCopy);
  steps_of_small_a_ = 100;
  Pass(1);
  steps_of_small_a_ = 107;
  Pass(1);
  SetKv(0);
  Pass(1);
  steps_of_small_a_ = 200;
  Pass(1);
  EXPECT_EQ(service_->Measure().engines[0].peer_read_bytes, 7 * kCopy);
}

}  // namespace
}  // namespace fineserve::admission
