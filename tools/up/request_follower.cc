#include "tools/up/request_follower.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "daemon/contract/finding/daemon_sockets.h"

namespace fineserve::fsctl {

using OnRequest = RequestFollower::Engine::State;

void RequestFollower::Engine::See(const SupervisedEngine& life, bool ends,
                                  double start_s, uint64_t now_ns) {
  using Life = SupervisedEngine::State;
  const double for_s = static_cast<double>(now_ns - life.started_ns()) * 1e-9;
  pause_s = life.PauseS(now_ns);
  seconds = start_s;
  if (ends || life.state() == Life::kStopping) {
    state = State::kEnds;
  } else if (life.state() == Life::kStarting) {
    const bool hangs = for_s >= std::max(kLongestStartS, 3 * start_s);
    state = hangs ? State::kFails : State::kStarts;
    if (!hangs) seconds = std::max(0.0, start_s - for_s);
  } else if (life.Hangs(now_ns, kLongestSilenceNs) ||
             life.state() == Life::kGivenUp) {
    state = State::kFails;
  } else if (life.runs()) {
    state = State::kServes;
    seconds = 0;
    served_s = life.ServedS(now_ns);
  } else {
    state = State::kDown;
  }
}

std::map<std::string, RequestFollower::Demand> RequestFollower::Ask(
    const std::vector<Engine>& engines) const {
  apply::Question question;
  question.kind = apply::Question::Kind::kStarts;
  question.fleet_path = fleet_path_;
  for (const Engine& engine : engines) {
    const bool fails = engine.state == OnRequest::kFails;
    question.starts[engine.name] =
        fails ? -std::max(1.0, engine.seconds) : engine.seconds;
  }
  bool all_answered = true;
  std::map<std::string, absl::optional<double>> idle_s;
  std::map<std::string, Demand> demand;
  for (const auto& answer : ask_(question)) {
    all_answered &= answer.has_value();
    if (!answer) continue;
    for (const apply::EngineState& state : answer->engines) {
      if (state.idle_s < 0) continue;
      demand[state.name].waiting += state.waiting;
      absl::optional<double>& least = idle_s[state.name];
      least = std::min(least.value_or(state.idle_s), state.idle_s);
    }
  }
  for (const auto& [engine, least] : idle_s) {
    if (all_answered) demand[engine].idle_s = *least;
  }
  return demand;
}

const RequestFollower::Engine* RequestFollower::LongestIdle(
    const std::vector<Engine>& engines,
    const std::map<std::string, Demand>& demand, const Engine& failed) {
  // A request that has just arrived has not reached its engine yet.
  constexpr double kIdleS = 1;
  const Engine* longest = nullptr;
  double longest_s = kIdleS;
  for (const Engine& engine : engines) {
    const auto its = demand.find(engine.name);
    if (engine.state != OnRequest::kServes || its == demand.end() ||
        !finding::MayBeOneGpu(engine.gpu, failed.gpu) ||
        its->second.idle_s < longest_s) {
      continue;
    }
    longest = &engine;
    longest_s = its->second.idle_s;
  }
  return longest;
}

void RequestFollower::Judge(Engine* engine) {
  Failures& failures = failures_[engine->name];
  if (engine->state == OnRequest::kServes) {
    failures.in_vain = failures.stops = 0;
  }
  if (engine->state == OnRequest::kDown && engine->pause_s > 0 &&
      failures.in_vain >= kMostInVain) {
    engine->state = OnRequest::kFails;
    engine->seconds = engine->pause_s;
  }
}

bool RequestFollower::HasFailed(const Engine& engine) {
  uint64_t& seen = failures_[engine.name].seen;
  return std::exchange(seen, engine.failed_starts) < engine.failed_starts;
}

const RequestFollower::Engine* RequestFollower::StopsFor(
    const Engine& failed, uint64_t now_ns, const std::vector<Engine>& engines,
    const std::map<std::string, Demand>& demand) {
  Failures& failures = failures_[failed.name];
  const bool is_alone =
      std::none_of(engines.begin(), engines.end(), [&](const Engine& e) {
        const bool runs = e.state == OnRequest::kStarts ||
                          e.state == OnRequest::kServes ||
                          e.state == OnRequest::kEnds;
        return e.name != failed.name && runs &&
               finding::MayBeOneGpu(e.gpu, failed.gpu);
      });
  if (is_alone) {  // the others' memory is not to blame
    failures.stops = kMostStops;
    failures.stopped_ns = now_ns;
  } else if (now_ns - failures.stopped_ns >= kStopsAgainNs) {
    failures.stops = 0;
  }
  const Engine* const idle = failures.stops < kMostStops
                                 ? LongestIdle(engines, demand, failed)
                                 : nullptr;
  if (idle == nullptr) {
    ++failures.in_vain;
  } else {
    ++failures.stops;
    failures.stopped_ns = now_ns;
  }
  return idle;
}

std::vector<RequestFollower::Change> RequestFollower::Turn(
    uint64_t now_ns, std::vector<Engine> engines) {
  if (engines.empty() || now_ns < due_ns_) return {};
  due_ns_ = now_ns + kPeriodNs;
  for (Engine& engine : engines) Judge(&engine);
  const std::map<std::string, Demand> demand = Ask(engines);
  std::vector<Change> changes;
  std::set<std::string> served;  // models: an engine runs, or is to run
  for (const Engine& engine : engines) {
    const bool runs = engine.state == OnRequest::kStarts ||
                      engine.state == OnRequest::kServes;
    const bool is_to_run =
        engine.wish == Wish::kRun && engine.state != OnRequest::kFails;
    if (runs || is_to_run) served.insert(engine.model);
  }
  for (const Engine& engine : engines) {
    const auto found = demand.find(engine.name);
    const Demand its = found == demand.end() ? Demand() : found->second;
    const bool is_down =
        engine.state == OnRequest::kDown || engine.state == OnRequest::kFails;
    if (its.waiting != 0 && engine.wish != Wish::kRun &&
        engine.state != OnRequest::kFails &&
        served.insert(engine.model).second) {
      changes.push_back({engine.name, Wish::kRun, "requests wait for it"});
    } else if (is_down && its.waiting == 0 && engine.wish == Wish::kRun) {
      changes.push_back({engine.name, Wish::kStop, "no request waits for it"});
    } else if (engine.state == OnRequest::kServes && engine.stop_after_s != 0 &&
               std::min(its.idle_s, engine.served_s) >=
                   static_cast<double>(engine.stop_after_s)) {
      changes.push_back({engine.name, Wish::kStop,
                         absl::StrFormat("no request for %.0f s", its.idle_s)});
    }
    if (!HasFailed(engine) || its.waiting == 0) continue;
    if (const Engine* idle = StopsFor(engine, now_ns, engines, demand)) {
      changes.push_back({idle->name, Wish::kStop,
                         absl::StrCat("idle, and the start of ", engine.name,
                                      " has failed, maybe for want of memory"),
                         engine.name});
    }
  }
  return changes;
}

}  // namespace fineserve::fsctl
