#ifndef DAEMON_FINESERVED_POOL_SERVICE_SCOREBOARD_MEMFD_H_
#define DAEMON_FINESERVED_POOL_SERVICE_SCOREBOARD_MEMFD_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/sealed_memfd.h"
#include "daemon/contract/abi/view_scoreboard.h"
#include "daemon/pool/slab_ids.h"

namespace fineserve::server {

// Makes an engine scoreboard (daemon/contract/abi/engine_scoreboard.h) for
// `pid`, with its header filled. The caller seals it against other writers
// after the shim has mapped it.
absl::StatusOr<abi::SealedMemfd> MakeEngineScoreboard(uint64_t epoch,
                                                      slab::EngineId engine,
                                                      pid_t pid);

// The daemon's side of a view scoreboard
// (daemon/contract/abi/view_scoreboard.h). The daemon makes it and the engine
// writes it, so every value is only the engine's claim. Move-only.
class ViewScoreboardMemfd {
 public:
  static absl::StatusOr<ViewScoreboardMemfd> Create(uint64_t epoch,
                                                    slab::EngineId engine,
                                                    pid_t pid,
                                                    uint32_t slab_count);

  // Takes over a scoreboard that a former daemon made. InvalidArgument if it
  // does not belong to this engine in a pool of this many slabs.
  static absl::StatusOr<ViewScoreboardMemfd> Adopt(driver::Descriptor made,
                                                   slab::EngineId engine,
                                                   uint32_t slab_count);

  // Blocks of a slab that are in use, as the engine reports it.
  uint32_t UsedBlocks(slab::SlabId slab) const;

  // True if the engine reports that it wants a slab.
  bool Wishes(slab::SlabId slab) const;

  // Total and longest time for which a thread of the engine mapped and unmapped
  // slabs while the engine served, as the engine reports it.
  uint64_t SwapsNs() const;
  uint64_t LongestSwapNs() const;
  // Returns how many steps the engine has ended, as it reports.
  uint64_t Steps() const;
  // Blocks that an engine which spans GPUs can be sure of on all of them, may
  // count on there while it runs nothing, and can ever have, as the engine
  // reports them. MostBlocks returns 0 if unknown.
  uint64_t SureBlocks() const;
  uint64_t FirstBlocks() const;
  uint64_t MostBlocks() const;

  int descriptor() const { return memfd_.descriptor(); }

 private:
  ViewScoreboardMemfd(abi::SealedMemfd memfd, uint32_t slab_count)
      : memfd_(std::move(memfd)), slab_count_(slab_count) {}

  uint32_t Word(size_t index) const;
  const abi::ViewScoreboardHeader& header() const {
    return *static_cast<const abi::ViewScoreboardHeader*>(memfd_.base());
  }

  abi::SealedMemfd memfd_;
  uint32_t slab_count_;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_POOL_SERVICE_SCOREBOARD_MEMFD_H_
