#include "daemon/proxy/admission/gpu_admission.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/log/log.h"
#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/terms.h"
#include "daemon/contract/wire/verdict_codes.h"

namespace fineserve::proxy {
GpuAdmission::GpuAdmission(std::shared_ptr<const config::Fleet> fleet,
                           const Clock* clock)
    : fleet_(std::move(fleet)),
      clock_(clock),
      states_(fleet_, clock),
      waits_(fleet_, clock),
      alone_(
          fleet_, [this](const auto& engine) { return states_.Serves(engine); },
          [this](const auto& engine) { return states_.MayTake(engine); }),
      heard_ns_(clock->NowNs()) {}

template <typename Body>
void GpuAdmission::Tell(uint64_t id, Body body) {
  Flush();
  Send(wire::Encode(epoch_, id, std::move(body)));
}

void GpuAdmission::Flush() {
  for (const std::string& message : std::exchange(held_, {})) Send(message);
}

// Sends the message. If that fails, the daemon would never learn its content,
// so it is greeted as a new daemon and sent everything again.
void GpuAdmission::Send(const std::string& message) {
  if (!send_(message)) SetEpoch(0);
}

// Drops the messages held back, which were meant for the former daemon.
void GpuAdmission::SetEpoch(uint64_t epoch) {
  epoch_ = epoch;
  held_.clear();
}

void GpuAdmission::TellWaits(uint64_t id) {
  const auto place = waiting_.find(id);
  if (place == waiting_.end() || !place->second.tie.on_waits) return;
  place->second.reported = true;
  // The call may end the request.
  const std::function<void()> on_waits = place->second.tie.on_waits;
  on_waits();
}

void GpuAdmission::TellUnheard(uint64_t before_ns) {
  std::vector<uint64_t> unheard;
  for (const auto& [id, waiting] : waiting_) {
    if (!waiting.reported && waiting.since_ns < before_ns)
      unheard.push_back(id);
  }
  for (const uint64_t id : unheard) TellWaits(id);
}

void GpuAdmission::Waits(uint64_t id, const wire::WaitsT& waits) {
  const auto place = waiting_.find(id);
  if (place == waiting_.end()) return;
  waits_.NoteFull(place->second.request.model, waits.start_us);
  TellWaits(id);
}

void GpuAdmission::Hello(bool reset) {
  wire::HelloT hello;
  hello.reset = reset;
  for (const config::FleetEngine& engine : fleet_->engines) {
    states_.Tell(engine.name, &hello);
    told_serves_[engine.name] = hello.engines.back()->serves;
  }
  hello.unscheduled = unscheduled_;
  hello.plan_number = told_plan_ = PlanNumber();
  if (demand_ != nullptr) demand_->Tell(&hello);
  for (auto& [id, running] : running_) {
    if (!reset) break;
    auto reported = std::make_unique<wire::RunningRequestT>();
    reported->request = id;
    reported->engine = running.engine;
    reported->model = running.request.model;
    wire::SetTerms(running.request, reported.get());
    reported->id = running.request.name;
    reported->output_tokens = running.told_tokens = running.output_tokens;
    hello.running.push_back(std::move(reported));
  }
  greeted_ns_ = clock_->NowNs();
  Tell(0, std::move(hello));
}

void GpuAdmission::Tick() {
  const uint64_t now = clock_->NowNs();
  if (now - heard_ns_ >= kPatienceNs) GoOn();
  // A daemon that has just come back is greeted with the first tick.
  if (away_ || now - greeted_ns_ >= kHelloNs) Hello(/*reset=*/false);
  TellServing();
  if (epoch_ != 0) TellProgress();
  if (now > kUnheardNs) TellUnheard(now - kUnheardNs);
}

void GpuAdmission::TellProgress() {
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

void GpuAdmission::GoOn() {
  if (away_) return;
  away_ = true;
  SetEpoch(0);
  log::Warning(
      "no fineserved answers for {}: requests are {}", Names(),
      fleet_->proxy.fail_open ? "admitted unscheduled" : "refused with 503");
  while (!waiting_.empty()) Lose(waiting_.begin()->first);
}

void GpuAdmission::Lose(uint64_t id) {
  Waiting waiting = Take(id);
  if (waiting.tie.on_lost && waiting.tie.on_lost()) return;
  DecideAlone(std::move(waiting), WaitedFor::kDaemon);
}

void GpuAdmission::Connected() {
  SetEpoch(0);
  Hello(/*reset=*/false);
}

void GpuAdmission::Receive(absl::string_view bytes) {
  const absl::StatusOr<wire::MessageT> message = wire::Decode(bytes);
  if (!message.ok()) {
    log::Warning("ignoring a message from fineserved: {}",
                 std::string(message.status().message()));
    return;
  }
  heard_ns_ = clock_->NowNs();
  if (const wire::WelcomeT* welcome = message->body.AsWelcome()) {
    if (message->epoch != epoch_) Welcomed(message->epoch);
    waits_.Note(*welcome);
    NotePlan(*welcome);
    NoteReading(*welcome);
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

void GpuAdmission::Welcomed(uint64_t epoch) {
  log::Info("fineserved now decides for {}: {} requests run, {} wait", Names(),
            running_.size(), waiting_.size());
  SetEpoch(epoch);
  away_ = false;
  Hello(/*reset=*/true);
  for (const auto& [id, waiting] : waiting_) {
    if (epoch_ != 0) Ask(waiting);
  }
}

uint64_t GpuAdmission::PlanNumber() const {
  return plan_ == nullptr ? 0 : plan_->number();
}

void GpuAdmission::SetPlan(wire::NewestPlan* plan) {
  plan_ = plan;
  alone_.SetPlan(plan);
}

namespace {

// Converts a daemon's number to an integer from 0 to `most`, whatever the
// daemon says.
uint64_t Whole(double number, uint64_t most) {
  if (!(number > 0)) return 0;
  return number < static_cast<double>(most) ? static_cast<uint64_t>(number)
                                            : most;
}

}  // namespace

// Keeps the start time of a reading that is reported again, although messages
// take different times to arrive.
void GpuAdmission::NoteReading(const wire::WelcomeT& welcome) {
  constexpr uint64_t kSameNs = 1'000'000'000;
  constexpr uint64_t kMostStepUs = 1'000'000'000;
  const auto before = std::exchange(reading_, {});
  for (const auto& said : welcome.reading) {
    const uint64_t now_ns = clock_->NowNs();
    PeerReading reading = {said->bytes, said->lender_pid,
                           now_ns - Whole(said->s * 1e9, now_ns),
                           Whole(said->step_us, kMostStepUs)};
    const auto former = before.find(said->engine);
    if (former != before.end()) {
      const uint64_t since_ns = former->second.since_ns;
      const bool same = since_ns < reading.since_ns + kSameNs &&
                        reading.since_ns < since_ns + kSameNs;
      if (same) reading.since_ns = since_ns;
    }
    reading_[said->engine] = reading;
  }
}

absl::optional<PeerReading> GpuAdmission::ReadingOf(
    const std::string& engine) const {
  const auto found = reading_.find(engine);
  if (found == reading_.end()) return absl::nullopt;
  return found->second;
}

// Takes over the daemon's plan if it is newer. A daemon may not have received
// the newest plan yet, or may have forgotten it.
void GpuAdmission::NotePlan(const wire::WelcomeT& welcome) {
  if (plan_ == nullptr || welcome.plan == nullptr) return;
  const uint64_t before = plan_->number();
  plan_->Take(*welcome.plan).IgnoreError();
  if (plan_->number() == before) return;
  log::Info("plan {} of the leader {} holds now", plan_->number(),
            welcome.plan->leader);
}

std::string GpuAdmission::Names() const {
  return absl::StrJoin(fleet_->engines, ", ",
                       [](std::string* out, const config::FleetEngine& e) {
                         absl::StrAppend(out, e.name);
                       });
}

void GpuAdmission::Ask(const Waiting& waiting) {
  const AdmissionRequest& r = waiting.request;
  waits_.Sent(r.model, r.prompt_tokens);
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

void GpuAdmission::Submit(AdmissionRequest request,
                          std::function<void(Verdict)> on_verdict, Tie tie) {
  const uint64_t id = request.id;
  Waiting waiting = {std::move(request), std::move(on_verdict), std::move(tie),
                     clock_->NowNs()};
  if (away_) {
    DecideAlone(std::move(waiting), WaitedFor::kNothing);
    return;
  }
  const auto place = waiting_.emplace(id, std::move(waiting)).first;
  if (epoch_ != 0) Ask(place->second);
}

GpuAdmission::Waiting GpuAdmission::Take(uint64_t id) {
  return std::move(waiting_.extract(id).mapped());
}

void GpuAdmission::DecideAlone(Waiting waiting, WaitedFor waited_for) {
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
    Runs(std::move(waiting.request), verdict.engine);
  }
  waiting.on_verdict(std::move(verdict));
}

void GpuAdmission::Decided(uint64_t id, const wire::VerdictT& verdict) {
  // Ignores the verdict if the request was cancelled while the verdict was on
  // the way.
  if (waiting_.count(id) == 0) return;
  Waiting waiting = Take(id);
  const std::string engine = EngineFor(waiting.request, verdict.engine);
  if (verdict.admitted) Runs(std::move(waiting.request), engine);
  waiting.on_verdict({verdict.admitted, engine, /*unscheduled=*/false,
                      wire::MeaningOf(verdict.refusal), verdict.why,
                      verdict.retry_after_ms, verdict.predicted_ttft_ms,
                      wire::MeaningOf(verdict.waited_for), verdict.waited_us,
                      DecidedBy::kDaemon});
}

std::string GpuAdmission::EngineFor(const AdmissionRequest& request,
                                    const std::string& chosen) const {
  if (chosen.empty() || chosen != request.avoid_engine) return chosen;
  const Verdict other = alone_.Choose(request);
  return other.admitted ? other.engine : chosen;
}

void GpuAdmission::Runs(AdmissionRequest request, const std::string& engine) {
  alone_.Enter(request, engine);
  Running& running = running_[request.id];
  running = {std::move(request), engine, 0, 0, states_.SignsOf(engine)};
}

void GpuAdmission::Refused(uint64_t id, const wire::RefusedT& refused) {
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

void GpuAdmission::Cancel(uint64_t id) {
  EndCancelled(id, /*elsewhere=*/false);
}

void GpuAdmission::Withdraw(uint64_t id) {
  EndCancelled(id, /*elsewhere=*/true);
}

void GpuAdmission::EndCancelled(uint64_t id, bool elsewhere) {
  if (waiting_.erase(id) == 0 || epoch_ == 0) return;
  wire::CancelT cancel;
  cancel.elsewhere = elsewhere;
  Tell(id, cancel);
}

void GpuAdmission::FirstToken(uint64_t id) {
  alone_.FirstToken(id);
  if (epoch_ != 0) Tell(id, wire::FirstTokenT());
}

void GpuAdmission::Progress(uint64_t id, uint32_t output_tokens) {
  const auto place = running_.find(id);
  if (place == running_.end()) return;
  place->second.output_tokens = output_tokens;
  states_.Progressed(place->second.signs);
}

void GpuAdmission::Finished(uint64_t id, uint32_t prompt_tokens,
                            uint32_t output_tokens, Outcome outcome) {
  alone_.Finished(id);
  const auto place = running_.find(id);
  if (place == running_.end()) return;
  running_.erase(place);
  waits_.Ended();
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

void GpuAdmission::SetHealth(const std::string& engine,
                             EngineStates::Health health, uint64_t asked_ns) {
  states_.SetHealth(engine, health, asked_ns);
  TellServing();
}

void GpuAdmission::TellServing() {
  if (epoch_ == 0) return;
  const bool all_told = std::all_of(
      fleet_->engines.begin(), fleet_->engines.end(), [this](const auto& e) {
        return told_serves_.try_emplace(e.name, true).first->second ==
               states_.Serves(e.name);
      });
  if (!all_told || told_plan_ != PlanNumber()) Hello(/*reset=*/false);
}

void GpuAdmission::Suspect(const std::string& engine) {
  const config::FleetEngine* its = fleet_->Engine(engine);
  if (its != nullptr) probe_(*its);
}

void GpuAdmission::SetFleet(std::shared_ptr<const config::Fleet> fleet) {
  fleet_ = fleet;
  states_.SetFleet(fleet);
  waits_.SetFleet(fleet);
  alone_.SetFleet(std::move(fleet));
}

void GpuAdmission::Rest(const std::vector<std::string>& engines,
                        const std::vector<std::string>& stopped,
                        uint64_t until_ns) {
  states_.Rest(engines, stopped, until_ns);
  if (epoch_ != 0) Hello(/*reset=*/false);
}

std::map<std::string, uint64_t> GpuAdmission::RunningByEngine() const {
  std::map<std::string, uint64_t> running;
  for (const auto& [id, request] : running_) ++running[request.engine];
  return running;
}

bool GpuAdmission::Ready() const {
  return epoch_ != 0 || (away_ && fleet_->proxy.fail_open);
}

}  // namespace fineserve::proxy
