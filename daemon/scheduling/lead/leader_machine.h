#ifndef DAEMON_SCHEDULING_LEAD_LEADER_MACHINE_H_
#define DAEMON_SCHEDULING_LEAD_LEADER_MACHINE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/message.h"
#include "daemon/scheduling/lead/lead_fixture.h"
#include "daemon/scheduling/lead/leader.h"

namespace fineserve::lead {

inline constexpr double kMemoryGib = 8, kPoolGib = 5;

// A machine with two GPUs, in steps of a second: daemons that keep the newest
// plan, a hand that runs engines by this plan, engines that take time to start,
// and clients. Each of them can be dead. The leader is the real one.
class LeaderMachine {
 public:
  explicit LeaderMachine(const config::Fleet& fleet) : fleet_(fleet) {
    char path[] = "/tmp/leader_test.XXXXXX";
    folder_ = mkdtemp(path);
    for (const config::FleetEngine& e : fleet_.engines) {
      for (const std::string& gpu : e.Gpus()) gpus_[gpu];
    }
    for (const config::FleetModel& m : fleet_.models) rates_[m.name] = 1;
    clock_.AdvanceNs(1000 * kSecond);
  }
  ~LeaderMachine() {
    leader_.reset();
    std::filesystem::remove_all(folder_);
  }

  void SetRate(const std::string& model, double rate) { rates_[model] = rate; }
  // Sets the host memory that both daemons report.
  void SetHost(double gib) { host_gib_ = gib; }
  // Makes daemons measure this many bytes for a process; a process that starts
  // takes ten times that.
  void SetMeasured(uint64_t bytes) { measured_bytes_ = bytes; }
  void SetSettings(const config::PlannerSettings& s) { fleet_.planner = s; }

  // Kills the leader for `seconds` from now.
  void KillLeader(int seconds) {
    leader_.reset();
    leader_dead_ = seconds;
  }
  void KillDaemon(const std::string& gpu, int seconds) {
    gpus_[gpu] = {};
    gpus_[gpu].dead = seconds;
  }
  void KillHand(int seconds) { hand_dead_ = seconds; }
  void Drain(const std::string& gpu, bool on) { gpus_[gpu].drained = on; }
  // While this is on, proxies get no further plan.
  void DeafenProxies(bool on) { proxies_are_deaf_ = on; }
  void KillEngine(const std::string& engine) {
    age_.erase(engine);
    resting_.erase(engine);
  }
  // It never serves.
  void Break(const std::string& engine) { broken_.insert(engine); }

  void Second() {
    clock_.AdvanceNs(kSecond);
    for (auto& [model, rate] : rates_) arrived_[model] += rate;
    RunHand();
    for (auto& [engine, seconds] : age_) ++seconds;
    RunLeader();
    CheckPlan();
    for (auto& [gpu, daemon] : gpus_) daemon.dead -= daemon.dead > 0 ? 1 : 0;
  }
  void Seconds(int n) {
    for (int i = 0; i < n; ++i) Second();
  }

  // Expects from now on that every model is answered all the time, since no
  // process dies.
  void ExpectAnswers() { expects_answers_ = true; }

  const StandingPlan& plan() const { return plan_; }
  Leader* leader() { return leader_.get(); }
  const std::string& folder() const { return folder_; }
  std::set<std::string> Running() const {
    std::set<std::string> running;
    for (const auto& [engine, age] : age_) running.insert(engine);
    return running;
  }
  // Returns the engines whose processes exist although they are off.
  const std::set<std::string>& resting() const { return resting_; }
  // Pins the model to a GPU, and waits until it serves there alone.
  void Bring(const std::string& model, const std::string& gpu) {
    wire::SteerT pin;
    pin.pin = model;
    pin.gpu = absl::StrCat("GPU-", gpu);
    ASSERT_TRUE(leader_->Steer(pin).ok());
    Seconds(40);
    ASSERT_EQ(Serving(model),
              std::vector<std::string>{absl::StrCat(model, "-", gpu)});
  }
  std::vector<std::string> Serving(const std::string& model) const {
    std::vector<std::string> serving;
    for (const Place& p : plan_.places) {
      if (p.engine[0] == model[0] && p.state == PlaceState::kServe) {
        serving.push_back(p.engine);
      }
    }
    return serving;
  }

 private:
  struct Gpu {
    int dead = 0;
    bool drained = false;
    std::unique_ptr<wire::PlanT> plan;  // null: it knows none
  };
  static constexpr int kStartS = 4;

  bool Serves(const std::string& engine) const {
    const auto age = age_.find(engine);
    return age != age_.end() && age->second >= kStartS &&
           broken_.count(engine) == 0;
  }

  void RunHand() {
    if (hand_dead_ > 0) {
      --hand_dead_;
      return;
    }
    const wire::PlanT* newest = nullptr;
    for (const auto& [gpu, daemon] : gpus_) {
      if (daemon.dead > 0 || daemon.plan == nullptr) continue;
      if (newest == nullptr || daemon.plan->number > newest->number) {
        newest = daemon.plan.get();
      }
    }
    if (newest == nullptr) return;
    for (const auto& place : newest->places) {
      if (place->state != wire::PlaceState::kOff) {
        const bool rested = resting_.erase(place->engine) > 0;
        age_.try_emplace(place->engine, rested ? kStartS : 0);
        continue;
      }
      const bool ran = age_.erase(place->engine) > 0;
      if (ran && fleet_.Engine(place->engine)->may_evict) {
        resting_.insert(place->engine);
      }
      if (place->no_rest) resting_.erase(place->engine);
    }
  }

  void RunLeader() {
    if (leader_ == nullptr && leader_dead_ > 0) {
      --leader_dead_;
      return;
    }
    if (leader_ == nullptr) {
      auto store = PlanStore::Open(folder_);
      ASSERT_TRUE(store.ok()) << store.status();
      leader_ = std::make_unique<Leader>(
          fleet_, "GPU-0", *std::move(store), &clock_,
          [this] {
            return absl::FormatTime(
                absl::RFC3339_full,
                absl::FromUnixNanos(static_cast<int64_t>(clock_.NowNs())),
                absl::UTCTimeZone());
          },
          std::launch::deferred);
    }
    leader_->Tick();
    if (!proxies_are_deaf_) plan_of_proxies_ = leader_->plan().number;
    for (auto& [gpu, daemon] : gpus_) {
      if (daemon.dead > 0) continue;
      std::unique_ptr<wire::PlanT> reported = leader_->PlanToSend();
      if (reported != nullptr) {
        EXPECT_TRUE(daemon.plan == nullptr ||
                    reported->number >= daemon.plan->number);
        daemon.plan = std::move(reported);
      }
      leader_->Heard(ReportOf(gpu, daemon));
    }
  }

  wire::ReportT ReportOf(const std::string& gpu, const Gpu& daemon) const {
    wire::ReportT report;
    report.gpu = gpu;
    report.memory_bytes = static_cast<uint64_t>(kMemoryGib * kGib);
    report.pool_bytes = static_cast<uint64_t>(kPoolGib * kGib);
    report.plan_number = daemon.plan == nullptr ? 0 : daemon.plan->number;
    report.proxies = 1;
    report.plan_of_proxies = plan_of_proxies_;
    report.drained = daemon.drained;
    report.host_bytes = static_cast<uint64_t>(host_gib_ * kGib);
    for (const auto& [model, n] : arrived_) {
      auto d = std::make_unique<wire::ModelDemandT>();
      d->model = model;
      d->arrived = d->answered = d->on_time = static_cast<uint64_t>(n);
      d->prompt_tokens = d->arrived * 500;
      d->output_tokens = d->arrived * 200;
      report.demand.push_back(std::move(d));
    }
    for (const config::FleetEngine& e : fleet_.engines) {
      if (e.gpu != gpu) continue;
      auto engine = std::make_unique<wire::EngineReportT>();
      engine->name = e.name;
      engine->serves = Serves(e.name);
      engine->process_bytes = (engine->serves ? 1 : 10) * measured_bytes_;
      engine->here =
          e.may_evict && (resting_.count(e.name) > 0 || age_.count(e.name) > 0);
      // Every fifth second, the engine has no request in progress.
      engine->running =
          engine->serves && clock_.NowNs() / kSecond % 5 != 0 ? 2 : 0;
      report.engines.push_back(std::move(engine));
    }
    return report;
  }

  // Checks the invariants of every plan.
  void CheckPlan() {
    if (leader_ == nullptr || leader_->PlanToSend() == nullptr) return;
    plan_ = leader_->plan();
    std::map<std::string, double> weights;  // by GPU
    double processes = 0;
    for (const config::FleetEngine& e : fleet_.engines) {
      const PlaceState state = plan_.StateOf(e.name);
      const config::FleetModel& m = fleet_.models[fleet_.ModelIndex(e.model)];
      if (state == PlaceState::kServe) hosted_.insert(e.model);
      const bool rests =
          resting_.count(e.name) > 0 && !plan_.Find(e.name)->no_rest;
      if (state != PlaceState::kOff || rests) {
        processes += static_cast<double>(m.process_bytes);
      }
      if (state == PlaceState::kOff) continue;
      const std::vector<std::string> gpus = e.Gpus();
      for (const std::string& gpu : gpus) {
        weights[gpu] +=
            m.measured->weight_bytes / static_cast<double>(gpus.size());
      }
    }
    if (host_gib_ > 0) {
      EXPECT_LE(processes, host_gib_ * kGib);
    }
    for (const auto& [gpu, bytes] : weights) {
      EXPECT_LE(bytes, (kMemoryGib - kPoolGib) * kGib) << gpu;
    }
    for (const std::string& model : hosted_) {
      const std::vector<std::string> serving = Serving(model);
      EXPECT_FALSE(serving.empty()) << "no place of " << model << " serves";
      if (!expects_answers_) continue;
      EXPECT_TRUE(std::any_of(
          serving.begin(), serving.end(),
          [this](const std::string& engine) { return Serves(engine); }))
          << "no daemon answers for " << model;
    }
    EXPECT_GE(plan_.number, last_number_);
    last_number_ = plan_.number;
  }

  config::Fleet fleet_;
  std::string folder_;
  ManualClock clock_;
  std::unique_ptr<Leader> leader_;
  int leader_dead_ = 0, hand_dead_ = 0;
  bool proxies_are_deaf_ = false;
  uint64_t plan_of_proxies_ = 0;
  std::map<std::string, Gpu> gpus_;
  std::map<std::string, int> age_;  // seconds, of engines that run
  std::set<std::string> resting_;
  double host_gib_ = 0;  // 0: daemons do not report it
  uint64_t measured_bytes_ = 0;
  std::set<std::string> broken_;
  std::map<std::string, double> rates_, arrived_;
  StandingPlan plan_;  // of the last leader
  std::set<std::string> hosted_;
  uint64_t last_number_ = 0;
  bool expects_answers_ = false;
};

// Returns three models of 1 GiB; 3 GiB are left beside each pool.
inline config::Fleet Three() {
  config::Fleet fleet = FleetOf({1, 1, 1}, 2);
  fleet.planner.window_s = 20;
  fleet.planner.cool_down_s = 10;
  fleet.planner.start_s = 30;
  fleet.planner.drain_s = 20;
  return fleet;
}

// Returns the same on four GPUs, and a fourth model of 4 GiB on one of two
// pairs.
inline config::Fleet WithAPair() {
  config::Fleet fleet = FleetOf({1, 1, 1}, 4);
  fleet.planner = Three().planner;
  fleet.models.push_back(ModelOf("d", 4));
  AddPairs("d", {{"GPU-1", "GPU-0"}, {"GPU-2", "GPU-3"}}, &fleet);
  return fleet;
}

// Returns the same three models, whose processes take a GiB of host memory each
// and may rest. A resting one takes another GiB in the store.
inline config::Fleet ThreeThatRest() {
  config::Fleet fleet = Three();
  for (config::FleetModel& m : fleet.models) m.process_bytes = 1ull << 30;
  for (config::FleetEngine& e : fleet.engines) e.may_evict = true;
  return fleet;
}

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_LEADER_MACHINE_H_
