#ifndef DAEMON_SCHEDULING_LOCAL_LOCAL_SCHEDULER_H_
#define DAEMON_SCHEDULING_LOCAL_LOCAL_SCHEDULER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/contract/verdict/verdict.h"
#include "daemon/scheduling/local/engine_load.h"
#include "daemon/scheduling/local/policy/policy.h"
#include "daemon/scheduling/local/predict/ids.h"
#include "daemon/scheduling/local/recent_service.h"

namespace fineserve::sched {

struct Submission : verdict::Terms {
  RequestId id{0};
  ModelId model{0};
  Micros arrival = 0;
  bool asked_before = false;  // of another scheduler, which counts it
  // The engine that has just failed the request, which then starts on another
  // engine if there is one.
  absl::optional<ReplicaId> avoid = {};
};

using verdict::Refusal;

// The one answer to a request that was submitted and not cancelled.
struct Decision {
  RequestId id{0};
  absl::optional<ReplicaId> engine;  // that it is admitted to; none: rejected
  bool degraded = false;  // admitted although late, so its SLO is missed
  Refusal refusal = Refusal::kDeadline;  // of a rejection
  Micros retry_after = 0;  // of a rejection: until its model's queue is empty
  Micros predicted_ttft = 0;  // from its arrival
  // The reason why the first Decide after the request's Submit did not decide
  // it.
  WaitedFor waited_for = WaitedFor::kNothing;
};

struct ModelFigures {
  uint32_t queued = 0;    // degraded ones too
  uint32_t degraded = 0;  // of those queued
  uint64_t queued_tokens = 0;
  // Requests that another scheduler was asked for first, and counts.
  uint32_t tied = 0, tied_degraded = 0;
  uint64_t tied_tokens = 0;
  uint64_t admitted = 0, admitted_degraded = 0, cancelled = 0;
  std::array<uint64_t, verdict::kRefusals> rejected = {};
  uint64_t on_time = 0, late = 0;  // first tokens by deadline
  double expected_output = 0;      // tokens
};

// An engine's requests.
struct EngineWork {
  uint32_t running = 0;
  uint64_t held_tokens = 0;
  uint64_t queue_tokens = 0;  // room that its model's queue takes here
};

struct EngineFigures : EngineWork {
  ModelId model{0};
  double kappa = 1;
  Caps caps;
  uint64_t free_tokens = 0, backlog_tokens = 0;
};

// Earliest start of a request.
struct Opening {
  WaitedFor lacks = WaitedFor::kNothing;  // now
  Micros in = 0;  // about, from now; 0: at once; kNever: no engine takes any
};

// How long a new prompt waits for its turn.
struct Outlook {
  Micros us = 0;      // until those before it are filled and one can start
  bool full = false;  // none can start now
  bool away = false;  // its memory would have to come back to the GPU first
};

struct RequestView {
  const Submission* asked = nullptr;
  absl::optional<ReplicaId> engine;  // none: it waits
  bool degraded = false;
  Micros deadline = 0;
};

// Decides which request runs next on one GPU: takes events, gives decisions.
// Has no I/O, no thread and no clock of its own; confined to one thread.
//
// Each request that Submit took gets exactly one Decision unless it is
// cancelled or its wait ends with the scheduler. An admitted one holds its
// engine's KV and a place in its batch until Finished, Cancel or EngineGone.
// Only what can start at once is admitted: no queue forms inside an engine.
//
// A late request that may be degraded waits in a queue of its own (first come,
// first served). That queue gets an engine while no other request of the model
// waits and the engine has no prompt to fill, and before others once
// kMostPassed of these have started. So a late request may wait long, but
// always gets its turn.
//
// Time is CLOCK_MONOTONIC in µs and never goes back.
class LocalScheduler final : private Host {
 public:
  // At most this many requests wait at a time.
  static constexpr size_t kMostQueued = 1'000'000;
  // The ageing of degraded requests: after this many other starts, one of them
  // starts. Heuristic, like kDefaultFloorShare.
  static constexpr uint32_t kMostPassed = 10;

  LocalScheduler(std::vector<ModelSpec> models, std::unique_ptr<Policy> policy);

  // Puts an engine into service with the KV that it has; called again when the
  // KV changes. InvalidArgument for an unknown model, or for a different model
  // than before.
  absl::Status SetEngine(ReplicaId engine, ModelId model, KvRoom room);

  // Sets `update` for engines that share a pool, where a start on one engine
  // takes from what the others may have. Decide calls `update`, which calls
  // SetEngine for these engines, before it considers another engine than the
  // one that it started requests on. Without `update`, rooms do not depend on
  // each other.
  void SetUpdateRooms(std::function<void()> update) {
    update_rooms_ = std::move(update);
  }

  // Forgets the engine and the requests that ran on it, whose clients notice it
  // by their broken connections.
  void EngineGone(ReplicaId engine);

  // Adds the request; a later Decide gives the decision. InvalidArgument for an
  // unknown model or an empty prompt, AlreadyExists for an id that is still in
  // use.
  absl::Status Submit(const Submission& submission);

  // Adds a request that already runs on `engine`, because an earlier scheduler
  // sent it. It counts in no figure. NotFound if the engine is not in service;
  // otherwise as Submit.
  absl::Status Adopt(const Submission& submission, ReplicaId engine);

  // The following functions ignore unknown ids, since a request may end on both
  // sides at the same time.
  void Cancel(RequestId id);
  // Ends a request that another scheduler, which also had it, has admitted:
  // here it ends as if it had never come, and counts in no figure.
  void Withdraw(RequestId id);
  void FirstToken(RequestId id, Micros now);
  // Records that the request has generated `generated_tokens` by now (at most
  // as many as it may). Books their KV, and room for the tokens still expected.
  void Progress(RequestId id, uint32_t generated_tokens);
  // Records that the whole answer came, with `output_tokens`. It shows how long
  // the engine's steps take. If its first token was not seen, the answer counts
  // by when that token most likely came (EngineLoad). To be called before
  // Finished.
  void CameWhole(RequestId id, uint32_t output_tokens, Micros now);
  // `output_tokens` is what the engine reported; 0: unknown.
  void Finished(RequestId id, uint32_t output_tokens);

  // Decides about the waiting requests. With policy "fineserve", takes O(log
  // n), and O(log n) for each decision. To be called after events, and at the
  // time that NextWake gives.
  std::vector<Decision> Decide(Micros now);

  // Returns the time at which Decide may have news even if nothing happens: a
  // request becomes late, or an engine has filled what it was sent. kNever if
  // only an event can bring news. May be in the past.
  Micros NextWake(Micros now) const;

  // Continues to count where an earlier scheduler stopped; the requests that
  // waited in that scheduler do not wait here.
  void CountOnFrom(ModelId model, const ModelFigures& before);
  // Continues from what an earlier scheduler learnt about an engine that is not
  // yet in service, and about how many tokens a model's answers have.
  void LearnFrom(ReplicaId engine, const Corrections& before);
  void LearnFrom(ModelId model, double expected_output);
  // Returns the corrections learnt from an engine, in service or not.
  Corrections Learnt(ReplicaId engine) const;

  size_t models() const { return models_.size(); }
  const ModelSpec& model(ModelId id) const;
  ModelFigures Figures(ModelId model) const;
  // Returns the model's requests of the last minute.
  const RecentService& Recent(ModelId model) const;
  std::map<ReplicaId, EngineFigures> Engines(Micros now) const;
  // Returns the part of an engine's figures that needs no prediction; nullopt
  // if the engine is not in service.
  absl::optional<EngineWork> WorkOf(ReplicaId engine) const;
  // Valid until the next event. O(n).
  std::vector<RequestView> Requests() const;
  // Returns the time until all waiting requests of the model have their first
  // token, over all its engines; 0 if none is in service.
  Micros Drain(ModelId model, Micros now) const;
  // Returns the earliest start of a short prompt that came now, behind all that
  // wait.
  Opening NextOpening(ModelId model, Micros now) const;
  // Returns Drain and NextOpening together; `us` is 0 if the model has no
  // engine in service.
  Outlook OutlookOf(ModelId model, Micros now) const;
  // Returns approximately how long it takes until everything that the engine
  // runs now has ended; 0 if it runs nothing or is not in service.
  Micros EndsIn(ReplicaId engine) const;
  // Returns the earliest start of this request; nullopt if it does not wait.
  absl::optional<Opening> OpeningFor(RequestId id, Micros now) const;

 private:
  struct Model {
    ModelSpec spec;
    ModelFigures figures;
    double expected_output;
    std::set<ReplicaId> engines;
    // Late requests that wait to be degraded, by arrival.
    std::set<std::pair<Micros, RequestId>> degraded;
    // Number of requests that have overtaken the degraded ones since a degraded
    // one last started.
    uint32_t passed = 0;
    RecentService recent = {};
  };
  struct Engine {
    ModelId model;
    EngineLoad load;
  };
  struct Request {
    Submission submission;
    Queued queued;
    absl::optional<ReplicaId> engine;
    absl::optional<Refusal> refusal;  // by Submit; for Decide to return
    bool degraded = false;
    uint64_t round = 0;  // of Decide, when it was submitted
    WaitedFor lacks = WaitedFor::kTurn;
  };

  WaitedFor WhyItWaited(const Request& request) const;
  void CountFirstToken(const Request& request, Micros came);
  void CountRefusal(const Request& request, Refusal refusal, Micros now);
  std::vector<ReplicaId> EnginesOf(ModelId model) const override;
  Predictor Predict(ReplicaId engine, Micros now) const override;
  bool Takes(ReplicaId engine, const Queued& request, Micros now) override;
  void Start(const Queued& request, ReplicaId chosen, Micros now) override;
  void Drop(const Queued& request, Micros now) override;

  ReplicaId PlaceOf(const Request& request, ReplicaId chosen, Micros now) const;

  EngineWork WorkOf(const Engine& engine) const;

  Model& ModelOf(ModelId id) { return models_[Number(id)]; }
  const Model& ModelOf(ModelId id) const { return models_[Number(id)]; }
  Micros TpotOf(const Submission& s) const;
  Demand DemandOf(const Request& request, const EngineLoad& engine) const;
  // Returns the tokens kept free on `engine` for the request's further output.
  uint32_t GrowthOf(const Submission& submission, const EngineLoad& engine,
                    uint32_t generated) const;
  // Adds a new request. InvalidArgument, AlreadyExists.
  absl::StatusOr<Request*> Enter(const Submission& submission);
  // Returns why the request can never start; nullopt if it can.
  absl::optional<Refusal> WhyRefused(const Submission& submission) const;
  // Starts the first degraded request before others once kMostPassed requests
  // have passed it. If it has to wait for room, its engine is kept for it.
  void StartOverdue(ModelId model, Micros now);
  void StartDegraded(ModelId model, Micros now);
  const Queued& FirstDegraded(const Model& model) const;
  // Ends a request that runs, waits or will be refused.
  void Erase(std::unordered_map<RequestId, Request>::iterator request);
  // `ahead`: requests that go first.
  Opening OpeningOf(const Model& model, const Request& request, uint32_t ahead,
                    Micros now) const;
  void TellRefused(Micros now);
  // Rejects `request` and forgets it.
  void Reject(const Request& request, Refusal refusal, Micros now);
  // Takes the request out of the queue's figures, because it starts or ends.
  void Unqueue(const Request& request);

  std::vector<Model> models_;
  std::unique_ptr<Policy> policy_;
  std::map<ReplicaId, Engine> engines_;
  std::map<ReplicaId, Corrections> learnt_;  // of engines not in service
  std::unordered_map<RequestId, Request> requests_;  // waiting and running
  std::vector<RequestId> refused_;   // by Submit, for Decide to return
  std::vector<Decision> decisions_;  // of this Decide
  size_t queued_ = 0;
  uint64_t round_ = 0;  // of Decide; the next one's while none runs
  std::function<void()> update_rooms_ = [] {};
  absl::optional<ReplicaId> started_on_;  // since rooms were updated
  // Engines that take only an overdue degraded request in this Decide.
  std::set<ReplicaId> kept_;
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_LOCAL_SCHEDULER_H_
