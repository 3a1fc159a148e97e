#ifndef DAEMON_SCHEDULING_GLOBAL_SCORE_GOODPUT_H_
#define DAEMON_SCHEDULING_GLOBAL_SCORE_GOODPUT_H_

#include <cstdint>
#include <vector>

#include "daemon/scheduling/global/model/assignment.h"

namespace fineserve::plan {

// Worth of a placement, by memory: each GPU's KV is shared out among its
// residents where it yields most tokens (Eqs. 1-2 with X(b) of
// daemon/scheduling/global/model/token_curve.h). Each resident gets at least
// its floor, and none more than its demand. An engine that spans GPUs gets what
// the GPU that gives it the least gives, and what the others then have left
// goes to their other residents.
struct Worth {
  uint32_t hosted = 0;  // models with at least one placed replica
  double goodput = 0;   // tokens/s, at most the demand
  double headroom = 0;  // the same if all rates were `burst` times as high
  // The sum over GPUs of two squares: of the part of its time that its
  // residents' rates take at their largest batches, and of the part of its KV
  // that they hold on average. It is least if both are spread evenly: rates are
  // means, and bursts exceed them by more than `burst`.
  double crowding = 0;
};

// True if `a` is better than `b`: it hosts more models; or as many, and has
// more goodput; or the same goodput, and has more headroom; or, with all of
// these equal, has less crowding. Differences of less than a billionth count as
// rounding.
bool Better(const Worth& a, const Worth& b);

// KV of one resident of some GPUs; shares are in the order of their replicas.
struct Share {
  uint32_t replica;
  double kv_bytes;  // on each of its GPUs
  double tokens;    // a second
};

// Replicas on GPUs of one node that are connected by engines that span these
// GPUs.
using Component = absl::InlinedVector<uint32_t, 8>;
Component ComponentOf(const Assignment& a, uint32_t gpu);

// Returns the factor by which the replica's steps take longer beside its
// neighbours.
double SlowdownOf(const Assignment& a, uint32_t replica, double load);

// A GPU's part of Worth::crowding.
double CrowdingOn(const Assignment& a, uint32_t gpu);

// Returns the shares of all residents of a component, which must fit
// (Charge::kLeast), at `load` times the demand.
std::vector<Share> ShareOut(const Assignment& a, const Component& component,
                            double load);

// Keeps an assignment's worth up to date while replicas come and go: a change
// costs only the components that it touches. Confined to a thread.
class Board {
 public:
  // `a` must outlive the board, and may be changed only through it.
  explicit Board(Assignment* a);

  void Put(uint32_t replica, const Group& group);
  void Remove(uint32_t replica);
  // Returns the worth of the whole with the unplaced replica on `group`, at
  // half the cost of placing it there and removing it.
  Worth WorthWith(uint32_t replica, const Group& group);
  const Worth& worth() const { return worth_; }
  const Assignment& assignment() const { return *a_; }
  // Returns by how many tokens/s the residents whose first GPU this is miss
  // their demand.
  double Missing(uint32_t gpu) const {
    return of_gpu_[gpu].demand - of_gpu_[gpu].goodput;
  }

 private:
  struct OfGpu {
    // Sums over the replicas whose first GPU this is.
    double goodput = 0, headroom = 0, demand = 0;
    double crowding = 0;  // of all its residents
  };

  void Count(const Component& component, double sign);
  void Measure(const Component& component);
  // A value of of_gpu_ before a trial.
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

#endif  // DAEMON_SCHEDULING_GLOBAL_SCORE_GOODPUT_H_
