#ifndef DAEMON_FINESERVED_ADMISSION_ADMISSION_FIXTURE_H_
#define DAEMON_FINESERVED_ADMISSION_ADMISSION_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/contract/wire/message.h"
#include "daemon/fineserved/admission/admission_service.h"

namespace fineserve::admission {

inline constexpr uint64_t kEpoch = 77;
inline constexpr char kProxy[] = "proxy";
// A slab holds 4 blocks of 16 tokens, and the pool has 8 slabs.
inline constexpr uint32_t kSlabTokens = 64;
inline constexpr uint64_t kPoolTokens = 8 * kSlabTokens;

inline config::Fleet TwoModels() {
  config::Fleet fleet;
  config::FleetModel small;
  small.name = "small";
  small.slo_ttft_ms = 500;
  small.kv_token_bytes = 256;
  small.profile = {1000, 10, 10};
  config::FleetModel large = small;
  large.name = "large";
  fleet.models = {small, large};
  fleet.engines = {{"small-a", "small", "127.0.0.1", 1, "", {}},
                   {"large-a", "large", "127.0.0.1", 2, "GPU-1", {}},
                   {"far-away", "large", "127.0.0.1", 3, "GPU-2", {}}};
  return fleet;
}

// A pool of 8 slabs; one proxy; engines "small-a" and "large-a".
class AdmissionServiceTest : public ::testing::Test {
 protected:
  AdmissionServiceTest() { clock_.AdvanceNs(1'000'000'000); }

  template <typename Body>
  void Send(uint64_t request, Body body, uint64_t epoch = kEpoch,
            const std::string& peer = kProxy) {
    service_->Handle(peer, wire::Encode(epoch, request, std::move(body)));
    service_->Settle();
  }
  static wire::HelloT Greeting(const std::vector<std::string>& engines,
                               bool serves = true) {
    wire::HelloT hello;
    for (const std::string& name : engines) {
      hello.engines.push_back(std::make_unique<wire::EngineHealthT>());
      hello.engines.back()->name = name;
      hello.engines.back()->serves = serves;
    }
    return hello;
  }
  // Greets as a proxy that knows this epoch and runs nothing. Returns the
  // answer.
  wire::MessageT Greet(uint64_t epoch, bool reset, bool serves = true,
                       const std::string& peer = kProxy) {
    wire::HelloT hello = Greeting({"small-a", "large-a"}, serves);
    hello.reset = reset;
    Send(0, std::move(hello), epoch, peer);
    return Next();
  }
  // Greets as a proxy does: if the service is new or has forgotten the proxy,
  // greets a second time with all that runs.
  wire::WelcomeT Hello(bool serves = true, const std::string& peer = kProxy) {
    const auto greet = [&](bool reset) {
      return Greet(epochs_[peer], reset, serves, peer);
    };
    wire::MessageT answer = greet(false);
    if (answer.body.AsRefused() != nullptr) {
      epochs_[peer] = 0;
      answer = greet(false);
    }
    if (std::exchange(epochs_[peer], answer.epoch) != answer.epoch) {
      answer = greet(true);
    }
    const wire::WelcomeT* welcome = answer.body.AsWelcome();
    EXPECT_NE(welcome, nullptr);
    return welcome == nullptr ? wire::WelcomeT() : *welcome;
  }
  static wire::SubmitT Ask(const std::string& model, uint32_t prompt_tokens) {
    wire::SubmitT submit;
    submit.model = model;
    submit.prompt_tokens = prompt_tokens;
    submit.max_tokens = 1;
    return submit;
  }
  // Builds a Progress from pairs of a request and its output tokens so far.
  static wire::ProgressT ProgressOf(
      const std::vector<std::pair<uint64_t, uint32_t>>& streams) {
    wire::ProgressT progress;
    for (const auto& [request, output_tokens] : streams) {
      auto stream = std::make_unique<wire::StreamProgressT>();
      stream->request = request;
      stream->output_tokens = output_tokens;
      progress.streams.push_back(std::move(stream));
    }
    return progress;
  }
  // Returns the service's oldest message that has not been looked at yet;
  // without a body if there is none.
  wire::MessageT Next() {
    if (sent_.empty()) return {};
    const auto message = wire::Decode(sent_.front().second);
    sent_.pop_front();
    return message.ok() ? *message : wire::MessageT();
  }
  wire::VerdictT Verdict(uint64_t request) {
    const wire::MessageT message = Next();
    EXPECT_EQ(message.request, request);
    const wire::VerdictT* verdict = message.body.AsVerdict();
    EXPECT_NE(verdict, nullptr);
    return verdict == nullptr ? wire::VerdictT() : *verdict;
  }
  std::string Refusal() {
    const wire::MessageT message = Next();
    const wire::RefusedT* refused = message.body.AsRefused();
    EXPECT_NE(refused, nullptr);
    return refused == nullptr ? "" : refused->why;
  }
  // Gives "small-a" an active view that may grow to `cap_tokens`.
  void ServeFromThePool(uint64_t cap_tokens = kPoolTokens) {
    view_of_small_a_ = EngineKv::View{cap_tokens, cap_tokens, 0};
  }
  // Gives both engines active views. Each engine can count on the slabs that
  // were not promised to the other engine.
  void ShareThePool() { shared_ = true; }
  std::vector<EngineKv> AskPool(const std::vector<EngineNeed>& needs) {
    asked_ = needs;
    std::vector<EngineKv> all(needs.size());
    for (size_t i = 0; i < needs.size(); ++i) {
      if (needs[i].name == "small-a") {
        all[i].view = view_of_small_a_;
        all[i].dropped = dropped_of_small_a_;
        all[i].steps = steps_of_small_a_;
      }
      const auto away = back_in_.find(needs[i].name);
      if (away != back_in_.end()) all[i].back_in = away->second;
      if (!shared_) continue;
      uint64_t left = kPoolTokens;
      for (size_t j = 0; j < needs.size(); ++j) {
        if (j != i) left -= std::min(left, WholeSlabs(needs[j]));
      }
      all[i].view = EngineKv::View{left, kPoolTokens, 0};
    }
    return all;
  }
  static uint64_t WholeSlabs(const EngineNeed& need) {
    return (need.promised_tokens + kSlabTokens - 1) / kSlabTokens * kSlabTokens;
  }
  std::unique_ptr<AdmissionService> ServiceOf(const config::Fleet& fleet,
                                              uint64_t epoch) {
    return *AdmissionService::Create(
        fleet, "GPU-1234", epoch,
        {[this](const std::vector<EngineNeed>& needs) {
           return AskPool(needs);
         },
         [] {
           return GpuFacts{80'000, 10'000, 3'000, {}, 70'000};
         },
         &clock_, &drained_, &plans_,
         [this](const std::string& engine) { needed_.insert(engine); },
         [this](const std::string& engine) -> absl::optional<evict::Residence> {
           const bool is_here = engine != "far-away" || has_rank_of_far_away_;
           if (!is_here) return absl::nullopt;
           const bool is_away = away_.count(engine) != 0;
           return evict::Residence{is_away ? 0 : kGiB, 1'000'000,
                                   is_away ? kGiB : 0};
         },
         [this](const std::string& engine) {
           evicted_.push_back(engine);
           return away_.count(engine) == 0;
         },
         [this](const std::string&) { return far_away_is_busy_; }, drops_,
         [](const std::string& engine) { return engine.size(); }},
        [this](const std::string& peer, absl::string_view bytes) {
          if (!reachable_) return false;
          sent_.emplace_back(peer, std::string(bytes));
          return true;
        });
  }
  // Acts like fsctl drain and undrain, for an engine or, if none is named, the
  // GPU. True if it is done.
  bool Drain(const std::string& engine, bool on = true, bool moves = false) {
    wire::DrainT drain;
    drain.engine = engine;
    drain.on = on;
    drain.moves = moves;
    Send(5, std::move(drain), 0, "fsctl");
    if (sent_.empty() ||
        wire::Decode(sent_.front().second)->body.AsDone() == nullptr) {
      return false;  // the refusal is next
    }
    sent_.pop_front();
    return true;
  }
  bool EmptyTheGpu() { return Drain("", /*on=*/true, /*moves=*/true); }
  void Finish(uint64_t request, uint32_t output_tokens) {
    wire::FinishedT finished;
    finished.output_tokens = output_tokens;
    Send(request, std::move(finished));
  }
  // Has the proxy greet with a running request that an earlier daemon admitted.
  void GreetWithARunningOne(uint64_t request, uint32_t prompt_tokens,
                            uint32_t max_tokens, uint32_t output_tokens) {
    wire::HelloT hello = Greeting({"small-a"});
    auto running = std::make_unique<wire::RunningRequestT>();
    running->request = request;
    running->engine = "small-a";
    running->prompt_tokens = prompt_tokens;
    running->max_tokens = max_tokens;
    running->output_tokens = output_tokens;
    hello.running.push_back(std::move(running));
    Send(0, std::move(hello), 0);
    Next();
  }
  wire::ModelsT Models() {
    Send(0, wire::ModelsQueryT(), 0, "fsctl");
    const wire::MessageT message = Next();
    const wire::ModelsT* models = message.body.AsModels();
    EXPECT_NE(models, nullptr);
    return models == nullptr ? wire::ModelsT() : *models;
  }
  uint64_t TotalRequests() {
    Send(0, wire::RequestsQueryT(), 0, "fsctl");
    const wire::MessageT message = Next();
    const wire::RequestsT* requests = message.body.AsRequests();
    EXPECT_NE(requests, nullptr);
    return requests == nullptr ? 0 : requests->total;
  }

  std::map<std::string, uint64_t> epochs_;  // that proxies know
  DrainedEngines drained_{""};
  PlanBoard plans_;
  ManualClock clock_;
  bool reachable_ = true;  // by messages of the service
  absl::optional<EngineKv::View> view_of_small_a_;
  EngineKv::Dropped dropped_of_small_a_;
  uint64_t steps_of_small_a_ = 0;
  AdmissionService::Drops drops_;
  bool shared_ = false;
  std::vector<EngineNeed> asked_;  // last of the pool
  std::vector<std::string> evicted_;
  std::set<std::string> needed_;
  std::map<std::string, sched::Micros> back_in_;
  static constexpr uint64_t kGiB = 1ULL << 30;
  std::set<std::string> away_;  // engines that are not on the GPU
  // "far-away", which another daemon admits.
  bool has_rank_of_far_away_ = false;
  bool far_away_is_busy_ = false;
  std::deque<std::pair<std::string, std::string>> sent_;
  std::unique_ptr<AdmissionService> service_ = ServiceOf(TwoModels(), kEpoch);
};

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_ADMISSION_FIXTURE_H_
