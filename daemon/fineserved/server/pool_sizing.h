#ifndef DAEMON_FINESERVED_SERVER_POOL_SIZING_H_
#define DAEMON_FINESERVED_SERVER_POOL_SIZING_H_

#include <sys/types.h>

#include <cstdint>

#include "daemon/base/clock/clock.h"
#include "daemon/fineserved/server/pool_service.h"
#include "daemon/pool/auto_size.h"

namespace fineserve::server {

// Keeps a pool of size "auto" as large as slab::AutoSize decides: measures what
// is free on the GPU, and resizes. Confined to the daemon's thread.
class PoolSizing {
 public:
  // Both must outlive this object. The pool leaves `headroom_bytes` of the
  // GPU's memory free.
  PoolSizing(uint64_t headroom_bytes, PoolService* pool, const Clock* clock);

  // The driver refused `bytes` to a process of this engine, which returns no
  // slabs while it waits (no engine: it does); 0: it has stopped
  // waiting. Returns what the pool could still give up for it, in bytes:
  // nothing if all of it would not be enough. `starts`: it will need others
  // after these.
  uint64_t Ask(slab::EngineId engine, pid_t pid, uint64_t bytes, bool starts);
  // Bytes that are free or in slabs that no engine holds; nullopt if they have
  // to be measured, which happens at once.
  absl::optional<uint64_t> IdleBytes();
  // The pool lacks so many slabs for the floor of a view that is being
  // registered, or for a lease of whole slabs. True if it may grow by them, so
  // that it is worth another try soon.
  bool AwaitSlabs(uint32_t lack);

  // An engine has left the GPU.
  void CameFree();
  // Requests wait, and an engine has given up memory for their KV: the pool
  // takes what is free, step by step, even if its engines do not want it yet.
  void Grow();

  // Bytes that would be lacking even if all of the pool left; 0 if the GPU's
  // free memory has to be measured first.
  uint64_t LackBeyondPool(uint64_t bytes) const;
  // Until then so much of what comes free is for an engine, not for the pool.
  void Reserve(uint64_t bytes, uint64_t until_ns) {
    reserved_bytes_ = bytes;
    reserved_until_ns_ = until_ns;
  }

  // True if the GPU's memory ends the pool's growth, as last measured, before
  // it has grown by so many bytes, a slab at least, although it may have more.
  bool IsAtLimit(uint64_t more_bytes = 0) const;

  // To be called when the pool has settled, and at next_ns().
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

#endif  // DAEMON_FINESERVED_SERVER_POOL_SIZING_H_
