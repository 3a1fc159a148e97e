#ifndef DAEMON_PLAN_SCORE_GOODPUT_H_
#define DAEMON_PLAN_SCORE_GOODPUT_H_

#include <cstdint>
#include <vector>

#include "daemon/plan/model/assignment.h"

namespace fineserve::plan {

// What a placement is worth, by memory: each GPU's KV is shared out among its
// residents where it yields most tokens (Eqs. 1-2 with X(b) of
// daemon/plan/model/token_curve.h), each at least at its floor, none beyond its
// demand. An engine that spans GPUs gets what the meanest of them gives, and
// what the others then have left goes to their other residents.
struct Worth {
  uint32_t hosted = 0;  // models with a replica that lies somewhere
  double goodput = 0;   // tokens/s, at most the demand
  double headroom = 0;  // the same if all rates were `burst` times as high
  // Σ over GPUs of two squares: of the part of its time that its residents'
  // rates take at their largest batches, and of the part of its KV that they
  // hold on average. Least where both are spread evenly: rates are means, and
  // bursts exceed them by more than `burst`.
  double crowding = 0;
};

// Whether `a` is better than `b`: it hosts more models; or as many and has more
// goodput; or as much and more headroom; or, with all alike, less crowding.
// Differences of less than a billionth are rounding.
bool Better(const Worth& a, const Worth& b);

// KV of each resident of some GPUs, in the order of their replicas.
struct Share {
  uint32_t replica;
  double kv_bytes;  // on each of its GPUs
  double tokens;    // a second
};

// Who lies on GPUs of one node that are connected by engines that span them.
using Component = absl::InlinedVector<uint32_t, 8>;
Component ComponentOf(const Assignment& a, uint32_t gpu);

// How many times as long the replica's steps take beside its neighbours.
double SlowdownOf(const Assignment& a, uint32_t replica, double load);

// A GPU's part of Worth::crowding.
double CrowdingOn(const Assignment& a, uint32_t gpu);

// Shares of all residents of a component, which must fit (Charge::kLeast), at
// `load` times the demand.
std::vector<Share> ShareOut(const Assignment& a, const Component& component,
                            double load);

// Keeps the worth of an assignment while replicas come and go: a change costs
// no more than the components that it touches. Confined to a thread.
class Board {
 public:
  // `a` must outlive it, and change only through it.
  explicit Board(Assignment* a);

  void Put(uint32_t replica, const Group& group);
  void Remove(uint32_t replica);
  // What the whole would be worth with the replica there, which lies nowhere:
  // at half the price of putting it there and removing it.
  Worth WorthWith(uint32_t replica, const Group& group);
  const Worth& worth() const { return worth_; }
  const Assignment& assignment() const { return *a_; }
  // Tokens/s below demand of a GPU's residents that are led from it.
  double Missing(uint32_t gpu) const {
    return of_gpu_[gpu].demand - of_gpu_[gpu].goodput;
  }

 private:
  struct OfGpu {
    // Of the replicas whose first GPU it is.
    double goodput = 0, headroom = 0, demand = 0;
    double crowding = 0;  // of all its residents
  };

  void Count(const Component& component, double sign);
  void Measure(const Component& component);
  // What of_gpu_ had before a trial.
  struct Before {
    uint32_t gpu;
    OfGpu was;
  };
  Group Touched(uint32_t replica, const Group& group) const;
  void Settle(const Group& gpus, std::vector<Before>* before);

  Assignment* a_;
  std::vector<OfGpu> of_gpu_;
  Worth worth_;
  std::vector<Before> before_;  // kept for its memory
};

}  // namespace fineserve::plan

#endif  // DAEMON_PLAN_SCORE_GOODPUT_H_
