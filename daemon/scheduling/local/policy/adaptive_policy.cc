#include "daemon/scheduling/local/policy/adaptive_policy.h"

#include <algorithm>
#include <vector>

namespace fineserve::sched {
namespace {

// Heuristic: the limit keeps a decision from taking much longer than an
// arrival.
constexpr int kChecksPerDecision = 64;

// Returns the engines of a model, the one with the least predicted TTFT first.
std::vector<ReplicaId> BestFirst(const Host& host, ModelId model, Micros now) {
  std::vector<std::pair<Micros, ReplicaId>> engines;
  for (const ReplicaId engine : host.EnginesOf(model)) {
    engines.emplace_back(host.Predict(engine, now)(1), engine);
  }
  std::sort(engines.begin(), engines.end());
  std::vector<ReplicaId> order;
  for (const auto& [ttft, engine] : engines) order.push_back(engine);
  return order;
}

}  // namespace

AdaptivePolicy::Lane AdaptivePolicy::LaneOf(const Queued& request) {
  return {request.model, -int64_t{request.priority}};
}

void AdaptivePolicy::Add(const Queued& request) {
  entries_.prefetch(
      request.waiting.id);  // it is in the cache when it is needed
  lanes_[LaneOf(request)].Insert(request.waiting);
  Floor& floor = floors_.try_emplace(request.model, floor_share_).first->second;
  entries_[request.waiting.id] = {request, floor.Add(request),
                                  CheckAt(request.arrival, request)};
}

void AdaptivePolicy::Remove(const Queued& request) {
  const auto entry = entries_.find(request.waiting.id);
  checks_.Prefetch(entry->second.check);
  floors_.at(request.model).Remove(request, entry->second.turn);
  checks_.Remove(entry->second.check);
  entries_.erase(entry);
  const auto lane = lanes_.find(LaneOf(request));
  lane->second.Erase(request.waiting);
  // Clients choose the priorities, so empty lanes must not pile up.
  if (lane->second.size() == 0) lanes_.erase(lane);
}

Calendar::Handle AdaptivePolicy::CheckAt(Micros then, const Queued& request) {
  return checks_.Add({request.waiting.tokens, request.waiting.id, then});
}

Micros AdaptivePolicy::NextCheck() const {
  return checks_.empty() ? kNever : checks_.First().deadline;
}

bool AdaptivePolicy::DropIfLate(RequestId id, Micros now, Host* host) {
  const Queued request = entries_.at(id).request;
  if (LateAt(*host, request, now) > now) return false;
  Remove(request);
  host->Drop(request, now);
  return true;
}

void AdaptivePolicy::DropTheLate(Micros now, Host* host) {
  for (int i = 0; i < kChecksPerDecision && NextCheck() <= now; ++i) {
    const RequestId id = checks_.First().id;
    if (DropIfLate(id, now, host)) continue;
    Entry& entry = entries_.at(id);
    checks_.Remove(entry.check);
    entry.check = CheckAt(LateAt(*host, entry.request, now), entry.request);
  }
}

void AdaptivePolicy::Start(const Queued& request, ReplicaId engine, Micros now,
                           Host* host) {
  const Queued started = request;  // Remove frees what it may refer to
  Remove(started);
  floors_.at(started.model).Started(started);
  host->Start(started, engine, now);
}

bool AdaptivePolicy::StartBatch(WaitingTree* tree, ReplicaId engine, Micros now,
                                Host* host) {
  const Predictor ttft = host->Predict(engine, now);
  const auto meets = [&](uint64_t tokens, Micros soonest) {
    return now + ttft(tokens) < soonest;
  };
  // The tree may be destroyed with its last request, so this counts the
  // requests.
  size_t left = tree->size();
  Prefix batch = tree->LongestPrefix(meets);
  while (batch.after && DropIfLate(batch.after->id, now, host)) {
    if (--left == 0) return false;
    batch = tree->LongestPrefix(meets);
  }
  while (left > 0) {
    const auto soonest = tree->Soonest(batch.after);
    if (!soonest) return false;
    const Queued& request = entries_.at(*soonest).request;
    if (!host->Takes(engine, request, now)) return true;
    Start(request, engine, now, host);
    --left;
  }
  return false;
}

absl::optional<ReplicaId> AdaptivePolicy::StartOwed(ModelId model, Micros now,
                                                    Host* host) {
  Floor& floor = floors_.at(model);
  while (const auto owed = floor.Owed()) {
    if (DropIfLate(*owed, now, host)) continue;
    const Queued& request = entries_.at(*owed).request;
    const Prospect best =
        BestProspect(*host, model, request.waiting.tokens, now);
    if (best.ttft == kNever) return absl::nullopt;
    if (!host->Takes(best.engine, request, now)) return best.engine;
    Start(request, best.engine, now, host);
  }
  return absl::nullopt;
}

void AdaptivePolicy::Decide(ModelId model, Micros now, Host* host) {
  const auto kept = StartOwed(model, now, host);
  std::vector<ReplicaId> engines = BestFirst(*host, model, now);
  std::erase_if(engines, [&](ReplicaId e) { return kept == e; });
  auto lane = lanes_.lower_bound({model, INT64_MIN});
  while (lane != lanes_.end() && lane->first.first == model) {
    const auto [key, next] = std::pair(lane->first, std::next(lane));
    StartLane(key, &engines, now, host);
    lane = next;
  }
}

// Starts the requests of a lane. Keeps an engine without room for the lane's
// next request free for that request; otherwise lower lanes could fill the
// engine forever.
void AdaptivePolicy::StartLane(const Lane& key, std::vector<ReplicaId>* engines,
                               Micros now, Host* host) {
  std::vector<ReplicaId> full;
  for (const ReplicaId engine : *engines) {
    const auto lane = lanes_.find(key);
    if (lane == lanes_.end()) return;  // all have started
    if (StartBatch(&lane->second, engine, now, host)) full.push_back(engine);
  }
  if (lanes_.count(key) == 0) return;
  std::erase_if(*engines, [&](ReplicaId engine) {
    return std::find(full.begin(), full.end(), engine) != full.end();
  });
}

void AdaptivePolicy::Decide(Micros now, Host* host) {
  DropTheLate(now, host);
  std::vector<ModelId> models;
  for (const auto& [lane, tree] : lanes_) {
    if (models.empty() || models.back() != lane.first) {
      models.push_back(lane.first);
    }
  }
  for (const ModelId model : models) Decide(model, now, host);
}

}  // namespace fineserve::sched
