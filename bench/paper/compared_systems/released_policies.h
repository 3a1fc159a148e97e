#ifndef BENCH_PAPER_COMPARED_SYSTEMS_RELEASED_POLICIES_H_
#define BENCH_PAPER_COMPARED_SYSTEMS_RELEASED_POLICIES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "daemon/scheduling/local/policy/policy.h"

namespace fineserve::bench {

// The released scheduler's knowledge of a model.
struct ReleasedModel {
  double us_per_token = 0;  // TTFT of batch 1 over its tokens
  uint32_t most_sequences = 256;
};

// The local schedulers of the FineServe authors' repository
// (fineserve/finesched/scheduling_algorithm/algorithm.py), written here from
// what they do. Per model, in the order of arrival, and unless more than three
// prompts are in prefill or the batch is full:
//
//   TTFT(S) = us_per_token · (prompts in prefill + sequences decoding + Σ S)
//   saab    drop whom it makes late alone; then the longest leaves until all of
//           S would have their first token, together, by each one's deadline
//   prism   the same, but each has its first token when those before it and it
//           are through
//   fcfs    no request is dropped, and none gives up
//
// and S starts in order until it exceeds 2,048 tokens or the sequences, the one
// that exceeds included. KV is never asked for. Each model has one engine.
//
// The policy derives the number in prefill from the predictor's backlog.
// Confined to one thread.
class ReleasedPolicy final : public sched::Policy {
 public:
  enum class Kind { kAlgorithm2, kPrism, kFcfs };
  // `models` by ModelId.
  ReleasedPolicy(Kind kind, std::vector<ReleasedModel> models)
      : kind_(kind), models_(std::move(models)) {}

  void Add(const sched::Queued& request) override;
  void Remove(const sched::Queued& request) override;
  void Decide(sched::Micros now, sched::Host* host) override;
  sched::Micros NextCheck() const override { return next_check_; }

 private:
  using Queue = std::deque<sched::Queued>;  // by arrival
  struct Busy {                             // an engine, before anything starts
    uint64_t tokens = 0;     // of prompts in prefill and sequences decoding
    uint32_t sequences = 0;  // in both
    uint32_t in_prefill = 0;
  };

  Busy BusyOf(sched::ModelId model, const sched::Predictor& predictor);
  void DropLate(const ReleasedModel& model, const Busy& busy, sched::Micros now,
                Queue* queue, sched::Host* host);
  Queue Batch(const ReleasedModel& model, const Busy& busy, sched::Micros now,
              const Queue& queue) const;
  bool AllOnTime(const ReleasedModel& model, const Busy& busy,
                 sched::Micros now, const Queue& batch) const;
  void Decide(sched::ModelId model, sched::Micros now, sched::Host* host);

  const Kind kind_;
  const std::vector<ReleasedModel> models_;
  std::map<sched::ModelId, Queue> queues_;
  // The prompts that were started, the newest last; those older than the
  // prompts in prefill are forgotten.
  std::map<sched::ModelId, std::deque<uint64_t>> started_;
  sched::Micros next_check_ = sched::kNever;
};

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_COMPARED_SYSTEMS_RELEASED_POLICIES_H_
