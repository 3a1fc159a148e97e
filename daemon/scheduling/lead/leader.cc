#include "daemon/scheduling/lead/leader.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "daemon/base/log/log.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/message.h"

namespace fineserve::lead {
namespace {

// Returns the part of a trouble's text that stays the same while its figures
// change.
std::string WithoutFigures(std::string text) {
  const auto is_figure = [](char c) {
    return absl::ascii_isdigit(c) || c == '.';
  };
  text.erase(std::remove_if(text.begin(), text.end(), is_figure), text.end());
  return text;
}

// Returns the seconds between two times in RFC 3339. Negative if either is not
// such a time.
double SecondsBetween(const std::string& then, const std::string& now) {
  absl::Time from, to;
  if (!absl::ParseTime(absl::RFC3339_full, then, &from, nullptr) ||
      !absl::ParseTime(absl::RFC3339_full, now, &to, nullptr)) {
    return -1;
  }
  return absl::ToDoubleSeconds(to - from);
}

// Reports come every second.
constexpr uint64_t kFreshNs = 4'000'000'000;
// How long a new leader does not consider a daemon gone that it has not heard:
// as long as a daemon that was heard may be silent.
constexpr uint64_t kFirstWordNs = kFreshNs;
// Without a plan file: how long to wait, once all daemons answer, until each of
// them hears a proxy say which engines serve. Longer than a new daemon needs.
constexpr uint64_t kProxyPatienceNs = 10'000'000'000;
// Least change of a target rate that is sent to daemons, as a fraction of the
// rate.
constexpr double kRateChange = 0.1;
constexpr double kSmallRate = 0.05;  // requests/s
constexpr size_t kHistoryTold = 200;
constexpr double kAnyGain = 1e-6;
// More than the number of plans that a leader, stopped in the middle of a Tick,
// can send before it finds that it has lost the lead. So its plans are refused
// as older ones.
constexpr uint64_t kBeyondStopped = 1000;
// How long to wait for all daemons before models without an engine get one on
// the GPUs that answer.
constexpr uint64_t kAllPatienceNs = 60'000'000'000;
// After a failed start, an engine is left alone for this many times the time
// allowed for a start. The time doubles with each failure, at most
// kMostDoublings times.
constexpr double kShunStarts = 4;
constexpr int kMostDoublings = 6;
// The memory of processes is learnt in steps of this size, so that the value is
// stable. Heuristic.
constexpr uint64_t kProcessStep = uint64_t{64} << 20;

void Carry(const Decision& decision, StandingPlan* plan) {
  for (const std::string& engine : decision.host) {
    plan->Find(engine)->state = PlaceState::kServe;
  }
  if (!decision.host.empty() || !decision.move) return;
  const Move& move = *decision.move;
  plan->move = move;
  if (move.to.empty()) {
    plan->Find(move.from)->state = PlaceState::kRetire;
  } else {
    plan->Find(move.to)->state = PlaceState::kStart;
  }
}

// One planning, with copies of all that it needs.
struct Planning {
  config::Fleet fleet;
  StandingPlan plan;
  std::map<std::string, GpuMemory> gpus;
  std::map<std::string, Demand> demand;
  Experience experience;
  bool may_move = false;
  double least_gain = 0;
  PlacesOff off;

  absl::StatusOr<Decision> operator()() const {
    absl::StatusOr<Decision> decision =
        Decide(fleet, plan, gpus, demand, experience, may_move, least_gain);
    if (!decision.ok()) return decision;
    // A place that will start already counts, so that places in its way end
    // first.
    StandingPlan next = plan;
    Carry(*decision, &next);
    absl::StatusOr<Rest> rest = DecideRest(fleet, next, gpus, demand, off);
    if (!rest.ok()) return rest.status();
    decision->rest = *std::move(rest);
    return decision;
  }
};

}  // namespace

Leader::Leader(const config::Fleet& fleet, std::string gpu, PlanStore store,
               const Clock* clock, TimeOfDay time_of_day, std::launch launch)
    : fleet_(fleet),
      gpu_(std::move(gpu)),
      store_(std::move(store)),
      clock_(clock),
      time_of_day_(std::move(time_of_day)),
      began_ns_(clock->NowNs()),
      window_(fleet.planner.window_s),
      step_ns_(began_ns_),
      moved_ns_(began_ns_),
      launch_(launch) {
  absl::StatusOr<StandingPlan> last = store_.Read();
  if (last.ok()) {
    plan_ = *std::move(last);
    step_number_ = plan_.number;
    has_begun_ = plan_.number != 0;  // else it has an operator's word alone
    log::Info("leading: going on from plan {}", plan_.number);
  } else if (absl::IsNotFound(last.status())) {
    log::Info("leading: there is no plan yet");
  } else {
    log::Warning("leading: ignoring the last plan: {}",
                 std::string(last.status().message()));
  }
  if (store_.was_taken_from_stopped() && plan_.number != 0) {
    StandingPlan next = plan_;
    next.number += kBeyondStopped;
    if (Keep(next, "the lead was taken from a process that did nothing")) {
      plan_ = std::move(next);
    }
  }
  FollowFleet();
}

void Leader::FollowFleet() {
  const StandingPlan before = plan_;
  Adapt(fleet_, &plan_);
  is_untold_ |= has_begun_ && plan_ != before;
}

void Leader::SetFleet(const config::Fleet& fleet) {
  decision_ = {};  // waits for it: its places may be gone
  if (fleet.planner.window_s != fleet_.planner.window_s) {
    window_ = DemandWindow(fleet.planner.window_s);
  }
  fleet_ = fleet;
  FollowFleet();
}

void Leader::Heard(const wire::ReportT& report) {
  Daemon& daemon = daemons_[report.gpu];
  daemon.heard_ns = clock_->NowNs();
  daemon.plan_number = report.plan_number;
  daemon.plan_of_proxies = report.plan_of_proxies;
  daemon.proxies = report.proxies;
  daemon.drained = report.drained;
  daemon.engines.clear();
  for (const auto& engine : report.engines) {
    daemon.engines[engine->name] = {false, engine->serves, engine->running,
                                    false, engine->here};
    LearnProcess(*engine);
  }
  gpus_[report.gpu] = {static_cast<double>(report.memory_bytes),
                       static_cast<double>(report.pool_bytes),
                       static_cast<double>(report.host_bytes)};
  std::map<std::string, wire::DemandCounts> counts;
  for (const auto& demand : report.demand) {
    if (fleet_.ModelIndex(demand->model) == fleet_.models.size()) continue;
    counts[demand->model] = wire::CountsOf(*demand);
  }
  if (report.proxies > 0) window_.Add(report.gpu, daemon.heard_ns, counts);
}

void Leader::LearnProcess(const wire::EngineReportT& engine) {
  const config::FleetEngine* known = fleet_.Engine(engine.name);
  // An engine that starts may have its weights on the host for a moment.
  if (known == nullptr || !engine.serves || engine.process_bytes == 0) return;
  const uint64_t steps = (engine.process_bytes - 1) / kProcessStep + 1;
  uint64_t& most = process_bytes_[known->model];
  most = std::max(most, steps * kProcessStep);
}

config::Fleet Leader::PlannedFleet() const {
  config::Fleet fleet = fleet_;
  for (config::FleetModel& m : fleet.models) {
    const auto learnt = process_bytes_.find(m.name);
    if (m.process_bytes != 0 || learnt == process_bytes_.end()) continue;
    m.process_bytes = learnt->second;
  }
  return fleet;
}

bool Leader::IsFresh(const Daemon& daemon) const {
  return clock_->NowNs() - daemon.heard_ns < kFreshNs;
}

bool Leader::Answers(const std::string& gpu) const {
  return std::any_of(daemons_.begin(), daemons_.end(), [&](const auto& entry) {
    return finding::MeansGpu(gpu, entry.first) && IsFresh(entry.second);
  });
}

std::set<std::string> Leader::GoneGpus() const {
  std::set<std::string> gone;
  if (clock_->NowNs() - began_ns_ < kFirstWordNs) return gone;
  for (const std::string& gpu : lost_) {
    if (!Answers(gpu)) gone.insert(gpu);
  }
  return gone;
}

void Leader::LeaveLost() {
  const std::set<std::string> gone = GoneGpus();
  if (gone.empty()) return;
  for (const std::string& gpu : gone) {
    const auto is_it = [&](const auto& entry) {
      return finding::MeansGpu(gpu, entry.first);
    };
    // A GPU whose daemon is gone gets no engines.
    std::erase_if(daemons_, is_it);
    std::erase_if(gpus_, is_it);
  }
  StandingPlan next = plan_;
  if (!TakeOff(fleet_, gone, &next)) return;
  planned_ns_ = 0;  // its models need an engine at once
  Publish(std::move(next),
          absl::StrCat("lost with their machine: ", absl::StrJoin(gone, ", ")));
}

bool Leader::AllAnswer() {
  silent_.clear();
  bool all = true;
  const std::set<std::string> gone = GoneGpus();
  std::set<std::string> gpus;
  for (const config::FleetEngine& e : fleet_.engines) {
    if (!e.is_place) continue;
    for (const std::string& gpu : e.Gpus()) gpus.insert(gpu);
  }
  for (const std::string& gpu : gpus) {
    if (gone.count(gpu) > 0) {
      silent_.push_back(absl::StrCat(
          gpu, " is lost with its machine: its models run elsewhere"));
      continue;
    }
    if (Answers(gpu)) continue;
    silent_.push_back(absl::StrCat("no fineserved answers for ", gpu,
                                   ": nothing is planned until one does"));
    all = false;
  }
  return all;
}

Sightings Leader::Seen() const {
  Sightings seen;
  for (const auto& [gpu, daemon] : daemons_) {
    const bool heard = IsFresh(daemon) && daemon.proxies > 0;
    for (const auto& [engine, sighting] : daemon.engines) {
      // A daemon with another fleet file may also consider the engine its own.
      const config::FleetEngine* known = fleet_.Engine(engine);
      if (known == nullptr || !finding::MeansGpu(known->gpu, gpu)) continue;
      Sighting& s = seen[engine] = sighting;
      s.heard = heard;
      s.serves = heard && sighting.serves;
      s.knows_plan = daemon.plan_number == plan_.number &&
                     daemon.plan_of_proxies >= step_number_;
    }
  }
  return seen;
}

void Leader::TakeWhatServes() {
  const uint64_t now = clock_->NowNs();
  if (answered_ns_ == 0) answered_ns_ = now;
  // While a daemon hears no proxy, its engines do not count as serving and
  // would be switched off.
  const bool all_hear =
      std::all_of(daemons_.begin(), daemons_.end(),
                  [](const auto& entry) { return entry.second.proxies > 0; });
  if (!all_hear && now - answered_ns_ < kProxyPatienceNs) return;
  for (const auto& [engine, sighting] : Seen()) {
    Place* place = plan_.Find(engine);
    if (place != nullptr && sighting.serves) place->state = PlaceState::kServe;
  }
  has_begun_ = true;
}

uint64_t Leader::HighestNumberHeard() const {
  uint64_t highest = 0;
  for (const auto& [gpu, daemon] : daemons_) {
    highest = std::max(highest, daemon.plan_number);
  }
  return highest;
}

void Leader::Tick() {
  Lead();
  NoteTroubles();
}

void Leader::Lead() {
  const uint64_t now = clock_->NowNs();
  const bool all_answer = AllAnswer();
  const bool may_host = all_answer || now - began_ns_ >= kAllPatienceNs;
  if (!has_begun_ && may_host) TakeWhatServes();
  if (!has_begun_) return;
  if (HighestNumberHeard() > plan_.number) {
    Publish(plan_, "daemons knew a newer plan, whose file is lost");
  }
  if (is_untold_) Publish(plan_, "the fleet file changed");
  LeaveLost();
  const Sightings seen = Seen();
  Watch(seen);
  if (plan_.move) TakeAStep(seen);
  EndPlanning();
  const double since = static_cast<double>(now - planned_ns_) / kNsPerSecond;
  if (!may_host || (planned_ns_ != 0 && since < fleet_.planner.period_s)) {
    return;
  }
  planned_ns_ = now;
  BeginToPlan(all_answer && MayMove());
  EndPlanning();
}

void Leader::TakeAStep(const Sightings& seen) {
  const uint64_t now = clock_->NowNs();
  const Move move = *plan_.move;
  StandingPlan next = plan_;
  const double for_s = static_cast<double>(now - step_ns_) / kNsPerSecond;
  const std::string step = Advance(seen, for_s, fleet_.planner, &next);
  if (step.empty()) return;
  if (!next.move) moved_ns_ = now;
  const bool turns_back = next.move && next.move->to != move.to;
  if (!next.move || turns_back) Learn(move, seen, next);
  Publish(std::move(next), step);
}

void Leader::Learn(const Move& move, const Sightings& seen,
                   const StandingPlan& next) {
  if (move.to.empty()) return;
  if (next.StateOf(move.to) == PlaceState::kServe) {
    failures_.erase(move.to);
    return;
  }
  const auto sighting = seen.find(move.to);
  // While the GPU's daemon is silent, the engine's state is unknown.
  if (sighting == seen.end() || !sighting->second.heard) return;
  Failure& failure = failures_[move.to];
  const double starts =
      kShunStarts * (1 << std::min(failure.times++, kMostDoublings));
  failure.until_ns =
      clock_->NowNs() +
      static_cast<uint64_t>(starts * fleet_.planner.start_s * kNsPerSecond);
}

void Leader::Watch(const Sightings& seen) {
  for (const Place& place : plan_.places) {
    const auto sighting = seen.find(place.engine);
    const bool is_down = place.state == PlaceState::kServe &&
                         sighting != seen.end() && sighting->second.heard &&
                         !sighting->second.serves;
    if (is_down) {
      down_since_ns_.try_emplace(place.engine, clock_->NowNs());
    } else {
      down_since_ns_.erase(place.engine);
    }
  }
}

Experience Leader::ExperienceNow() const {
  Experience experience;
  const uint64_t now = clock_->NowNs();
  for (const auto& [engine, since] : down_since_ns_) {
    experience.down.insert(engine);
    const double for_s = static_cast<double>(now - since) / kNsPerSecond;
    if (for_s >= fleet_.planner.start_s) experience.failing.insert(engine);
  }
  for (const auto& [engine, failure] : failures_) {
    if (now < failure.until_ns) experience.shunned.insert(engine);
  }
  for (const auto& [gpu, daemon] : daemons_) {
    for (const Place& place : plan_.places) {
      if (!fleet_.Engine(place.engine)->IsOn(gpu)) continue;
      if (!IsFresh(daemon)) experience.silent.insert(place.engine);
      if (!daemon.drained) continue;
      experience.shunned.insert(place.engine);
      if (place.state != PlaceState::kServe) continue;
      experience.drained.insert(place.engine);
    }
  }
  return experience;
}

PlacesOff Leader::OffNow() const {
  PlacesOff off;
  for (const auto& [engine, sighting] : Seen()) {
    const Place* place = plan_.Find(engine);
    if (place == nullptr || place->state != PlaceState::kOff ||
        place->no_rest || !sighting.here || !fleet_.Engine(engine)->may_evict) {
      continue;
    }
    off[engine] = rests_.count(engine) > 0;
  }
  return off;
}

bool Leader::MayMove() const {
  if (plan_.frozen || plan_.move) return false;
  if (plan_.applies) return true;
  const double since =
      static_cast<double>(clock_->NowNs() - moved_ns_) / kNsPerSecond;
  return since >= fleet_.planner.cool_down_s && IsWindowFull();
}

bool Leader::IsWindowFull() const {
  return window_.Reach() >= fleet_.planner.window_s;
}

std::map<std::string, Demand> Leader::DemandSeen() const {
  std::map<std::string, Demand> demand;
  for (const config::FleetModel& m : fleet_.models) {
    demand[m.name] = window_.Of(m.name);
  }
  return demand;
}

void Leader::BeginToPlan(bool may_move) {
  if (decision_.valid()) return;  // the last one takes its time
  planned_from_ = plan_;
  // Until the window is full, a few requests would be mistaken for a rate.
  std::map<std::string, Demand> demand;
  if (IsWindowFull()) demand = DemandSeen();
  const double least_gain =
      plan_.applies ? kAnyGain : fleet_.planner.least_gain;
  try {
    decision_ = std::async(
        launch_, Planning{PlannedFleet(), plan_, gpus_, std::move(demand),
                          ExperienceNow(), may_move, least_gain, OffNow()});
  } catch (const std::system_error& e) {
    troubles_ = {absl::StrCat("cannot plan: ", e.what())};
  }
}

void Leader::EndPlanning() {
  if (!decision_.valid()) return;
  if (decision_.wait_for(std::chrono::seconds(0)) ==
      std::future_status::timeout) {
    return;
  }
  const absl::StatusOr<Decision> decision = decision_.get();
  if (plan_ != planned_from_) return;
  if (!decision.ok()) {
    troubles_ = {std::string(decision.status().message())};
    return;
  }
  troubles_ = decision->troubles;
  troubles_.insert(troubles_.end(), decision->rest.troubles.begin(),
                   decision->rest.troubles.end());
  Carry(*decision);
}

void Leader::Carry(const Decision& decision) {
  StandingPlan next = plan_;
  lead::Carry(decision, &next);
  const bool rest_changes = TakeRest(decision.rest, &next);
  if (!decision.host.empty()) {
    std::string why = "models had no engine:";
    for (const std::string& engine : decision.host) {
      absl::StrAppend(&why, " ", engine, " serves");
    }
    return Publish(std::move(next), why);
  }
  if (decision.move) {
    Publish(std::move(next), lead::Describe(*decision.move));
    new_moves_ += plan_.move.has_value();  // unless it could not be written
    return;
  }
  if (plan_.applies && !plan_.move) {
    StandingPlan done = plan_;
    done.applies = next.applies = false;
    if (Keep(done, "")) plan_ = std::move(done);
  }
  const bool rates_change = TakeRates(decision.rates, &next);
  if (rates_change || rest_changes) Publish(std::move(next), "");
}

bool Leader::TakeRest(const Rest& rest, StandingPlan* next) {
  const Sightings seen = Seen();
  const auto is_here = [&](const std::string& engine) {
    const auto sighting = seen.find(engine);
    return sighting != seen.end() && sighting->second.here;
  };
  bool changed = false;
  for (Place& place : next->places) {
    const bool begins = rest.ends.count(place.engine) > 0;
    // Stays set until the process is gone, because a process that was asked to
    // end cannot go on.
    const bool goes_on = place.no_rest && is_here(place.engine);
    const bool no_rest = place.state == PlaceState::kOff && (begins || goes_on);
    if (begins) {
      log::Info("{} ends: memory lacks for its process to rest in",
                place.engine);
    }
    changed |= std::exchange(place.no_rest, no_rest) != no_rest;
  }
  rests_ = rest.stays;
  return changed;
}

bool Leader::TakeRates(const std::map<std::string, double>& rates,
                       StandingPlan* next) const {
  const bool seen = IsWindowFull();
  std::map<std::string, int> replicas;  // by model
  for (const Place& place : plan_.places) {
    if (place.state != PlaceState::kServe) continue;
    ++replicas[fleet_.Engine(place.engine)->model];
  }
  bool changed = false;
  for (Place& place : next->places) {
    const auto rate = rates.find(place.engine);
    if (place.state != PlaceState::kServe || rate == rates.end()) continue;
    // A rate expected by the fleet file does not replace a rate that a leader
    // has seen.
    if (!seen && place.target_rate > 0) continue;
    // A model's only replica gets all requests, whatever its target rate.
    const bool shares = replicas[fleet_.Engine(place.engine)->model] > 1;
    const double by = std::abs(rate->second - place.target_rate);
    const bool moved =
        by > kRateChange * std::max(place.target_rate, kSmallRate);
    changed |= moved && (shares || place.target_rate == 0);
    place.target_rate = rate->second;
  }
  return changed;
}

bool Leader::Keep(const StandingPlan& next, const std::string& why) {
  const absl::Status s = store_.Write(
      next, why.empty() ? "" : HistoryLine(next, time_of_day_(), why));
  const std::string trouble =
      s.ok() ? "" : absl::StrCat(s.message(), ": the plan stays as it is");
  if (!s.ok() && trouble != cannot_write_) log::Error("{}", trouble);
  cannot_write_ = trouble;
  return s.ok();
}

void Leader::Publish(StandingPlan next, const std::string& why) {
  for (Place& place : next.places) {
    if (place.state != PlaceState::kServe) place.target_rate = 0;
    place.no_rest &= place.state == PlaceState::kOff;
  }
  // Without a plan file, the number must exceed every number sent since this
  // machine started, because proxies may still know those.
  const uint64_t last =
      plan_.number != 0 ? plan_.number : clock_->NowNs() / 1'000'000'000;
  next.number = std::max(last, HighestNumberHeard()) + 1;
  if (!Keep(next, why)) return;
  plan_ = std::move(next);
  is_untold_ = false;
  if (why.empty()) return;  // rates alone
  step_ns_ = clock_->NowNs();
  step_number_ = plan_.number;
  log::Info("plan {}: {}", plan_.number, why);
}

std::unique_ptr<wire::PlanT> Leader::PlanToSend() const {
  if (plan_.number == 0) return nullptr;
  auto reported = std::make_unique<wire::PlanT>();
  reported->number = plan_.number;
  reported->term = plan_.term;
  reported->leader = gpu_;
  for (const Place& place : plan_.places) {
    auto p = std::make_unique<wire::PlannedPlaceT>();
    p->engine = place.engine;
    p->state = place.state;
    p->target_rate = place.target_rate;
    p->no_rest = place.no_rest;
    reported->places.push_back(std::move(p));
  }
  return reported;
}

std::vector<std::string> Leader::Troubles() const {
  std::vector<std::string> troubles = silent_;
  troubles.insert(troubles.end(), troubles_.begin(), troubles_.end());
  if (!cannot_write_.empty()) troubles.push_back(cannot_write_);
  return troubles;
}

void Leader::NoteTroubles() {
  std::map<std::string, uint64_t> since_ns;
  for (const std::string& trouble : Troubles()) {
    std::string key = WithoutFigures(trouble);
    const auto known = since_ns_.find(key);
    const bool is_new = known == since_ns_.end();
    since_ns.emplace(std::move(key), is_new ? clock_->NowNs() : known->second);
  }
  since_ns_ = std::move(since_ns);
}

void Leader::Describe(wire::PlanStateT* state) const {
  state->frozen = plan_.frozen;
  state->frozen_s = SecondsBetween(plan_.frozen_at, time_of_day_());
  for (const auto& [model, gpu] : plan_.pins) {
    auto pin = std::make_unique<wire::PinT>();
    pin->model = model;
    pin->gpu = gpu;
    state->pins.push_back(std::move(pin));
  }
  if (plan_.move) state->move = lead::Describe(*plan_.move);
  state->troubles = Troubles();
  for (const std::string& trouble : state->troubles) {
    const auto since = since_ns_.find(WithoutFigures(trouble));
    state->troubles_s.push_back(
        since == since_ns_.end()
            ? 0
            : static_cast<double>(clock_->NowNs() - since->second) * 1e-9);
  }
  state->history = store_.History(kHistoryTold);
  const std::map<std::string, Demand> demand = DemandSeen();
  const Outlook outlook(fleet_, plan_, gpus_, demand);
  for (const config::FleetModel& m : fleet_.models) {
    const Demand d = outlook.PlannedDemand(m);
    auto rate = std::make_unique<wire::ModelRateT>();
    rate->model = m.name;
    rate->rate = d.rate;
    rate->prompt_tokens = d.prompt_tokens;
    rate->output_tokens = d.output_tokens;
    rate->attainment = d.attainment;
    rate->observed = d.seconds > 0;
    state->demand.push_back(std::move(rate));
  }
}

absl::Status Leader::Record(StandingPlan next, const std::string& what) {
  if (!Keep(next, what)) return absl::UnavailableError(cannot_write_);
  plan_ = std::move(next);
  log::Info("plan: {}", what);
  planned_ns_ = 0;  // plans with the next Tick
  return absl::OkStatus();
}

absl::Status Leader::Pin(const std::string& model, const std::string& gpu) {
  for (const config::FleetEngine& e : fleet_.engines) {
    if (!e.is_place || e.model != model) continue;
    for (const auto& [uuid, facts] : gpus_) {
      if (!e.IsOn(uuid) || !finding::MeansGpu(gpu, uuid)) continue;
      StandingPlan next = plan_;
      next.pins[model] = uuid;
      return Record(std::move(next),
                    absl::StrCat(model, " is pinned to ", uuid));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "model \"", model, "\" has no place on ", gpu,
      "; list that GPU in the gpus of its [[engine]] in the fleet file"));
}

absl::Status Leader::Steer(const wire::SteerT& steer) {
  StandingPlan next = plan_;
  if (!steer.pin.empty()) return Pin(steer.pin, steer.gpu);
  if (!steer.unpin.empty()) {
    if (next.pins.erase(steer.unpin) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("model \"", steer.unpin, "\" is not pinned"));
    }
    return Record(std::move(next),
                  absl::StrCat(steer.unpin, " may move again"));
  }
  if (steer.freeze || steer.thaw) {
    if (next.frozen != steer.freeze) {
      next.frozen_at = steer.freeze ? time_of_day_() : "";
    }
    next.frozen = steer.freeze;
    return Record(std::move(next), steer.freeze ? "frozen: no moves begin"
                                                : "moves may begin again");
  }
  if (!steer.apply) {
    return absl::InvalidArgumentError("nothing to do was named");
  }
  if (plan_.frozen) {
    return absl::FailedPreconditionError(
        "the plan is frozen; thaw it first: fsctl plan --thaw");
  }
  next.applies = true;
  return Record(std::move(next), "the best plan is applied, whatever its gain");
}

}  // namespace fineserve::lead
