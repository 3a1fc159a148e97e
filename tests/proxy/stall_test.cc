// A proxy and a daemon, either of which may stop for a while and continue, as
// on a machine that swaps, in a debugger or on a suspended laptop. No request
// may wait forever, and the books of both must agree in the end.

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "daemon/contract/wire/message.h"
#include "daemon/fineserved/admission/admission_service.h"
#include "daemon/proxy/admission/gpu_admission.h"
#include "tools/lab/process/random_seed.h"

namespace fineserve::proxy_tests {
namespace {

constexpr char kPeer[] = "proxy";
constexpr uint64_t kMsNs = 1'000'000;
constexpr uint64_t kStepNs = 50 * kMsNs;
constexpr uint64_t kBeatNs = 250 * kMsNs;
constexpr uint64_t kLongAnswerNs = 4000 * kMsNs;

config::Fleet OneEngine() {
  config::Fleet fleet;
  fleet.models.resize(1);
  config::FleetModel& model = fleet.models[0];
  model.name = "m";
  model.slo_ttft_ms = 3'600'000;  // no request is refused for being late
  model.kv_token_bytes = 256;
  model.max_batch = 4;
  model.profile = {1000, 10, 10};
  fleet.engines = {{"a", "m", "127.0.0.1", 1, "", {}}};
  return fleet;
}

// One of the two ends, which may be stopped. Its messages are kept, as in a
// socket.
struct End {
  std::deque<std::string> incoming;
  uint64_t stalled_until_ns = 0;
  bool was_stalled = false;
};

class StallTest : public ::testing::Test {
 protected:
  StallTest() {
    RecordProperty("seed", std::to_string(seed_));
    clock_.AdvanceNs(1000 * kMsNs);
    admission_.SetSend([this](absl::string_view bytes) {
      daemon_.incoming.emplace_back(bytes);
      return true;
    });
  }

  uint64_t Between(uint64_t least, uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(least, most)(random_);
  }
  void Stall(End* end, uint64_t ns) {
    end->stalled_until_ns = clock_.NowNs() + ns;
    end->was_stalled = true;
  }
  // True if `end` runs now. It may first do what is due by time and only then
  // read what has come, because another thread reads sockets for it.
  bool Runs(const End& end) const {
    return clock_.NowNs() >= end.stalled_until_ns;
  }
  bool ReadsFirst(End* end) {
    return !std::exchange(end->was_stalled, false) || Between(0, 1) == 0;
  }

  void Submit() {
    proxy::AdmissionRequest request;
    request.id = ++submitted_;
    request.model = "m";
    request.prompt_tokens = 10;
    request.arrived_ns = clock_.NowNs();
    admission_.Submit(request, [this, id = request.id](proxy::Verdict v) {
      ++told_[id];
      if (!v.admitted) return;
      runs_until_[id] = clock_.NowNs() + Between(kStepNs, kLongAnswerNs);
    });
  }
  void EndAnswers() {
    for (auto it = runs_until_.begin(); it != runs_until_.end();) {
      const auto [id, until] = *it;
      if (clock_.NowNs() < until) {
        ++it;
        continue;
      }
      it = runs_until_.erase(it);
      admission_.Finished(id, 10, 5, proxy::Outcome::kDone);
    }
  }
  void Read(End* end) {
    while (!end->incoming.empty()) {
      const std::string bytes = std::move(end->incoming.front());
      end->incoming.pop_front();
      if (end == &daemon_) {
        service_->Handle(kPeer, bytes);
      } else {
        admission_.Receive(bytes);
      }
    }
  }
  void RunDaemon() {
    if (ReadsFirst(&daemon_)) Read(&daemon_);
    service_->Settle();
    Read(&daemon_);
    service_->Settle();
  }
  void RunProxy(bool takes_more) {
    if (ReadsFirst(&proxy_)) Read(&proxy_);
    if (clock_.NowNs() >= beat_ns_) {
      beat_ns_ = clock_.NowNs() + kBeatNs;
      admission_.Tick();
    }
    Read(&proxy_);
    EndAnswers();
    for (uint64_t n = Between(0, 2); takes_more && n > 0; --n) Submit();
  }
  void Step(bool takes_more) {
    clock_.AdvanceNs(kStepNs);
    if (Runs(proxy_)) RunProxy(takes_more);
    if (Runs(daemon_)) RunDaemon();
  }
  // Returns the number of requests that wait or run according to the daemon's
  // books.
  uint64_t InBooks() {
    service_->Handle("fsctl", wire::Encode(0, 0, wire::RequestsQueryT()));
    return books_;
  }

  const unsigned seed_ = process::RandomSeed();
  std::mt19937 random_{seed_};
  ManualClock clock_;
  End proxy_, daemon_;
  admission::DrainedEngines drained_{""};
  admission::PlanBoard plans_;
  proxy::GpuAdmission admission_{
      std::make_shared<const config::Fleet>(OneEngine()), &clock_};
  std::unique_ptr<admission::AdmissionService> service_ =
      *admission::AdmissionService::Create(
          OneEngine(), "GPU-1", 77,
          {[](const std::vector<admission::EngineNeed>& needs) {
             return std::vector<admission::EngineKv>(needs.size());
           },
           [] { return admission::GpuFacts(); }, &clock_, &drained_, &plans_},
          [this](const std::string& peer, absl::string_view bytes) {
            if (peer == kPeer) {
              proxy_.incoming.emplace_back(bytes);
            } else {
              books_ = wire::Decode(bytes)->body.AsRequests()->total;
            }
            return true;
          });
  uint64_t beat_ns_ = 0;
  uint64_t submitted_ = 0;
  uint64_t books_ = 0;
  std::map<uint64_t, int> told_;  // how many verdicts, by request
  std::map<uint64_t, uint64_t> runs_until_;
};

TEST_F(StallTest, EveryRequestIsDecidedOnceWhicheverSideStopsForAWhile) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  for (int round = 0; round < 300; ++round) {
    for (uint64_t n = Between(1, 80); n > 0; --n) Step(/*takes_more=*/true);
    Stall(Between(0, 1) == 0 ? &proxy_ : &daemon_,
          Between(500 * kMsNs, 10'000 * kMsNs));
    while (!Runs(proxy_) || !Runs(daemon_)) Step(/*takes_more=*/true);
    // An answer takes at most 4 s, and 4 answers run at the same time.
    const uint64_t patience = submitted_ * kLongAnswerNs / kStepNs;
    for (uint64_t n = 0; n < patience; ++n) {
      if (told_.size() == submitted_ && runs_until_.empty()) break;
      Step(/*takes_more=*/false);
    }
    ASSERT_EQ(told_.size(), submitted_) << "round " << round;
    for (int n = 0; n < 4; ++n) Step(/*takes_more=*/false);
    ASSERT_EQ(InBooks(), 0u) << "round " << round;
  }
  for (const auto& [id, times] : told_) EXPECT_EQ(times, 1) << "request " << id;
}

}  // namespace
}  // namespace fineserve::proxy_tests
