#include "daemon/proxy/admission/stopped_models.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fineserve::proxy {
namespace {

// Heuristic: after a refused request an engine stays wanted for this long, or
// for twice the time of its start if that is longer, since other engines of its
// GPU may have to start or stop first.
constexpr double kLeastWantedS = 60;

uint32_t Milliseconds(double seconds) {
  return static_cast<uint32_t>(std::clamp(seconds, 0.0, 1e6) * 1000);
}

}  // namespace

void StoppedModels::SetFleet(std::shared_ptr<const config::Fleet> fleet) {
  fleet_ = std::move(fleet);
  engines_.clear();
  for (const config::FleetEngine& engine : fleet_->engines) {
    if (!engine.on_request) continue;
    engines_[engine.name] = engine.model;
    // Counts the idle time from now, since nothing is known of the time before.
    asked_ns_.try_emplace(engine.model, clock_->NowNs());
  }
}

void StoppedModels::Asked(const std::string& model) {
  const auto known = asked_ns_.find(model);
  if (known != asked_ns_.end()) known->second = clock_->NowNs();
}

bool StoppedModels::IsStopped(const std::string& model) const {
  if (!any() || asked_ns_.count(model) == 0) return false;
  bool on_request = false;
  for (const config::FleetEngine& engine : fleet_->engines) {
    if (engine.model != model) continue;
    if (serves_(engine.name)) return false;
    on_request |= engine.on_request && !stopped_by_hand_(engine.name);
  }
  return on_request;
}

void StoppedModels::Add(const AdmissionRequest& request, OnVerdict on_verdict) {
  Waiting waiting = {request, std::move(on_verdict), clock_->NowNs()};
  Verdict verdict;
  if (RefuseIfHopeless(waiting, &verdict)) {
    waiting.on_verdict(std::move(verdict));
    return;
  }
  waiting_.emplace(request.id, std::move(waiting));
}

StoppedModels::Outlook StoppedModels::OutlookFor(
    const std::string& model) const {
  Outlook best;
  for (const auto& [engine, its_model] : engines_) {
    const auto start = starts_.find(engine);
    if (its_model != model || start == starts_.end()) continue;
    const Outlook its = {true, start->second < 0, std::abs(start->second),
                         engine};
    const bool is_better =
        !best.known || (best.fails && !its.fails) ||
        (best.fails == its.fails && its.seconds < best.seconds);
    if (is_better) best = its;
  }
  return best;
}

void StoppedModels::Want(const std::string& model, const Outlook& outlook) {
  const double seconds = std::max(kLeastWantedS, 2 * outlook.seconds);
  wanted_until_ns_[model] =
      clock_->NowNs() + static_cast<uint64_t>(seconds * 1e9);
}

void StoppedModels::ForgetWanted() {
  std::erase_if(wanted_until_ns_, [this](const auto& wanted) {
    const auto& [model, until_ns] = wanted;
    return clock_->NowNs() >= until_ns || !IsStopped(model) ||
           OutlookFor(model).fails;
  });
}

bool StoppedModels::RefuseIfHopeless(const Waiting& waiting, Verdict* verdict) {
  const AdmissionRequest& request = waiting.request;
  verdict->refusal = Refusal::kNoEngine;
  verdict->waited_for = WaitedFor::kStart;
  verdict->waited_us = (clock_->NowNs() - waiting.since_ns) / 1000;
  const Outlook outlook = OutlookFor(request.model);
  verdict->retry_after_ms = Milliseconds(outlook.seconds);
  const uint64_t silent_ns =
      clock_->NowNs() - std::max(heard_ns_, waiting.since_ns);
  if (silent_ns >= kUpPatienceNs) {
    verdict->why = absl::StrCat("no engine of ", request.model,
                                " runs, and no fsctl up that would start one");
    return true;
  }
  if (outlook.fails) {
    verdict->why = absl::StrCat("engine ", outlook.engine,
                                " has failed to serve; its log says why");
    return true;
  }
  const double slo_s = static_cast<double>(request.slo_ttft_us) * 1e-6;
  const double waited_s =
      static_cast<double>(clock_->NowNs() - request.arrived_ns) * 1e-9;
  if (slo_s == 0 || request.degrade_ok || waited_s + outlook.seconds <= slo_s) {
    return false;
  }
  Want(request.model, outlook);
  verdict->refusal = Refusal::kDeadline;
  verdict->why = absl::StrFormat(
      "an engine of %s is started, which takes about %.0f s; the request has "
      "waited %.0f s, and its SLO is %g s",
      request.model, std::ceil(outlook.seconds), waited_s, slo_s);
  return true;
}

StoppedModels::Ready StoppedModels::Decidable(Waiting waiting) const {
  const uint64_t now = clock_->NowNs();
  const uint64_t waited_us = (now - waiting.since_ns) / 1000;
  Ready ready = {std::move(waiting.request), nullptr};
  if (ready.request.slo_ttft_us == 0) ready.request.arrived_ns = now;
  ready.on_verdict = [waited_us, begins = ready.request.arrived_ns,
                      on_verdict = std::move(waiting.on_verdict)](Verdict v) {
    v.waited_for = WaitedFor::kStart;
    v.waited_us += waited_us;
    // The request may have waited for more than one start; the SLO begins with
    // the last one.
    v.slo_begins_ns = std::max(v.slo_begins_ns, begins);
    on_verdict(std::move(v));
  };
  return ready;
}

std::vector<StoppedModels::Ready> StoppedModels::Turn(
    const std::map<std::string, uint64_t>& running) {
  for (const auto& [engine, requests] : running) {
    if (requests != 0) ran_ns_[engine] = clock_->NowNs();
  }
  for (const auto& [id, waiting] : waiting_) Asked(waiting.request.model);
  std::vector<Ready> ready;
  std::vector<std::pair<OnVerdict, Verdict>> refused;
  for (auto place = waiting_.begin(); place != waiting_.end();) {
    const auto next = std::next(place);
    Waiting& waiting = place->second;
    Verdict verdict;
    if (!IsStopped(waiting.request.model)) {
      ready.push_back(Decidable(std::move(waiting)));
      waiting_.erase(place);
    } else if (RefuseIfHopeless(waiting, &verdict)) {
      refused.emplace_back(std::move(waiting.on_verdict), std::move(verdict));
      waiting_.erase(place);
    }
    place = next;
  }
  ForgetWanted();
  for (auto& [on_verdict, verdict] : refused) on_verdict(std::move(verdict));
  return ready;
}

void StoppedModels::HearStarts(const std::map<std::string, double>& starts) {
  starts_ = starts;
  heard_ns_ = clock_->NowNs();
}

std::map<std::string, EngineDemand> StoppedModels::Demand() const {
  std::map<std::string, uint64_t> waiting;  // by model
  for (const auto& [id, w] : waiting_) ++waiting[w.request.model];
  for (const auto& [model, until_ns] : wanted_until_ns_) ++waiting[model];
  std::map<std::string, EngineDemand> demand;
  for (const auto& [engine, model] : engines_) {
    const auto ran = ran_ns_.find(engine);
    const uint64_t since_ns =
        std::max(asked_ns_.at(model), ran == ran_ns_.end() ? 0 : ran->second);
    demand[engine] = {waiting[model],
                      static_cast<double>(clock_->NowNs() - since_ns) * 1e-9};
  }
  return demand;
}

}  // namespace fineserve::proxy
