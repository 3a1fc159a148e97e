#ifndef TOOLS_LAB_SIM_OVERLOAD_BATCHES_H_
#define TOOLS_LAB_SIM_OVERLOAD_BATCHES_H_

#include <cstdint>
#include <functional>

#include "tools/lab/sim/overload/batch_cost.h"
#include "tools/lab/sim/overload/cluster_setup.h"
#include "tools/lab/sim/overload/unit.h"

namespace fineserve::sim {

// Fills the batches of units as vLLM's scheduler does, or as KunServe's
// lookahead does. Sequences start and take KV for their tokens; if there is
// none left, the sequence that was started last gives up its KV.
class Batches {
 public:
  // Calls try_at when a unit should be asked again (in µs). The setup must
  // outlive this object.
  Batches(const ClusterSetup& setup, std::function<void(Unit*, double)> try_at);

  // Returns the unit's next batch, which has no chunks if nothing can run.
  Micro Next(Unit* u, double now);
  uint64_t preemptions() const { return preemptions_; }

 private:
  // Gives the sequence KV for one more token. False if there is none now.
  bool Provide(Unit* u, Sequence* q);
  // Frees the sequence that was started last, even if it is the asker.
  bool Preempt(Unit* u, Sequence* asker);
  bool LooksAhead(const Unit& u) const;
  // Returns the cost of a microbatch if everything known of the next
  // microbatches, as many as there are stages, is balanced.
  double BalancedUs(const Unit& u) const;
  // Returns how many tokens of a prompt the batch can still take.
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
