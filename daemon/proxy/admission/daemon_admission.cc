#include "daemon/proxy/admission/daemon_admission.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/log/log.h"
#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/terms.h"
#include "daemon/contract/wire/verdict_codes.h"

namespace fineserve::proxy {
DaemonAdmission::DaemonAdmission(std::shared_ptr<const config::Fleet> fleet,
                                 const Clock* clock)
    : fleet_(std::move(fleet)),
      clock_(clock),
      alone_(fleet_, [this](const auto& engine) { return Serves(engine); }),
      heard_ns_(clock->NowNs()) {}

template <typename Body>
void DaemonAdmission::Tell(uint64_t id, Body body) {
  Flush();
  Send(wire::Encode(epoch_, id, std::move(body)));
}

void DaemonAdmission::Flush() {
  for (const std::string& message : std::exchange(held_, {})) Send(message);
}

// The daemon would never learn a lost message's content, so it is greeted as a
// new one and sent everything again.
void DaemonAdmission::Send(const std::string& message) {
  if (!send_(message)) SetEpoch(0);
}

// Drops the messages held back, which were meant for the former daemon.
void DaemonAdmission::SetEpoch(uint64_t epoch) {
  epoch_ = epoch;
  held_.clear();
}

void DaemonAdmission::TellWaits(uint64_t id) {
  const auto place = waiting_.find(id);
  if (place == waiting_.end() || !place->second.tie.on_waits) return;
  place->second.told = true;
  // The call may end the request.
  const std::function<void()> on_waits = place->second.tie.on_waits;
  on_waits();
}

void DaemonAdmission::TellUnheard(uint64_t before_ns) {
  std::vector<uint64_t> unheard;
  for (const auto& [id, waiting] : waiting_) {
    if (!waiting.told && waiting.since_ns < before_ns) unheard.push_back(id);
  }
  for (const uint64_t id : unheard) TellWaits(id);
}

void DaemonAdmission::Waits(uint64_t id, const wire::WaitsT& waits) {
  const auto place = waiting_.find(id);
  if (place == waiting_.end()) return;
  waits_[place->second.request.model] = {static_cast<double>(waits.start_us),
                                         /*full=*/true, /*away=*/false,
                                         clock_->NowNs()};
  TellWaits(id);
}

void DaemonAdmission::Hello(bool reset) {
  wire::HelloT hello;
  hello.reset = reset;
  for (const config::FleetEngine& engine : fleet_->engines) {
    auto health = std::make_unique<wire::EngineHealthT>();
    health->name = engine.name;
    health->serves = told_serves_[engine.name] = Serves(engine.name);
    health->stopped = IsStoppedByHand(engine.name);
    const Trouble trouble = TroubleOf(engine.name);
    health->trouble = trouble.what;
    if (trouble.since_ns != 0)
      health->trouble_s = SecondsSince(trouble.since_ns);
    const auto silent = silent_ns_.find(engine.name);
    if (silent != silent_ns_.end() && silent->second != 0) {
      health->silent_s = SecondsSince(silent->second);
    }
    hello.engines.push_back(std::move(health));
  }
  hello.unscheduled = unscheduled_;
  if (demand_ != nullptr) demand_->Tell(&hello);
  for (auto& [id, running] : running_) {
    if (!reset) break;
    auto told = std::make_unique<wire::RunningRequestT>();
    told->request = id;
    told->engine = running.engine;
    told->model = running.request.model;
    wire::SetTerms(running.request, told.get());
    told->id = running.request.name;
    told->output_tokens = running.told_tokens = running.output_tokens;
    hello.running.push_back(std::move(told));
  }
  greeted_ns_ = clock_->NowNs();
  Tell(0, std::move(hello));
}

void DaemonAdmission::Tick() {
  const uint64_t now = clock_->NowNs();
  if (now - heard_ns_ >= kPatienceNs) GoOn();
  // A daemon that has just come back is greeted with the first tick.
  if (away_ || now - greeted_ns_ >= kHelloNs) Hello(/*reset=*/false);
  TellServing();
  if (epoch_ != 0) TellProgress();
  if (now > kUnheardNs) TellUnheard(now - kUnheardNs);
}

void DaemonAdmission::TellProgress() {
  wire::ProgressT progress;
  for (auto& [id, running] : running_) {
    if (running.told_tokens == running.output_tokens) continue;
    running.told_tokens = running.output_tokens;
    auto stream = std::make_unique<wire::StreamProgressT>();
    stream->request = id;
    stream->output_tokens = running.output_tokens;
    progress.streams.push_back(std::move(stream));
  }
  if (!progress.streams.empty()) Tell(0, std::move(progress));
}

void DaemonAdmission::GoOn() {
  if (away_) return;
  away_ = true;
  SetEpoch(0);
  log::Warning(
      "no fineserved answers for {}: requests are {}", Names(),
      fleet_->proxy.fail_open ? "admitted unscheduled" : "refused with 503");
  while (!waiting_.empty()) Lose(waiting_.begin()->first);
}

void DaemonAdmission::Lose(uint64_t id) {
  const Waiting waiting = Take(id);
  if (waiting.tie.on_lost && waiting.tie.on_lost()) return;
  DecideAlone(waiting, WaitedFor::kDaemon);
}

void DaemonAdmission::Connected() {
  SetEpoch(0);
  Hello(/*reset=*/false);
}

void DaemonAdmission::Receive(absl::string_view bytes) {
  const absl::StatusOr<wire::MessageT> message = wire::Decode(bytes);
  if (!message.ok()) {
    log::Warning("ignoring a message from fineserved: {}",
                 std::string(message.status().message()));
    return;
  }
  heard_ns_ = clock_->NowNs();
  if (const wire::WelcomeT* welcome = message->body.AsWelcome()) {
    if (message->epoch != epoch_) Welcomed(message->epoch);
    NoteWaits(*welcome);
    NotePlan(*welcome);
  } else if (const wire::VerdictT* verdict = message->body.AsVerdict()) {
    Decided(message->request, *verdict);
  } else if (const wire::WaitsT* waits = message->body.AsWaits()) {
    Waits(message->request, *waits);
  } else if (const wire::RefusedT* refused = message->body.AsRefused()) {
    Refused(message->request, *refused);
  } else if (message->body.AsGoodbye() != nullptr) {
    GoOn();
    Hello(/*reset=*/false);
  }
}

void DaemonAdmission::Welcomed(uint64_t epoch) {
  log::Info("fineserved now decides for {}: {} requests run, {} wait", Names(),
            running_.size(), waiting_.size());
  SetEpoch(epoch);
  away_ = false;
  Hello(/*reset=*/true);
  for (const auto& [id, waiting] : waiting_) {
    if (epoch_ != 0) Ask(waiting);
  }
}

void DaemonAdmission::NoteWaits(const wire::WelcomeT& welcome) {
  waits_.clear();
  for (const auto& wait : welcome.waits) {
    waits_[wait->model] = {static_cast<double>(wait->wait_us), wait->full,
                           wait->away, clock_->NowNs()};
  }
}

void DaemonAdmission::SetPlan(wire::NewestPlan* plan) {
  plan_ = plan;
  alone_.SetPlan(plan);
}

// A daemon may not have received the newest plan yet, or have forgotten it.
void DaemonAdmission::NotePlan(const wire::WelcomeT& welcome) {
  if (plan_ == nullptr || welcome.plan == nullptr) return;
  const uint64_t before = plan_->number();
  plan_->Take(*welcome.plan).IgnoreError();
  if (plan_->number() == before) return;
  log::Info("plan {} of the leader {} holds now", plan_->number(),
            welcome.plan->leader);
}

double DaemonAdmission::PredictedWaitUs(const std::string& model) const {
  const auto told = waits_.find(model);
  const size_t index = fleet_->ModelIndex(model);
  if (told == waits_.end() || index == fleet_->models.size()) return 0;
  const config::StepProfile profile =
      fleet_->models[index].profile.value_or(config::StepProfile());
  return told->second.Us(profile.per_token_us, clock_->NowNs());
}

double DaemonAdmission::PrefillUs(const std::string& model,
                                  double tokens) const {
  // Heuristic for a model without a profile: an 8B on an H100.
  constexpr double kUnknownUs = 50;
  constexpr double kSameUs = 1000;
  const size_t index = fleet_->ModelIndex(model);
  const bool has_profile = index < fleet_->models.size() &&
                           fleet_->models[index].profile.has_value();
  const double token_us =
      has_profile ? fleet_->models[index].profile->per_token_us : kUnknownUs;
  return std::trunc(token_us * tokens / kSameUs) * kSameUs;
}

bool DaemonAdmission::IsFull(const std::string& model) const {
  const auto told = waits_.find(model);
  return told != waits_.end() && told->second.full();
}

bool DaemonAdmission::IsAway(const std::string& model) const {
  const auto told = waits_.find(model);
  return told != waits_.end() && told->second.away();
}

std::string DaemonAdmission::Names() const {
  return absl::StrJoin(fleet_->engines, ", ",
                       [](std::string* out, const config::FleetEngine& e) {
                         absl::StrAppend(out, e.name);
                       });
}

void DaemonAdmission::Ask(const Waiting& waiting) {
  const AdmissionRequest& r = waiting.request;
  const auto told = waits_.find(r.model);
  if (told != waits_.end()) told->second.Sent(r.prompt_tokens);
  wire::SubmitT submit;
  wire::SetTerms(r, &submit);
  submit.model = r.model;
  submit.waited_us = (clock_->NowNs() - r.arrived_ns) / 1000;
  submit.tell_waits = waiting.tie.on_waits != nullptr;
  submit.asked_before = waiting.tie.asked_before;
  submit.avoid_engine = r.avoid_engine;
  submit.id = r.name;
  Tell(r.id, std::move(submit));
}

void DaemonAdmission::SubmitTied(const AdmissionRequest& request,
                                 std::function<void(Verdict)> on_verdict,
                                 Tie tie) {
  Waiting waiting = {request, std::move(on_verdict), std::move(tie),
                     clock_->NowNs()};
  if (away_) {
    DecideAlone(waiting, WaitedFor::kNothing);
    return;
  }
  const auto place = waiting_.emplace(request.id, std::move(waiting)).first;
  if (epoch_ != 0) Ask(place->second);
}

DaemonAdmission::Waiting DaemonAdmission::Take(uint64_t id) {
  return std::move(waiting_.extract(id).mapped());
}

void DaemonAdmission::DecideAlone(const Waiting& waiting,
                                  WaitedFor waited_for) {
  if (!fleet_->proxy.fail_open) {
    Verdict verdict;
    verdict.refusal = Refusal::kDaemonAway;
    verdict.why = "the scheduler does not answer";
    verdict.retry_after_ms = kRetryAfterMs;
    verdict.waited_for = waited_for;
    waiting.on_verdict(std::move(verdict));
    return;
  }
  Verdict verdict = alone_.Choose(waiting.request);
  verdict.waited_for = waited_for;
  if (verdict.admitted) {
    verdict.unscheduled = true;
    ++unscheduled_;
    Runs(waiting.request, verdict.engine);
  }
  waiting.on_verdict(std::move(verdict));
}

void DaemonAdmission::Decided(uint64_t id, const wire::VerdictT& verdict) {
  // The request was cancelled while its verdict was on the way.
  if (waiting_.count(id) == 0) return;
  Waiting waiting = Take(id);
  const std::string engine = EngineFor(waiting.request, verdict.engine);
  if (verdict.admitted) Runs(waiting.request, engine);
  waiting.on_verdict({verdict.admitted, engine, /*unscheduled=*/false,
                      wire::MeaningOf(verdict.refusal), verdict.why,
                      verdict.retry_after_ms, verdict.predicted_ttft_ms,
                      wire::MeaningOf(verdict.waited_for), verdict.waited_us,
                      DecidedBy::kDaemon});
}

std::string DaemonAdmission::EngineFor(const AdmissionRequest& request,
                                       const std::string& chosen) const {
  if (chosen.empty() || chosen != request.avoid_engine) return chosen;
  const Verdict other = alone_.Choose(request);
  return other.admitted ? other.engine : chosen;
}

void DaemonAdmission::Runs(const AdmissionRequest& request,
                           const std::string& engine) {
  alone_.Enter(request, engine);
  running_[request.id] = {request, engine, 0, 0, &signs_[engine]};
}

void DaemonAdmission::Refused(uint64_t id, const wire::RefusedT& refused) {
  if (refused.ungreeted) {
    if (epoch_ == 0) return;  // it has been greeted in the meantime
    // This is a new daemon. After its Welcome it is sent everything that runs
    // or waits, so what ends before that need not be reported.
    SetEpoch(0);
    Hello(/*reset=*/false);
    return;
  }
  log::Warning("fineserved refused a message: {}", refused.why);
  wire::VerdictT verdict;
  verdict.refusal = wire::Refusal::kNoEngine;
  verdict.why = refused.why;
  Decided(id, verdict);
}

void DaemonAdmission::Cancel(uint64_t id) {
  EndCancelled(id, /*elsewhere=*/false);
}

void DaemonAdmission::Withdraw(uint64_t id) {
  EndCancelled(id, /*elsewhere=*/true);
}

void DaemonAdmission::EndCancelled(uint64_t id, bool elsewhere) {
  if (waiting_.erase(id) == 0 || epoch_ == 0) return;
  wire::CancelT cancel;
  cancel.elsewhere = elsewhere;
  Tell(id, cancel);
}

void DaemonAdmission::FirstToken(uint64_t id) {
  alone_.FirstToken(id);
  if (epoch_ != 0) Tell(id, wire::FirstTokenT());
}

void DaemonAdmission::Progress(uint64_t id, uint32_t output_tokens) {
  const auto place = running_.find(id);
  if (place == running_.end()) return;
  place->second.output_tokens = output_tokens;
  Progressed(place->second.signs);
}

void DaemonAdmission::Finished(uint64_t id, uint32_t prompt_tokens,
                               uint32_t output_tokens, Outcome outcome) {
  alone_.Finished(id, prompt_tokens, output_tokens, outcome);
  const auto place = running_.find(id);
  if (place == running_.end()) return;
  running_.erase(place);
  for (auto& [model, wait] : waits_) wait.SetFull(false);
  if (epoch_ == 0) return;
  wire::FinishedT finished;
  finished.outcome = wire::CodeOf(outcome);
  finished.prompt_tokens = prompt_tokens;
  finished.output_tokens = output_tokens;
  held_.push_back(wire::Encode(epoch_, id, finished));
  if (!waiting_.empty()) {
    Flush();
  } else if (held_.size() == 1) {
    on_hold_();
  }
}

void DaemonAdmission::SetHealth(const std::string& engine, Health health,
                                uint64_t asked_ns) {
  alone_.SetReachable(engine,
                      health == Health::kServes || health == Health::kDoesNot);
  serves_[engine] = health == Health::kServes;
  if (health == Health::kServes) {
    silent_ns_.erase(engine);
  } else {
    const uint64_t owed_ns = Signs(engine).unanswered_ns;
    silent_ns_.try_emplace(engine, owed_ns == 0 ? asked_ns : owed_ns);
  }
  TellServing();
}

void DaemonAdmission::TellServing() {
  if (epoch_ == 0) return;
  const bool all_told = std::all_of(
      fleet_->engines.begin(), fleet_->engines.end(), [this](const auto& e) {
        return told_serves_.try_emplace(e.name, true).first->second ==
               Serves(e.name);
      });
  if (!all_told) Hello(/*reset=*/false);
}

void DaemonAdmission::Answered(const std::string& engine) {
  Progressed(&signs_[engine]);
}

void DaemonAdmission::Suspect(const std::string& engine) {
  const config::FleetEngine* its = fleet_->Engine(engine);
  if (its != nullptr) probe_(*its);
}

EngineSigns DaemonAdmission::Signs(const std::string& engine) const {
  const auto known = signs_.find(engine);
  return known == signs_.end() ? EngineSigns() : known->second;
}

DaemonAdmission::Trouble DaemonAdmission::TroubleOf(
    const std::string& engine) const {
  const auto known = troubles_.find(engine);
  if (known != troubles_.end() && !known->second.what.empty()) {
    return known->second;
  }
  if (errors_ == nullptr) return {};
  return {errors_->TroubleOf(engine), errors_->TroubleSince(engine)};
}

double DaemonAdmission::SecondsSince(uint64_t ns) const {
  return static_cast<double>(clock_->NowNs() - ns) * 1e-9;
}

void DaemonAdmission::SetTrouble(const std::string& engine,
                                 const std::string& trouble,
                                 uint64_t since_ns) {
  Trouble& known = troubles_[engine];
  if (known.what == trouble) return;
  known = {trouble, since_ns != 0 ? since_ns : clock_->NowNs()};
  if (!trouble.empty()) log::Warning("engine {}: {}", engine, trouble);
}

void DaemonAdmission::SetFleet(std::shared_ptr<const config::Fleet> fleet) {
  fleet_ = fleet;
  std::erase_if(silent_ns_, [this](const auto& entry) {
    return fleet_->Engine(entry.first) == nullptr;
  });
  alone_.SetFleet(std::move(fleet));
}

bool DaemonAdmission::Serves(const std::string& engine) const {
  return IsHealthy(engine) && (errors_ == nullptr || !errors_->Shuns(engine));
}

bool DaemonAdmission::IsHealthy(const std::string& engine) const {
  const auto rests = rests_.find(engine);
  if (rests != rests_.end() && rests->second.until_ns > clock_->NowNs()) {
    return false;
  }
  const auto known = serves_.find(engine);
  if (known != serves_.end()) return known->second;
  // An engine that has not been asked for its /health counts as serving: a
  // request that finds no engine there is tried on another, but one that is
  // refused without reason is lost. Requests wait for one that starts on
  // request.
  const config::FleetEngine* its = fleet_->Engine(engine);
  return its == nullptr || !its->on_request;
}

void DaemonAdmission::Rest(const std::vector<std::string>& engines,
                           const std::vector<std::string>& stopped,
                           uint64_t until_ns) {
  const auto is_in = [](const std::vector<std::string>& names,
                        const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const uint64_t now = clock_->NowNs();
  std::erase_if(
      rests_, [now](const auto& rest) { return rest.second.until_ns <= now; });
  for (const config::FleetEngine& engine : fleet_->engines) {
    if (!is_in(engines, engine.name)) continue;
    rests_[engine.name] = {until_ns, is_in(stopped, engine.name)};
  }
  if (epoch_ != 0) Hello(/*reset=*/false);
}

bool DaemonAdmission::IsStoppedByHand(const std::string& engine) const {
  const auto rests = rests_.find(engine);
  return rests != rests_.end() && rests->second.by_hand &&
         rests->second.until_ns > clock_->NowNs();
}

std::map<std::string, uint64_t> DaemonAdmission::RunningByEngine() const {
  std::map<std::string, uint64_t> running;
  for (const auto& [id, request] : running_) ++running[request.engine];
  return running;
}

bool DaemonAdmission::Ready() const {
  return epoch_ != 0 || (away_ && fleet_->proxy.fail_open);
}

}  // namespace fineserve::proxy
