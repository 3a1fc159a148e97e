#ifndef TOOLS_LAB_SIM_GPU_LEASED_VIEW_H_
#define TOOLS_LAB_SIM_GPU_LEASED_VIEW_H_

#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/pool/pool_state.h"
#include "tools/lab/sim/core/agenda.h"
#include "tools/lab/sim/simulated_engine/slab_blocks.h"

namespace fineserve::sim {

// An engine's side of its view: which slabs it may use, which it gives back,
// and how many it wants, by the rules and constants of shim/view/view_state.h.
// A new slab is used from the engine's next step on (at once if the engine is
// idle). A slab that is asked back hands out no further blocks from that
// moment, and goes back as soon as it is empty, because the view's keeper looks
// at each change (shim/view/engine_view_work.cc). Confined to one thread.
class LeasedView {
 public:
  struct Held {
    slab::SlabId slab;
    slab::LeaseId lease;
  };

  // `blocks` must outlive it.
  LeasedView(slab::EngineId id, const slab::SlabLayout& layout,
             uint32_t cap_slabs, uint32_t floor_slabs, uint32_t slabs,
             SlabBlocks* blocks)
      : id_(id),
        layout_(layout),
        least_blocks_(layout.LeastBlocks()),
        cap_slabs_(cap_slabs),
        want_(floor_slabs),
        leases_(slabs),
        blocks_(blocks) {}

  slab::EngineId id() const { return id_; }

  // Takes note that a slab's word has changed. True if the change concerns this
  // view.
  bool Notice(const slab::SlabChange& change);
  // Takes in which slabs were asked back. True if any were.
  bool LeaveAsked();
  // Takes in everything that was noticed. Call between two steps.
  void Look();
  // Returns the drained slabs, which leave the view now.
  std::vector<Held> TakeDrained();

  // If fewer blocks than this are free, they are too few for the next step.
  void SetWatermark(uint64_t blocks) { watermark_ = blocks; }
  // A step has begun or ended.
  void SetActive(Micros now) { active_ = now; }
  // Reports whether the last allocation of the last step failed.
  void SetStarving(uint32_t shortfall, Micros now);

  // Computes the engine's present want. Returns it if the daemon has to be
  // notified.
  absl::optional<uint32_t> UpdateWant(Micros now, bool stepping);
  // Returns the time at which UpdateWant may find a change although nothing
  // happens.
  Micros NextWant() const { return next_want_; }
  // Returns how many further blocks the engine can use before it wants another
  // slab.
  uint64_t BlocksWithin() const;

 private:
  struct Lease {
    slab::LeaseId id{0};  // 0: not held
    bool linked = false;
  };
  bool IsAskedBack(slab::SlabId slab) const;
  void Apply(const slab::SlabChange& change);
  uint64_t Staying() const {
    return blocks_->used_blocks() - blocks_->leaving_blocks();
  }
  uint64_t Room(Micros now, bool stepping);

  const slab::EngineId id_;
  const slab::SlabLayout layout_;
  const uint64_t least_blocks_;
  const uint32_t cap_slabs_;
  uint32_t want_;
  std::vector<Lease> leases_;  // by slab
  uint32_t leaving_ = 0;       // slabs that were asked back and not returned
  std::vector<slab::SlabChange> unseen_;
  SlabBlocks* const blocks_;
  uint64_t watermark_ = 0;
  Micros active_ = 0;
  bool starving_ = false;
  uint32_t shortfall_ = 0;
  Micros shortfall_until_ = 0;
  bool ask_again_ = false;
  Micros asked_again_ = 0;
  Micros next_want_ = kNever;
  uint64_t room_ = 0;
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_GPU_LEASED_VIEW_H_
