#include "daemon/scheduling/lead/leader.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/contract/wire/message.h"
#include "daemon/scheduling/lead/lead_fixture.h"

namespace fineserve::lead {
namespace {

// A part of the work under sanitizers, which look for other errors and take far
// longer.
#if defined(FINESERVE_SANITIZED)
constexpr uint64_t kSeeds = 4;
#else
constexpr uint64_t kSeeds = 40;
#endif

constexpr double kMemoryGib = 8, kPoolGib = 5;

// A machine with two GPUs, in steps of a second: daemons that keep the newest
// plan, a hand that runs engines by it, engines that take time to start, and
// clients. Each of them can be dead. The leader is the real one.
class Machine {
 public:
  explicit Machine(const config::Fleet& fleet) : fleet_(fleet) {
    char path[] = "/tmp/leader_test.XXXXXX";
    folder_ = mkdtemp(path);
    for (const config::FleetEngine& e : fleet_.engines) {
      for (const std::string& gpu : e.Gpus()) gpus_[gpu];
    }
    for (const config::FleetModel& m : fleet_.models) rates_[m.name] = 1;
    clock_.AdvanceNs(1000 * kSecond);
  }
  ~Machine() {
    leader_.reset();
    std::filesystem::remove_all(folder_);
  }

  void SetRate(const std::string& model, double rate) { rates_[model] = rate; }
  // Of both daemons' reports.
  void SetHost(double gib) { host_gib_ = gib; }
  // Daemons measure a process of as much; one that starts takes ten times that.
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

  // From now on no process dies: every model is answered all the time.
  void ExpectAnswers() { expects_answers_ = true; }

  const StandingPlan& plan() const { return plan_; }
  Leader* leader() { return leader_.get(); }
  const std::string& folder() const { return folder_; }
  std::set<std::string> Running() const {
    std::set<std::string> running;
    for (const auto& [engine, age] : age_) running.insert(engine);
    return running;
  }
  // Engines whose processes are there although they are off.
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
      // Every fifth second it has no request in progress.
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

// Three models of 1 GiB; 3 GiB are left beside each pool.
config::Fleet Three() {
  config::Fleet fleet = FleetOf({1, 1, 1}, 2);
  fleet.planner.window_s = 20;
  fleet.planner.cool_down_s = 10;
  fleet.planner.start_s = 30;
  fleet.planner.drain_s = 20;
  return fleet;
}

// The same on four GPUs, and a fourth model of 4 GiB on one of two pairs.
config::Fleet WithAPair() {
  config::Fleet fleet = FleetOf({1, 1, 1}, 4);
  fleet.planner = Three().planner;
  fleet.models.push_back(ModelOf("d", 4));
  AddPairs("d", {{"GPU-1", "GPU-0"}, {"GPU-2", "GPU-3"}}, &fleet);
  return fleet;
}

// The planner chooses the first neighbours; then two on one GPU get busy.
std::vector<std::string> MakeNeighboursBusy(Machine* machine) {
  std::map<char, std::vector<std::string>> on;
  for (const char* model : {"a", "b", "c"}) {
    on[machine->Serving(model).at(0).back()].push_back(model);
  }
  for (const auto& [gpu, models] : on) {
    if (models.size() < 2) continue;
    for (const std::string& m : models) machine->SetRate(m, 18);
    return models;
  }
  return {};
}

TEST(LeaderTest, StartsAllModelsAtOnceAndThenRests) {
  Machine machine(Three());
  machine.Seconds(10);
  for (const char* model : {"a", "b", "c"}) {
    EXPECT_EQ(machine.Serving(model).size(), 1u);
  }
  machine.Seconds(60);
  const uint64_t number = machine.plan().number;
  machine.Seconds(120);
  EXPECT_EQ(machine.plan().number, number);
  EXPECT_EQ(machine.Running().size(), 3u);
}

TEST(LeaderTest, ShiftedLoadMovesAModelThatAnswersAllTheTime) {
  Machine machine(Three());
  machine.Seconds(60);
  machine.ExpectAnswers();
  const std::vector<std::string> busy = MakeNeighboursBusy(&machine);
  ASSERT_GE(busy.size(), 2u);
  machine.Seconds(120);
  std::set<char> gpus;
  for (size_t i = 0; i < 2; ++i) {
    const auto serving = machine.Serving(busy[i]);
    ASSERT_EQ(serving.size(), 1u);
    gpus.insert(serving[0].back());
  }
  EXPECT_EQ(gpus.size(), 2u) << "both are still on one GPU";
  EXPECT_FALSE(machine.plan().move);
  EXPECT_EQ(machine.Running().size(), 3u);
}

TEST(LeaderTest, ModelsOfALostMachineRunElsewhereAndThoseOfASilentDaemonDoNot) {
  Machine machine(Three());
  machine.Seconds(60);
  const std::string gpu = Three().engines[0].gpu;  // of all places NAME-0
  const StandingPlan before = machine.plan();
  machine.KillDaemon(gpu, 1000);
  machine.Seconds(20);
  EXPECT_EQ(machine.plan().places, before.places);
  machine.leader()->SetLost({gpu});
  machine.Seconds(2);
  for (const char* model : {"a", "b", "c"}) {
    const std::vector<std::string> serving = machine.Serving(model);
    ASSERT_EQ(serving.size(), 1u) << model;
    EXPECT_EQ(serving[0].back(), '1') << model;
  }
}

TEST(LeaderTest, EngineOnTwoGpusMovesAsOneWhicheverOfThemIsDrained) {
  for (const bool first : {true, false}) {
    Machine machine(WithAPair());
    machine.Seconds(60);
    const std::vector<std::string> before = machine.Serving("d");
    ASSERT_EQ(before.size(), 1u);
    machine.ExpectAnswers();
    const std::vector<std::string> gpus = WithAPair().Engine(before[0])->Gpus();
    machine.Drain(first ? gpus[0] : gpus[1], true);
    machine.Seconds(200);
    const std::vector<std::string> after = machine.Serving("d");
    ASSERT_EQ(after.size(), 1u);
    EXPECT_NE(after, before);
    EXPECT_FALSE(machine.plan().move);
  }
}

TEST(LeaderTest, EngineOnTwoGpusRunsElsewhereOnceEitherIsLost) {
  for (const bool first : {true, false}) {
    Machine machine(WithAPair());
    machine.Seconds(60);
    const std::vector<std::string> before = machine.Serving("d");
    ASSERT_EQ(before.size(), 1u);
    const std::vector<std::string> gpus = WithAPair().Engine(before[0])->Gpus();
    const std::string lost = first ? gpus[0] : gpus[1];
    machine.KillDaemon(lost, 1000);
    machine.Seconds(20);
    EXPECT_EQ(machine.Serving("d"), before) << "silent is not lost";
    machine.leader()->SetLost({lost});
    machine.Seconds(20);
    ASSERT_EQ(machine.Serving("d").size(), 1u);
    EXPECT_NE(machine.Serving("d"), before);
  }
}

// A machine's node may be down while its daemons are well.
TEST(LeaderTest, NewLeaderWaitsForTheFirstWordOfALostMachinesDaemons) {
  Machine machine(Three());
  machine.Seconds(60);
  const std::string gpu = Three().engines[0].gpu;
  const StandingPlan before = machine.plan();
  machine.KillLeader(1);
  machine.KillDaemon(gpu, 4);  // silent for two beats of the new leader
  machine.Seconds(2);
  machine.leader()->SetLost({gpu});
  machine.Seconds(20);
  EXPECT_EQ(machine.plan().places, before.places);
}

TEST(LeaderTest, FrozenPlanMovesNoModelAndThawedOneDoes) {
  Machine machine(Three());
  machine.Seconds(60);
  wire::SteerT freeze, thaw;
  freeze.freeze = thaw.thaw = true;
  ASSERT_TRUE(machine.leader()->Steer(freeze).ok());
  const StandingPlan before = machine.plan();
  ASSERT_GE(MakeNeighboursBusy(&machine).size(), 2u);
  machine.Seconds(120);
  for (const Place& p : before.places) {
    EXPECT_EQ(machine.plan().StateOf(p.engine), p.state) << p.engine;
  }
  wire::PlanStateT state;
  machine.leader()->Describe(&state);
  EXPECT_NEAR(state.frozen_s, 120, 1);
  ASSERT_TRUE(machine.leader()->Steer(thaw).ok());
  machine.Seconds(60);
  EXPECT_GT(machine.plan().number, before.number);
  machine.leader()->Describe(&state);
  EXPECT_LT(state.frozen_s, 0);
}

TEST(LeaderTest, PinMovesAModelAndOutlivesTheLeader) {
  Machine machine(Three());
  machine.Seconds(60);
  const std::string from = machine.Serving("a").at(0);
  const std::string other = from == "a-0" ? "1" : "0";
  wire::SteerT pin;
  pin.pin = "a";
  pin.gpu = absl::StrCat("GPU-", other);
  ASSERT_TRUE(machine.leader()->Steer(pin).ok());
  machine.Seconds(3);
  machine.KillLeader(2);
  machine.Seconds(60);
  EXPECT_EQ(machine.Serving("a"),
            std::vector<std::string>{absl::StrCat("a-", other)});
  pin.gpu = "GPU-7";
  EXPECT_TRUE(absl::IsInvalidArgument(machine.leader()->Steer(pin)));
  wire::SteerT unpin;
  unpin.unpin = "b";
  EXPECT_TRUE(absl::IsInvalidArgument(machine.leader()->Steer(unpin)));
}

TEST(LeaderTest, ApplyMovesForASmallGain) {
  config::Fleet fleet = Three();
  fleet.planner.least_gain = 9;
  Machine machine(fleet);
  machine.Seconds(60);
  ASSERT_GE(MakeNeighboursBusy(&machine).size(), 2u);
  machine.Seconds(60);
  const StandingPlan before = machine.plan();
  machine.Seconds(60);
  EXPECT_EQ(machine.plan().number, before.number);
  wire::SteerT apply;
  apply.apply = true;
  ASSERT_TRUE(machine.leader()->Steer(apply).ok());
  machine.Seconds(60);
  EXPECT_GT(machine.plan().number, before.number);
  EXPECT_FALSE(machine.plan().applies) << "it has nothing left to do";
}

TEST(LeaderTest, TargetThatNeverServesIsGivenUp) {
  Machine machine(Three());
  machine.Seconds(60);
  const std::string from = machine.Serving("a").at(0);
  const std::string to = from == "a-0" ? "a-1" : "a-0";
  machine.ExpectAnswers();
  machine.Break(to);
  wire::SteerT pin;
  pin.pin = "a";
  pin.gpu = absl::StrCat("GPU-", to.substr(2));
  ASSERT_TRUE(machine.leader()->Steer(pin).ok());
  machine.Seconds(35);
  EXPECT_EQ(machine.Serving("a"), std::vector<std::string>{from});
}

TEST(LeaderTest, ModelWhoseEngineCannotServeGetsAnother) {
  Machine machine(Three());
  machine.Seconds(60);
  const std::string from = machine.Serving("a").at(0);
  machine.Break(from);
  machine.Seconds(150);
  EXPECT_EQ(machine.Serving("a"),
            std::vector<std::string>{from == "a-0" ? "a-1" : "a-0"});
}

TEST(LeaderTest, ModelsOfADrainedGpuMoveAwayOneByOneAndNoneComesBack) {
  Machine machine(Three());
  machine.Seconds(60);
  machine.ExpectAnswers();
  const std::string gpu = Three().engines[0].gpu;  // of all places NAME-0
  machine.Drain(gpu, true);
  machine.Seconds(100);
  for (const char* model : {"a", "b", "c"}) {
    EXPECT_EQ(machine.Serving(model),
              std::vector<std::string>{absl::StrCat(model, "-1")});
  }
  EXPECT_EQ(machine.Running(), (std::set<std::string>{"a-1", "b-1", "c-1"}));
  for (const char* model : {"a", "b"}) machine.SetRate(model, 18);
  machine.Seconds(200);
  EXPECT_EQ(machine.Running(), (std::set<std::string>{"a-1", "b-1", "c-1"}));
  machine.Drain(gpu, false);
  machine.Seconds(200);
  EXPECT_TRUE(machine.Running().count("a-0") + machine.Running().count("b-0"))
      << "the busy neighbours are separated again";
}

TEST(LeaderTest, DrainedModelsGoWhereADaemonAnswers) {
  config::Fleet fleet = FleetOf({1, 1}, 3);
  fleet.planner = Three().planner;
  Machine machine(fleet);
  machine.Seconds(60);
  machine.KillDaemon("GPU-1", 1000);
  machine.Seconds(5);
  machine.Drain("GPU-0", true);
  machine.Seconds(60);
  for (const char* model : {"a", "b"}) {
    for (const std::string& engine : machine.Serving(model)) {
      EXPECT_NE(engine.back(), '0') << engine << " is drained";
    }
  }
}

TEST(LeaderTest, DrainedReplicaEndsAndItsModelAnswersAllTheTime) {
  config::Fleet fleet = FleetOf({1}, 2);
  fleet.planner = Three().planner;
  fleet.models[0].replicas = 2;
  Machine machine(fleet);
  machine.SetRate("a", 18);
  machine.Seconds(200);
  ASSERT_EQ(machine.Serving("a").size(), 2u);
  machine.ExpectAnswers();
  machine.Drain("GPU-0", true);
  machine.Seconds(100);
  EXPECT_EQ(machine.Running(), std::set<std::string>{"a-1"});
}

TEST(LeaderTest, TargetThatNeverServesIsNotTriedWithoutPause) {
  Machine machine(Three());
  machine.Seconds(60);
  const std::string to = machine.Serving("a").at(0) == "a-0" ? "a-1" : "a-0";
  machine.Break(to);
  wire::SteerT pin;
  pin.pin = "a";
  pin.gpu = absl::StrCat("GPU-", to.substr(2));
  ASSERT_TRUE(machine.leader()->Steer(pin).ok());
  const uint64_t number = machine.plan().number;
  machine.Seconds(600);
  EXPECT_LE(machine.plan().number, number + 8);
}

TEST(LeaderTest, LostPlanFileDoesNotStopWhatServes) {
  Machine machine(Three());
  machine.Seconds(60);
  const auto running = machine.Running();
  const uint64_t number = machine.plan().number;
  machine.KillLeader(1);
  std::filesystem::remove(machine.folder() + "/plan.json");
  machine.Seconds(60);
  EXPECT_EQ(machine.Running(), running);
  EXPECT_GT(machine.plan().number, number);
}

// Where the next plan is written before it takes its place; a folder there is
// like a full disk.
std::string DraftIn(const std::string& folder) {
  return absl::StrCat(folder, "/plan.json.", getpid(), ".new");
}

TEST(LeaderTest, FullDiskKeepsThePlanAndSaysSo) {
  Machine machine(Three());
  machine.Seconds(60);
  const StandingPlan before = machine.plan();
  std::filesystem::create_directory(DraftIn(machine.folder()));
  ASSERT_GE(MakeNeighboursBusy(&machine).size(), 2u);
  machine.Seconds(60);
  EXPECT_EQ(machine.plan(), before);
  wire::PlanStateT state;
  machine.leader()->Describe(&state);
  ASSERT_FALSE(state.troubles.empty());
  EXPECT_NE(state.troubles.back().find("cannot write"), std::string::npos);
  ASSERT_EQ(state.troubles_s.size(), state.troubles.size());
  EXPECT_GT(state.troubles_s.back(), 1);
  EXPECT_LE(state.troubles_s.back(), 60);
  std::filesystem::remove(DraftIn(machine.folder()));
  machine.Seconds(60);
  EXPECT_GT(machine.plan().number, before.number);
}

TEST(LeaderTest, OtherFleetIsFollowedAtOnceAndPublishedOnceItCanBeWritten) {
  Machine machine(Three());
  machine.Seconds(60);
  const std::string gone = machine.Serving("a").at(0) == "a-0" ? "a-1" : "a-0";
  config::Fleet fleet = Three();
  fleet.engines.erase(
      std::find_if(fleet.engines.begin(), fleet.engines.end(),
                   [&](const auto& e) { return e.name == gone; }));
  const uint64_t number = machine.plan().number;
  std::filesystem::create_directory(DraftIn(machine.folder()));
  machine.leader()->SetFleet(fleet);
  machine.Seconds(3);
  EXPECT_EQ(machine.plan().Find(gone), nullptr);
  EXPECT_EQ(machine.plan().number, number);
  std::filesystem::remove(DraftIn(machine.folder()));
  machine.Seconds(3);
  EXPECT_GT(machine.plan().number, number);
}

// The same three, whose processes take a GiB of host memory each, and rest: one
// takes another GiB in the store.
config::Fleet ThreeThatRest() {
  config::Fleet fleet = Three();
  for (config::FleetModel& m : fleet.models) m.process_bytes = 1ull << 30;
  for (config::FleetEngine& e : fleet.engines) e.may_evict = true;
  return fleet;
}

// All three have been on either GPU; returns what rests then, to which more
// memory makes no difference.
std::set<std::string> RestingAfterMoves(double host_gib) {
  Machine machine(ThreeThatRest());
  machine.SetHost(host_gib);
  machine.Seconds(60);
  for (const char* gpu : {"0", "1"}) {
    for (const char* model : {"a", "b", "c"}) machine.Bring(model, gpu);
  }
  EXPECT_EQ(machine.Running(), (std::set<std::string>{"a-1", "b-1", "c-1"}));
  const std::set<std::string> rests = machine.resting();
  for (const double more : {0.5, 1.0, 2.0, 100.0}) {
    if (host_gib > 0) machine.SetHost(host_gib + more);
    machine.Seconds(20);
    EXPECT_EQ(machine.resting(), rests) << more << " GiB more";
  }
  return rests;
}

TEST(LeaderTest, MoreHostMemoryEndsNoPlaceThatRests) {
  std::vector<size_t> counts;
  for (const double host_gib : {4.0, 5.0, 6.0, 7.0, 9.0, 100.0}) {
    counts.push_back(RestingAfterMoves(host_gib).size());
  }
  EXPECT_EQ(counts, (std::vector<size_t>{0, 1, 1, 2, 3, 3}));
  EXPECT_EQ(RestingAfterMoves(/*host_gib=*/0).size(), 3u) << "it is not known";
}

TEST(LeaderTest, ProcessesAreCountedAsDaemonsMeasureThemUnlessTheFileSays) {
  for (const bool is_said : {false, true}) {
    config::Fleet fleet = ThreeThatRest();
    for (config::FleetModel& m : fleet.models) {
      m.process_bytes = is_said ? 1 : 0;
    }
    Machine machine(fleet);
    machine.SetHost(5);
    machine.SetMeasured((1ull << 30) - 77);
    machine.Seconds(60);
    for (const char* gpu : {"0", "1"}) {
      for (const char* model : {"a", "b", "c"}) machine.Bring(model, gpu);
    }
    EXPECT_EQ(machine.resting().size(), is_said ? 3u : 1u);
  }
}

TEST(LeaderTest, RatesThatWobbleEndNoPlaceThatRests) {
  Machine machine(ThreeThatRest());
  machine.SetHost(7);
  machine.Seconds(60);
  for (const char* model : {"a", "b", "c"}) machine.Bring(model, "0");
  for (const char* model : {"a", "b", "c"}) machine.Bring(model, "1");
  const std::set<std::string> rests = machine.resting();
  ASSERT_EQ(rests.size(), 2u);
  const uint64_t number = machine.plan().number;
  for (int t = 0; t < 300; ++t) {
    const char* models[] = {"a", "b", "c"};
    for (int i = 0; i < 3; ++i) machine.SetRate(models[i], 1 + (t + i) % 3);
    machine.Second();
  }
  EXPECT_EQ(machine.resting(), rests);
  EXPECT_EQ(machine.plan().number, number);
}

// Without a hand its process stays, and one plan says for all that time that it
// is to end.
TEST(LeaderTest, PlaceThatIsToEndIsNamedUntilItsProcessIsGone) {
  Machine machine(ThreeThatRest());
  machine.SetHost(7);
  machine.Seconds(60);
  for (const char* model : {"a", "b", "c"}) machine.Bring(model, "0");
  for (const char* model : {"a", "b", "c"}) machine.Bring(model, "1");
  ASSERT_EQ(machine.resting().size(), 2u);
  machine.KillHand(60);
  machine.SetHost(5);
  machine.Seconds(10);
  const StandingPlan plan = machine.plan();
  EXPECT_EQ(std::count_if(plan.places.begin(), plan.places.end(),
                          [](const Place& p) { return p.no_rest; }),
            1);
  machine.Seconds(40);
  EXPECT_EQ(machine.plan(), plan);
  machine.Seconds(20);
  EXPECT_EQ(machine.resting().size(), 1u);
}

// A move's target needs the memory of a process that rests, which ends with the
// plan that begins the move (Machine::CheckPlan).
TEST(LeaderTest, PlaceThatRestsEndsBeforeAnEngineStartsInItsPlace) {
  config::Fleet fleet = ThreeThatRest();
  for (config::FleetModel& m : fleet.models) m.process_bytes = 2ull << 30;
  Machine machine(fleet);
  machine.SetHost(9);
  machine.Seconds(60);
  for (const char* model : {"a", "b", "c"}) machine.Bring(model, "0");
  machine.Bring("a", "1");
  EXPECT_EQ(machine.resting(), std::set<std::string>{"a-0"});
  machine.Bring("b", "1");
  EXPECT_EQ(machine.resting(), std::set<std::string>{"b-0"});
  for (const Place& place : machine.plan().places) {
    EXPECT_FALSE(place.no_rest) << place.engine << " has no process";
  }
}

// Processes die at any time while loads shift: no model is ever without a place
// that serves by the plan, nothing is overbooked (Machine::CheckPlan), and when
// the deaths end everything comes to rest.
class LeaderDeathTest : public testing::TestWithParam<double> {};

TEST_P(LeaderDeathTest, DeathsAtAnyTimeLeaveEveryModelServed) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const config::Fleet fleet = GetParam() > 0  ? ThreeThatRest()
                                : seed % 2 == 0 ? Three()
                                                : WithAPair();
    Machine machine(fleet);
    machine.SetHost(GetParam());
    machine.Seconds(30);
    for (int t = 0; t < 300; ++t) {
      if (t % 60 == 0) {
        for (const config::FleetModel& m : fleet.models) {
          machine.SetRate(m.name, random() % 2 == 0 ? 18 : 0.2);
        }
      }
      const int seconds = 1 + static_cast<int>(random() % 8);
      switch (random() % 40) {
        case 0:
          machine.KillLeader(seconds);
          break;
        case 1:
        case 2:
          machine.KillDaemon(
              fleet.engines[random() % fleet.engines.size()].Gpus().back(),
              seconds);
          break;
        case 3:
          machine.KillHand(seconds);
          break;
        case 4:
          machine.KillEngine(
              fleet.engines[random() % fleet.engines.size()].name);
          break;
        default:
          break;
      }
      machine.Second();
    }
    machine.Seconds(600);  // until all places may be tried again
    EXPECT_FALSE(machine.plan().move);
    const StandingPlan rest = machine.plan();
    machine.Seconds(100);
    EXPECT_EQ(machine.plan().number, rest.number);
    std::set<std::string> serving;
    for (const config::FleetModel& m : fleet.models) {
      ASSERT_EQ(machine.Serving(m.name).size(), 1u);
      serving.insert(machine.Serving(m.name)[0]);
    }
    EXPECT_EQ(machine.Running(), serving);
  }
}

INSTANTIATE_TEST_SUITE_P(HostGib, LeaderDeathTest,
                         ::testing::Values(0.0, 5.0, 8.0),
                         [](const auto& param_info) {
                           return absl::StrCat(
                               static_cast<int>(param_info.param));
                         });

}  // namespace
}  // namespace fineserve::lead
