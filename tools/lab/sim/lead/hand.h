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
// by the rules of tools/up. An engine takes its time to start and then serves
// at once. If it may be evicted, it has only its weights to bring back the next
// time. If it does not fit beside its GPU's pool, or its floor does not fit in
// the pool, it ends, and is started again after a pause. Confined to one
// thread.
class Hand {
 public:
  // Both outlive it.
  Hand(const PlanningSetup& setup, Gpus* gpus);

  // Carries out what the plan wants, as far as that is possible now. Call each
  // second. `plan` is the newest that the daemons know; null: none.
  void Turn(const wire::PlanT* plan, Micros now);

  // True if every engine that this plan wants serves, and no other runs.
  bool HasDone(uint64_t plan_number) const;
  // True if a process of the engine exists that may leave, or has left, its
  // GPU.
  bool IsHere(const std::string& engine) const;
  // Returns the number of times that an engine ended before it served.
  uint64_t failed_starts() const { return failed_starts_; }

 private:
  using State = fsctl::SupervisedEngine::State;
  struct Engine {
    const PlaceSetup& setup;
    fsctl::SupervisedEngine life = {};
    Micros due = 0;  // serves then, or is gone
    bool has_served = false;
  };

  // True if the engine's process exists, or would exist while the engine is
  // off: an engine that may be evicted rests instead of ending.
  static bool MayRest(const Engine& engine) {
    return engine.has_served && engine.setup.engine.may_evict;
  }
  // Returns the bytes beside the pool that the engine takes only while it runs,
  // not while it rests.
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
