#include "bench/paper/compared_systems/released_policies.h"

#include <algorithm>
#include <utility>

namespace fineserve::bench {
namespace {

using sched::Host;
using sched::Micros;
using sched::ModelId;
using sched::Predictor;
using sched::Queued;

constexpr uint32_t kMostInPrefill = 3;
constexpr uint64_t kMostTokens = 2048;

bool Longer(const Queued& a, const Queued& b) {
  return a.waiting.tokens < b.waiting.tokens;
}

}  // namespace

void ReleasedPolicy::Add(const Queued& request) {
  queues_[request.model].push_back(request);
}

void ReleasedPolicy::Remove(const Queued& request) {
  Queue& queue = queues_[request.model];
  queue.erase(std::find_if(queue.begin(), queue.end(), [&](const Queued& q) {
    return q.waiting.id == request.waiting.id;
  }));
}

ReleasedPolicy::Busy ReleasedPolicy::BusyOf(ModelId model,
                                            const Predictor& predictor) {
  std::deque<uint64_t>& started = started_[model];
  uint64_t prefill = 0;
  for (const uint64_t tokens : started) prefill += tokens;
  // The prompts in prefill are those that were started last.
  while (!started.empty() &&
         prefill - started.front() >= predictor.backlog_tokens) {
    prefill -= started.front();
    started.pop_front();
  }
  const auto in_prefill = static_cast<uint32_t>(started.size());
  const uint32_t decoding =
      predictor.running - std::min(predictor.running, in_prefill);
  return {prefill + decoding, predictor.running, in_prefill};
}

void ReleasedPolicy::DropLate(const ReleasedModel& model, const Busy& busy,
                              Micros now, Queue* queue, Host* host) {
  if (kind_ == Kind::kFcfs) return;
  Queue kept, late;
  for (const Queued& q : *queue) {
    const double ttft = model.us_per_token *
                        static_cast<double>(busy.tokens + q.waiting.tokens);
    const bool on_time = now + static_cast<Micros>(ttft) < q.waiting.deadline;
    (on_time ? kept : late).push_back(q);
  }
  *queue = std::move(kept);
  for (const Queued& q : late) host->Drop(q, now);
}

bool ReleasedPolicy::AllOnTime(const ReleasedModel& model, const Busy& busy,
                               Micros now, const Queue& batch) const {
  uint64_t all = busy.tokens;
  for (const Queued& q : batch) all += q.waiting.tokens;
  uint64_t before = busy.tokens;
  for (const Queued& q : batch) {
    before += q.waiting.tokens;
    const uint64_t tokens = kind_ == Kind::kPrism ? before : all;
    const auto ttft =
        static_cast<Micros>(model.us_per_token * static_cast<double>(tokens));
    if (now + ttft >= q.waiting.deadline) return false;
  }
  return true;
}

ReleasedPolicy::Queue ReleasedPolicy::Batch(const ReleasedModel& model,
                                            const Busy& busy, Micros now,
                                            const Queue& queue) const {
  Queue batch = queue;
  if (kind_ == Kind::kFcfs) return batch;
  while (!batch.empty() && !AllOnTime(model, busy, now, batch)) {
    batch.erase(std::max_element(batch.begin(), batch.end(), Longer));
  }
  return batch;
}

void ReleasedPolicy::Decide(ModelId id, Micros now, Host* host) {
  Queue& queue = queues_[id];
  const std::vector<sched::ReplicaId> engines = host->EnginesOf(id);
  if (queue.empty() || engines.empty()) return;
  const ReleasedModel& model = models_[sched::Number(id)];
  const Busy busy = BusyOf(id, host->Predict(engines[0], now));
  if (busy.sequences > model.most_sequences || busy.tokens > kMostTokens ||
      busy.in_prefill > kMostInPrefill) {
    return;
  }
  DropLate(model, busy, now, &queue, host);
  uint64_t tokens = busy.tokens;
  uint32_t sequences = busy.sequences;
  for (const Queued& q : Batch(model, busy, now, queue)) {
    Remove(q);
    started_[id].push_back(q.waiting.tokens);
    host->Start(q, engines[0], now);
    tokens += q.waiting.tokens;
    if (++sequences > model.most_sequences || tokens > kMostTokens) break;
  }
}

void ReleasedPolicy::Decide(Micros now, Host* host) {
  for (const auto& [model, queue] : queues_) Decide(model, now, host);
  next_check_ = sched::kNever;
  if (kind_ == Kind::kFcfs) return;
  // A request whose deadline is past already waits for its engine's next event.
  for (const auto& [model, queue] : queues_) {
    for (const Queued& q : queue) {
      if (q.waiting.deadline <= now) continue;
      next_check_ = std::min(next_check_, q.waiting.deadline);
    }
  }
}

}  // namespace fineserve::bench
