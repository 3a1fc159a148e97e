#ifndef DAEMON_POOL_POOL_EFFECTS_H_
#define DAEMON_POOL_POOL_EFFECTS_H_

// The inputs and outputs of the pool's state machine (pool_state.h).

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "daemon/contract/abi/slab_table.h"
#include "daemon/pool/geometry/format.h"
#include "daemon/pool/slab_manager.h"

namespace fineserve::slab {

// The view that an engine asks for.
struct ViewSpec {
  abi::ViewMode mode = abi::ViewMode::kNone;
  Format format;
  uint64_t floor_blocks = 0;
  uint64_t cap_blocks = 0;  // 0: no limit
  bool group = false;       // the engine spans GPUs (abi::kViewOfGroup)
  abi::KvShape shape = {};
  bool registered = false;  // with other devices (abi::kViewIsRegistered)
};

// The operator's limits on an engine's share of the pool, in bytes.
struct ShareLimits {
  uint64_t floor_bytes = 0;
  uint64_t cap_bytes = 0;  // 0: no limit
};

// A request for whole slabs that is not granted.
struct Refusal {
  uint64_t ticket;
  EngineId engine;
  uint32_t count;      // slabs that it asked for
  uint32_t available;  // slabs that it could have had
  bool late;           // it waited, and too few slabs were returned in time
  uint32_t limit = 0;  // its engine's limit, if that is why
};

// Actions that have to follow an event. The results of `make`, `fill` and
// `list_processes` are reported as further events.
struct Effects {
  std::vector<SlabChange> changes;  // of slabs' words, in order
  std::vector<SlabId> make;         // give it memory: Made or NotMade
  std::vector<SlabId> fill;         // with zeros: Zeroed or NotZeroed
  std::vector<SlabId> drop;         // release its memory
  std::vector<SlabManager::Grant> grants;
  std::vector<Refusal> refusals;
  std::set<EngineId> records;      // engines whose record has changed
  std::set<EngineId> views;        // views whose slabs have changed: wake them
  std::vector<uint32_t> vacant;    // slots of engines that are gone
  bool list_processes = false;     // ask the driver: Listed
  std::vector<std::string> notes;  // for the log

  bool empty() const {
    return changes.empty() && make.empty() && fill.empty() && drop.empty() &&
           grants.empty() && refusals.empty() && records.empty() &&
           views.empty() && vacant.empty() && !list_processes && notes.empty();
  }
};

// Counters of the pool since it was made.
struct PoolCounters {
  uint64_t leases_granted = 0;
  uint64_t leases_denied = 0;
  uint64_t slabs_zeroed = 0;
  uint64_t slabs_quarantined = 0;
  uint64_t engines_died = 0;  // whose last member left slabs behind
  uint64_t slabs_asked_back = 0;
  uint64_t slabs_returned = 0;  // by views
  uint64_t slabs_added = 0;
  uint64_t slabs_withdrawn = 0;
};

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_POOL_EFFECTS_H_
