#include "tools/lab/sim/fleet/run.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/proxy/request/request_facts.h"
#include "daemon/proxy/request/token_estimator.h"
#include "tools/lab/sim/core/agenda.h"
#include "tools/lab/sim/fleet/router.h"
#include "tools/lab/sim/lead/planning.h"

namespace fineserve::sim {
namespace {

using sched::Number;
using sched::RequestId;
using workload::End;
using workload::Outcome;

// Number of requests that end between two progress reports.
constexpr uint64_t kProgressRequests = 1024;

Micros MicrosOf(double seconds) { return static_cast<Micros>(seconds * 1e6); }

class Runner {
 public:
  Runner(const World& world, const workload::Trace& trace,
         const std::vector<uint32_t>& model_of, const RunOptions& options)
      : world_(world),
        trace_(trace),
        model_of_(model_of),
        options_(options),
        agenda_(static_cast<uint32_t>(world.gpus.size())),
        router_(world) {}

  absl::Status Start() {
    for (const GpuSetup& setup : world_.gpus) {
      absl::StatusOr<std::unique_ptr<Gpu>> gpu = Gpu::Create(setup);
      if (!gpu.ok()) {
        return absl::Status(
            gpu.status().code(),
            absl::StrCat("GPU \"", world_.gpu_names[gpus_.size()],
                         "\": ", gpu.status().message()));
      }
      agenda_.Set(static_cast<uint32_t>(gpus_.size()), (*gpu)->next());
      gpus_.push_back(*std::move(gpu));
    }
    if (world_.planning) {
      planning_ = std::make_unique<Planning>(*world_.planning, &gpus_);
    }
    has_begun_ = planning_ == nullptr;
    result_.outcomes.reserve(trace_.arrivals.size());
    return absl::OkStatus();
  }

  RunResult Run() {
    const size_t all = trace_.arrivals.size();
    while (ended_ < all) {
      const Micros now = std::min({NextArrival(), agenda_.next(), next_hello_});
      if (now > Limit()) break;
      now_ = now;
      if (now_ >= next_hello_) Hello();
      while (NextArrival() <= now_) Arrive();
      while (agenda_.next() <= now_) RunGpu(agenda_.first());
    }
    return Finish();
  }

 private:
  // The trace's time and the run's.
  double Seconds(Micros at) const {
    return static_cast<double>(at - result_.load_began) / 1e6;
  }
  Micros At(double seconds) const {
    return result_.load_began + MicrosOf(seconds);
  }

  Micros NextArrival() const {
    const size_t next = result_.outcomes.size();
    return has_begun_ && next < trace_.arrivals.size()
               ? At(trace_.arrivals[next].at_s)
               : kNever;
  }

  Micros Limit() const {
    return has_begun_ && options_.limit_s > 0
               ? At(trace_.seconds() + options_.limit_s)
               : kNever;
  }

  // Does the planning of one second.
  void Plan() {
    planning_->Second(now_);
    router_.FollowPlan(planning_->plan(), [this](uint32_t gpu, uint32_t place) {
      return gpus_[gpu]->Runs(place);
    });
    for (uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) {
      agenda_.Set(gpu, gpus_[gpu]->next());
    }
    if (has_begun_) return;
    const double patience_s = world_.planning->fleet.planner.start_s;
    has_begun_ = planning_->IsAtRest() || Seconds(now_) >= patience_s;
    if (!has_begun_) return;
    result_.load_began = now_;
    if (options_.frozen) planning_->Freeze();
  }

  void Hello() {
    if (planning_ != nullptr) Plan();
    next_hello_ = router_.greets() ? now_ + Router::kHelloUs : kNever;
    router_.Hello(now_, [this](const Replica& r) {
      return gpus_[r.gpu]->scheduler().OutlookOf(sched::ModelId{r.model}, now_);
    });
  }

  void Arrive() {
    const uint64_t id = result_.outcomes.size();
    const workload::Arrival& a = trace_.arrivals[id];
    const uint32_t m = model_of_[a.model];
    Outcome o;
    o.model = m;
    o.begin_s = o.end_s = a.at_s;
    o.lengths = {a.lengths.input, 0};
    o.slo = world_.models[m].slo;
    result_.outcomes.push_back(o);
    if (planning_ != nullptr) Count(id);
    tied_.emplace(id, router_.Tie(m, now_));
    GoOn(id);
  }

  void GoOn(uint64_t id) {
    proxy::TiedRequest& tied = tied_.at(id);
    while (const auto next = tied.Next()) {
      Ask(id, static_cast<uint32_t>(*next), tied.MayAskMore());
    }
    if (!tied.over()) return;
    tied_.erase(id);
    Refuse(id);
  }

  // Counts the request in the demand for which the planner plans.
  void Count(uint64_t id) {
    const uint32_t m = result_.outcomes[id].model;
    proxy::DemandBook& demand = planning_->demand(now_);
    proxy::AdmissionRequest request;
    request.id = id;
    request.prompt_tokens = PromptAsTold(id);
    request.arrived_ns = planning_->NowNs();
    demand.Submitted(request, world_.planning->fleet.models[m]);
  }

  void Ask(uint64_t id, uint32_t replica, bool tell_waits) {
    const workload::Arrival& a = trace_.arrivals[id];
    const uint32_t m = model_of_[a.model];
    const Replica& r = world_.models[m].replicas[replica];
    const uint32_t prompt = PromptAsTold(id);
    router_.Asked(m, replica, prompt);
    gpus_[r.gpu]->Submit({RequestId{id}, r.model, a.lengths.input,
                          a.lengths.output, prompt,
                          options_.tells_output ? a.lengths.output : 0,
                          At(a.at_s), now_, tell_waits});
    agenda_.Set(r.gpu, gpus_[r.gpu]->next());
  }

  void RunGpu(uint32_t gpu) {
    gpus_[gpu]->Run(now_);
    if (options_.check) gpus_[gpu]->CheckInvariants();
    agenda_.Set(gpu, gpus_[gpu]->next());
    // Those that are refused or wait may go to other GPUs, at once.
    for (const News& news : gpus_[gpu]->TakeNews()) Take(gpu, news);
  }

  uint32_t ReplicaOn(uint32_t gpu, uint32_t model) const {
    const std::vector<Replica>& replicas = world_.models[model].replicas;
    return static_cast<uint32_t>(
        std::find_if(replicas.begin(), replicas.end(),
                     [&](const Replica& r) { return r.gpu == gpu; }) -
        replicas.begin());
  }

  void Take(uint32_t gpu, const News& news) {
    const uint64_t id = Number(news.id);
    Outcome& o = result_.outcomes[id];
    const uint32_t replica = ReplicaOn(gpu, o.model);
    switch (news.kind) {
      case News::Kind::kAdmitted:
        Admit(id, replica);
        router_.Load(o.model, replica, Expected(id));
        break;
      case News::Kind::kWaits:
        router_.Waiting(o.model, replica, news.start_us, now_);
        tied_.at(id).Heard(replica, proxy::TiedRequest::Answer::kWaits);
        GoOn(id);
        break;
      case News::Kind::kFirstToken:
        o.first_token_s = Seconds(news.at);
        if (planning_ != nullptr) planning_->demand(now_).FirstToken(id);
        router_.Load(o.model, replica, -int64_t{o.lengths.input});
        break;
      case News::Kind::kDone:
        o.end = End::kDone;
        o.end_s = Seconds(news.at);
        o.lengths.output = news.generated;
        if (planning_ != nullptr) {
          planning_->demand(now_).Finished(id, news.generated,
                                           proxy::Outcome::kDone);
        }
        if (Estimates(id)) estimator_.Learn(FactsOf(id), o.lengths.input);
        router_.Load(o.model, replica, int64_t{o.lengths.input} - Expected(id));
        router_.Ended(gpu);
        CountEnd();
        break;
      case News::Kind::kRefused:
        tied_.at(id).Heard(replica, proxy::TiedRequest::Answer::kRefused);
        GoOn(id);
        break;
      case News::Kind::kBroken:
        Break(id, replica);
        router_.Ended(gpu);
        break;
    }
  }

  void Admit(uint64_t id, uint32_t replica) {
    const uint32_t model = result_.outcomes[id].model;
    const proxy::TiedRequest tied = std::move(tied_.at(id));
    tied_.erase(id);
    for (const size_t other : tied.Others(replica)) {
      const uint32_t gpu = world_.models[model].replicas[other].gpu;
      gpus_[gpu]->Withdraw(RequestId{id});
      agenda_.Set(gpu, gpus_[gpu]->next());
    }
    if (const auto charged = tied.charged(); charged && *charged != replica) {
      router_.Repay(model, static_cast<uint32_t>(*charged), replica);
    }
  }

  void Break(uint64_t id, uint32_t replica) {
    Outcome& o = result_.outcomes[id];
    o.end = End::kFailed;
    o.end_s = Seconds(now_);
    planning_->demand(now_).Finished(id, 0, proxy::Outcome::kEngineGone);
    const int64_t prefilled = o.first_token_s > 0 ? o.lengths.input : 0;
    router_.Load(o.model, replica, prefilled - Expected(id));
    CountEnd();
  }

  // Returns the number of prompt tokens that the proxy reports.
  uint32_t PromptAsTold(uint64_t id) const {
    return Estimates(id) ? estimator_.Estimate(FactsOf(id))
                         : trace_.arrivals[id].lengths.input;
  }
  bool Estimates(uint64_t id) const { return ModelOf(id).bytes_per_token > 0; }
  proxy::RequestFacts FactsOf(uint64_t id) const {
    proxy::RequestFacts facts;
    facts.model = ModelOf(id).name;
    facts.text_bytes = static_cast<uint64_t>(std::ceil(
        ModelOf(id).bytes_per_token * trace_.arrivals[id].lengths.input));
    return facts;
  }
  const WorldModel& ModelOf(uint64_t id) const {
    return world_.models[model_of_[trace_.arrivals[id].model]];
  }

  int64_t Expected(uint64_t id) const {
    return int64_t{trace_.arrivals[id].lengths.input} +
           trace_.arrivals[id].lengths.output;
  }

  void Refuse(uint64_t id) {
    result_.outcomes[id].end = End::kDropped;
    result_.outcomes[id].end_s = Seconds(now_);
    if (planning_ != nullptr) planning_->demand(now_).Refused(id);
    CountEnd();
  }

  void CountEnd() {
    if (++ended_ % kProgressRequests != 0) return;
    options_.on_progress(Seconds(now_), ended_);
  }

  RunResult Finish() {
    if (ended_ < trace_.arrivals.size()) now_ = Limit();
    result_.cut = trace_.arrivals.size() - ended_;
    result_.seconds = Seconds(now_);
    for (const auto& gpu : gpus_) {
      result_.gpus.push_back(gpu->counters());
      for (const auto& [id, figures] : gpu->scheduler().Engines(now_)) {
        result_.kappa.push_back(figures.kappa);
      }
    }
    if (planning_ != nullptr) result_.plan = planning_->TakeRecord();
    options_.on_progress(result_.seconds, ended_);
    return std::move(result_);
  }

  const World& world_;
  const workload::Trace& trace_;
  const std::vector<uint32_t>& model_of_;
  const RunOptions& options_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::unique_ptr<Planning> planning_;  // null: no engine moves
  bool has_begun_ = false;              // the load
  Agenda agenda_;
  Router router_;
  proxy::TokenEstimator estimator_;
  RunResult result_;
  std::unordered_map<uint64_t, proxy::TiedRequest> tied_;  // without a verdict
  uint64_t ended_ = 0;
  Micros now_ = 0;
  Micros next_hello_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ModelsOf(const World& world,
                                               const workload::Trace& trace) {
  std::unordered_map<std::string, uint32_t> places;
  for (uint32_t m = 0; m < world.models.size(); ++m) {
    places[world.models[m].name] = m;
  }
  std::vector<uint32_t> model_of;
  for (const std::string& name : trace.models) {
    const auto place = places.find(name);
    if (place == places.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the trace asks for model \"", name,
                       "\", which the fleet has not; name the one that serves "
                       "it with --map ",
                       name, "=MODEL"));
    }
    model_of.push_back(place->second);
  }
  return model_of;
}

absl::StatusOr<RunResult> Run(const World& world, const workload::Trace& trace,
                              const std::vector<uint32_t>& model_of,
                              const RunOptions& options) {
  Runner runner(world, trace, model_of, options);
  if (absl::Status s = runner.Start(); !s.ok()) return s;
  return runner.Run();
}

}  // namespace fineserve::sim
