#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_POLICY_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_POLICY_H_

#include <cstdint>
#include <vector>

#include "daemon/scheduling/local/policy/waiting_tree.h"
#include "daemon/scheduling/local/predict/ids.h"
#include "daemon/scheduling/local/predict/predictor.h"

namespace fineserve::sched {

// A waiting request, with all that a policy may want to know about it.
struct Queued {
  Waiting waiting;
  ModelId model;
  Micros arrival = 0;
  int32_t priority = 0;  // higher goes first
  uint64_t tenant = 0;   // a hash of its name
};

// The scheduler, as a policy sees it: what the policy decides about, and where
// its decisions go. A policy forgets a request before it reports its decision.
class Host {
 public:
  virtual ~Host() = default;
  virtual std::vector<ReplicaId> EnginesOf(ModelId model) const = 0;
  virtual Predictor Predict(ReplicaId engine, Micros now) const = 0;
  // True if the request can start on the engine at once.
  virtual bool Takes(ReplicaId engine, const Queued& request, Micros now) = 0;
  virtual void Start(const Queued& request, ReplicaId engine, Micros now) = 0;
  // Drops the request, whose deadline can no longer be met.
  virtual void Drop(const Queued& request, Micros now) = 0;
};

// Decides which request starts when. One implementation per file; confined to
// one thread.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual void Add(const Queued& request) = 0;
  virtual void Remove(const Queued& request) = 0;
  virtual void Decide(Micros now, Host* host) = 0;

  // Returns the earliest time at which Decide may find a request late; kNever
  // if never.
  virtual Micros NextCheck() const = 0;
};

// The soonest first token that any of the model's engines could give for such a
// prompt if it were sent there now: µs from `now`, kNever if there is no
// engine.
struct Prospect {
  ReplicaId engine{0};
  Micros ttft = kNever;
};
Prospect BestProspect(const Host& host, ModelId model, uint64_t prompt_tokens,
                      Micros now);

// Returns the time at which a request becomes unable to meet its deadline even
// alone (Algorithm 2, line 5), in the present state. A request without an
// engine waits until its deadline.
Micros LateAt(const Host& host, const Queued& request, Micros now);

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_POLICY_H_
