#ifndef DAEMON_FINESERVED_POOL_SERVICE_POOL_SIZING_H_
#define DAEMON_FINESERVED_POOL_SERVICE_POOL_SIZING_H_

#include <sys/types.h>

#include <cstdint>

#include "daemon/base/clock/clock.h"
#include "daemon/fineserved/pool_service/pool_service.h"
#include "daemon/pool/auto_size.h"

namespace fineserve::server {

// Keeps a pool of size "auto" as large as slab::AutoSize decides: measures what
// is free on the GPU, and resizes. Confined to the daemon's thread.
class PoolSizing {
 public:
  // Both must outlive this object. The pool leaves `headroom_bytes` of the
  // GPU's memory free.
  PoolSizing(uint64_t headroom_bytes, PoolService* pool, const Clock* clock);

  // Called when the driver has refused `bytes` to a process of this engine; 0
  // means that the process has stopped waiting. The engine returns no slabs
  // while it waits; kNoEngine counts all slabs. Returns the bytes that the pool
  // could still give up for it: 0 if all of them would not be enough. `starts`
  // is true if it will need further memory afterwards.
  uint64_t Ask(slab::EngineId engine, pid_t pid, uint64_t bytes, bool starts);
  // Returns the bytes that are free or in slabs that no engine holds; nullopt
  // if they must be measured, which begins at once.
  absl::optional<uint64_t> IdleBytes();
  // Called when the pool lacks `lack` slabs for the floor of a view that is
  // being registered, or for a lease of whole slabs. True if it may grow by
  // them, so that the caller should try again soon.
  bool AwaitSlabs(uint32_t lack);

  // An engine has left the GPU.
  void CameFree();
  // Called when requests wait and an engine has given up memory for their KV.
  // The pool then takes the free memory, step by step, even if its engines do
  // not want it yet.
  void Grow();

  // Returns the bytes that would be lacking even if all of the pool were given
  // up; 0 if the GPU's free memory must be measured first.
  uint64_t LackBeyondPool(uint64_t bytes) const;
  // Reserves, until `until_ns`, `bytes` of the memory that becomes free for an
  // engine instead of the pool.
  void Reserve(uint64_t bytes, uint64_t until_ns) {
    reserved_bytes_ = bytes;
    reserved_until_ns_ = until_ns;
  }

  // True if, as last measured, the GPU has too little memory for the pool to
  // grow by `more_bytes` (at least a slab), although the pool may be larger.
  bool IsAtLimit(uint64_t more_bytes = 0) const;

  // Call it when the pool has settled, and at next_ns().
  void Settle();
  uint64_t next_ns() const { return measuring_ ? UINT64_MAX : next_ns_; }

 private:
  void Choose(uint64_t free_bytes);
  void Say(uint32_t before, uint32_t after, uint64_t free_bytes) const;
  uint64_t PauseNs() const;

  const uint64_t headroom_bytes_;
  PoolService* const pool_;
  const Clock* const clock_;
  slab::AutoSize size_;
  bool measuring_ = false;
  uint64_t next_ns_ = 0;
  uint64_t free_bytes_ = 0;  // as last measured
  uint64_t measured_ns_ = 0;
  uint64_t slabs_until_ns_ = 0;
  uint64_t reserved_bytes_ = 0;
  uint64_t reserved_until_ns_ = 0;
  bool error_logged_ = false;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_POOL_SERVICE_POOL_SIZING_H_
