#include "bench/policies/sim_gpu.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "bench/policies/sim_engine.h"
#include "daemon/sched/policy/make_policy.h"

namespace fineserve::bench {
namespace {

using sched::Decision;
using sched::kNever;
using sched::LocalScheduler;
using sched::Micros;
using sched::ModelId;
using sched::ReplicaId;
using sched::RequestId;
using workload::End;
using workload::Outcome;

// A proxy reports a stream's progress to the daemon after every so many tokens.
constexpr uint32_t kProgressTokens = 32;

double Seconds(Micros us) { return static_cast<double>(us) / 1e6; }

std::vector<sched::ModelSpec> SpecsOf(const std::vector<SimModel>& models) {
  std::vector<sched::ModelSpec> specs;
  for (const SimModel& m : models) specs.push_back(m.spec);
  return specs;
}

class SimGpu {
 public:
  SimGpu(const std::vector<SimModel>& models, const workload::Trace& trace,
         std::unique_ptr<sched::Policy> policy)
      : models_(models),
        trace_(trace),
        sched_(SpecsOf(models), std::move(policy)) {
    for (uint32_t m = 0; m < models.size(); ++m) {
      engines_.push_back({SimEngine(models[m].spec.chunk_tokens,
                                    models[m].truth, models[m].kv_tokens)});
      const uint64_t kv = models[m].kv_tokens;
      const auto added =
          sched_.SetEngine(ReplicaId{m}, ModelId{m}, {kv, kv, 0});
      if (!added.ok()) abort();  // it was made from the list above
    }
  }

  SimResult Run() {
    while (true) {
      Arrive();
      EndSteps();
      for (const Decision& d : sched_.Decide(now_)) Obey(d);
      BeginSteps();
      const Micros next = NextEvent();
      if (next == kNever) break;
      now_ = std::max(next, now_ + 1);
    }
    for (const Engine& e : engines_) {
      result_.preemptions += e.engine.preemptions();
    }
    result_.kappa = sched_.Engines(now_).at(ReplicaId{0}).kappa;
    return std::move(result_);
  }

 private:
  struct Engine {
    SimEngine engine;
    Micros step_ends = kNever;
  };

  Micros ArrivalOf(size_t index) const {
    return static_cast<Micros>(trace_.arrivals[index].at_s * 1e6);
  }

  void Arrive() {
    for (; arrived_ < trace_.arrivals.size() && ArrivalOf(arrived_) <= now_;
         ++arrived_) {
      const workload::Arrival& a = trace_.arrivals[arrived_];
      sched::Submission s;
      s.id = RequestId{arrived_};
      s.model = ModelId{a.model};
      s.prompt_tokens = a.lengths.input;
      s.max_tokens = a.lengths.output;
      s.arrival = ArrivalOf(arrived_);
      if (!sched_.Submit(s).ok()) abort();  // ids and models are ours
      const sched::ModelSpec& spec = models_[a.model].spec;
      Outcome o;
      o.model = a.model;
      o.begin_s = o.end_s = a.at_s;
      o.lengths = {a.lengths.input, 0};
      o.slo = {Seconds(spec.slo_ttft), Seconds(spec.slo_tpot)};
      result_.outcomes.push_back(o);
    }
  }

  void Obey(const Decision& d) {
    const size_t index = sched::Number(d.id);
    if (d.engine) {
      const workload::Lengths& lengths = trace_.arrivals[index].lengths;
      engines_[sched::Number(*d.engine)].engine.Send(d.id, lengths.input,
                                                     lengths.output);
      return;
    }
    result_.outcomes[index].end = End::kDropped;
    result_.outcomes[index].end_s = Seconds(now_);
  }

  void EndSteps() {
    for (Engine& e : engines_) {
      if (e.step_ends > now_) continue;
      e.step_ends = kNever;
      for (const SimEngine::Event& event : e.engine.EndStep()) Note(event);
    }
  }

  void Note(const SimEngine::Event& event) {
    Outcome& o = result_.outcomes[sched::Number(event.id)];
    o.lengths.output = event.generated;
    o.end_s = Seconds(now_);
    if (event.first) {
      o.first_token_s = Seconds(now_);
      sched_.FirstToken(event.id, now_);
    }
    if (event.last) {
      o.end = End::kDone;
      sched_.Finished(event.id, event.generated);
    } else if (event.generated % kProgressTokens == 0) {
      sched_.Progress(event.id, event.generated);
    }
  }

  void BeginSteps() {
    const auto working =
        std::count_if(engines_.begin(), engines_.end(),
                      [](const Engine& e) { return !e.engine.idle(); });
    for (Engine& e : engines_) {
      if (e.engine.idle() || e.step_ends != kNever) continue;
      e.step_ends = now_ + static_cast<Micros>(e.engine.BeginStep() *
                                               static_cast<double>(working));
    }
  }

  Micros NextEvent() const {
    Micros next = kNever;
    if (arrived_ < trace_.arrivals.size()) next = ArrivalOf(arrived_);
    for (const Engine& e : engines_) {
      next = std::min(next, e.step_ends);
    }
    return std::min(next, sched_.NextWake(now_));
  }

  const std::vector<SimModel>& models_;
  const workload::Trace& trace_;
  LocalScheduler sched_;
  std::vector<Engine> engines_;
  SimResult result_;
  size_t arrived_ = 0;
  Micros now_ = 0;
};

}  // namespace

SimResult Simulate(const std::vector<SimModel>& models,
                   const workload::Trace& trace, const std::string& policy,
                   double floor_share) {
  auto made = sched::MakePolicy(policy, floor_share);
  if (!made.ok()) abort();  // the caller names a policy that exists
  return SimGpu(models, trace, *std::move(made)).Run();
}

}  // namespace fineserve::bench
