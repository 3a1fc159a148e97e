#include "daemon/scheduling/local/policy/moore_hodgson_policy.h"

#include <algorithm>
#include <queue>
#include <set>
#include <tuple>

namespace fineserve::sched {
namespace {

// Returns Prism's p / c: prompt tokens divided by the engine's chunked prefill
// speed.
Micros PrefillTime(const Predictor& engine, uint64_t tokens) {
  return static_cast<Micros>(static_cast<double>(engine.FullStep()) *
                             static_cast<double>(tokens) /
                             engine.budget_tokens());
}

}  // namespace

void MooreHodgsonPolicy::Add(const Queued& request) {
  queue_.emplace(Turn{request.waiting.deadline, request.waiting.id}, request);
  ++waiting_[request.model];
  next_check_ = std::min(next_check_, request.arrival);
}

void MooreHodgsonPolicy::Remove(const Queued& request) {
  queue_.erase({request.waiting.deadline, request.waiting.id});
  if (--waiting_[request.model] == 0) waiting_.erase(request.model);
}

Micros MooreHodgsonPolicy::NextCheck() const {
  return queue_.empty() ? kNever : next_check_;
}

Micros MooreHodgsonPolicy::Backlog(const Host& host, Micros now) const {
  Micros backlog = 0;
  for (const auto& [model, count] : waiting_) {
    for (const ReplicaId engine : host.EnginesOf(model)) {
      const Predictor predictor = host.Predict(engine, now);
      backlog += PrefillTime(predictor, predictor.backlog_tokens);
    }
  }
  return backlog;
}

void MooreHodgsonPolicy::DropLate(Micros now, Host* host) {
  next_check_ = kNever;
  std::vector<Queued> late;
  for (const auto& [turn, request] : queue_) {
    const Micros late_at = LateAt(*host, request, now);
    if (late_at <= now) {
      late.push_back(request);
    } else {
      next_check_ = std::min(next_check_, late_at);
    }
  }
  for (const Queued& request : late) {
    Remove(request);
    host->Drop(request, now);
  }
}

std::vector<MooreHodgsonPolicy::Turn> MooreHodgsonPolicy::Schedule(
    Micros now, const Host& host) const {
  std::priority_queue<std::tuple<Micros, RequestId, Micros>> longest;
  std::set<Turn> kept;
  Micros t = now + Backlog(host, now);
  for (const auto& [turn, request] : queue_) {
    const Prospect best =
        BestProspect(host, request.model, request.waiting.tokens, now);
    if (best.ttft == kNever) continue;  // no engine
    const Micros time =
        PrefillTime(host.Predict(best.engine, now), request.waiting.tokens);
    kept.insert(turn);
    longest.emplace(time, turn.second, turn.first);
    t += time;
    if (t <= turn.first) continue;
    const auto [put_off, id, deadline] = longest.top();
    longest.pop();
    kept.erase({deadline, id});
    t -= put_off;
  }
  return {kept.begin(), kept.end()};
}

void MooreHodgsonPolicy::Decide(Micros now, Host* host) {
  DropLate(now, host);
  std::set<ReplicaId> full;  // no request overtakes another on an engine
  for (const Turn& turn : Schedule(now, *host)) {
    const Queued request = queue_.at(turn);
    const ReplicaId engine =
        BestProspect(*host, request.model, request.waiting.tokens, now).engine;
    if (full.count(engine) != 0 || !host->Takes(engine, request, now)) {
      full.insert(engine);
      continue;
    }
    Remove(request);
    host->Start(request, engine, now);
  }
}

}  // namespace fineserve::sched
