#ifndef TOOLS_LAB_SIM_LEAD_HAND_H_
#define TOOLS_LAB_SIM_LEAD_HAND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/contract/wire/message_types.h"
#include "daemon/contract/wire/newest_plan.h"
#include "tools/lab/sim/gpu/gpu.h"
#include "tools/lab/sim/lead/setup.h"
#include "tools/up/supervised_engine.h"
#include "tools/up/wish.h"

namespace fineserve::sim {

using Gpus = std::vector<std::unique_ptr<Gpu>>;

// The hand, `fsctl up`, in virtual time: runs the engines that the plan wants,
// by the rules of tools/up. An engine takes its time to start, and
// then serves at once; one that may be evicted has only its weights to bring
// back the next time. One that does not fit beside its GPU's pool, or whose
// floor does not fit in it, ends, and is started again after a pause. Confined
// to one thread.
class Hand {
 public:
  // Both outlive it.
  Hand(const PlanningSetup& setup, Gpus* gpus);

  // Makes what is wanted true as far as that is possible now. To be called each
  // second. `plan`: the newest that the daemons know; null: none.
  void Turn(const wire::PlanT* plan, Micros now);

  // True if every engine that this plan wants serves, and no other runs.
  bool HasDone(uint64_t plan_number) const;
  // True if a process of the engine is there that may leave, or has left, its
  // GPU.
  bool IsHere(const std::string& engine) const;
  // Number of engines that ended before they served.
  uint64_t failed_starts() const { return failed_starts_; }

 private:
  using State = fsctl::SupervisedEngine::State;
  struct Engine {
    const PlaceSetup& setup;
    fsctl::SupervisedEngine life = {};
    Micros due = 0;  // serves then, or is gone
    bool has_served = false;
  };

  // True if its process is there, or would be if the engine did not run: one
  // that may be evicted rests while it is off.
  static bool MayRest(const Engine& engine) {
    return engine.has_served && engine.setup.engine.may_evict;
  }
  // Bytes that it takes beside the pool, but for what it keeps while it rests.
  static uint64_t OnlyRunning(const Engine& engine);
  void EndRest(Engine* engine);
  Micros StartTime(const Engine& engine) const;
  void TakeAway(Engine* engine, Micros now);
  void Start(Engine* engine, Micros now);
  void Serve(Engine* engine, Micros now);
  void Stop(Engine* engine, Micros now);
  void Fail(Engine* engine, Micros now);
  fsctl::Wish WishOf(const Engine& engine) const {
    return fsctl::WishOf(plan_, engine.setup.engine);
  }

  const PlanningSetup& setup_;
  Gpus* const gpus_;
  wire::NewestPlan plan_;
  std::vector<Engine> engines_;
  std::vector<uint64_t> beside_;  // bytes in use beside the pool, by GPU
  uint64_t failed_starts_ = 0;
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_LEAD_HAND_H_
