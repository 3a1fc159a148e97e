#ifndef TOOLS_LAB_SIM_OVERLOAD_BATCHES_H_
#define TOOLS_LAB_SIM_OVERLOAD_BATCHES_H_

#include <cstdint>
#include <functional>

#include "tools/lab/sim/overload/batch_cost.h"
#include "tools/lab/sim/overload/cluster_setup.h"
#include "tools/lab/sim/overload/unit.h"

namespace fineserve::sim {

// Fills the batches of units as vLLM's scheduler does, or as KunServe's does,
// which looks ahead: sequences start, take KV for their tokens, and the last
// one started gives its KV away when there is none.
class Batches {
 public:
  // Calls try_at when a unit should be asked again (µs). The setup outlives it.
  Batches(const ClusterSetup& setup, std::function<void(Unit*, double)> try_at);

  // The unit's next batch; without chunks if nothing can run.
  Micro Next(Unit* u, double now);
  uint64_t preemptions() const { return preemptions_; }

 private:
  // Gives it KV for one more token; false if there is none now.
  bool Provide(Unit* u, Sequence* q);
  // Frees the one that was started last; the asker itself if it was that.
  bool Preempt(Unit* u, Sequence* asker);
  bool LooksAhead(const Unit& u) const;
  // The cost of a microbatch if all that is known of the next ones, as many as
  // there are stages, is balanced.
  double BalancedUs(const Unit& u) const;
  // Tokens of a prompt that the batch still takes.
  double Room(const Micro& m, const Sequence& q, double target_us) const;
  void AddRunning(Unit* u, bool ahead, double target_us, Micro* m);
  void AddSwapped(Unit* u, uint32_t slot);
  void AddWaiting(Unit* u, double target_us, Micro* m);

  const ClusterSetup& s_;
  const std::function<void(Unit*, double)> try_at_;
  BatchCost cost_;
  double now_ = 0;
  uint64_t preemptions_ = 0;
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_OVERLOAD_BATCHES_H_
