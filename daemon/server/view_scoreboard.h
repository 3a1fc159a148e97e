#ifndef DAEMON_SERVER_VIEW_SCOREBOARD_H_
#define DAEMON_SERVER_VIEW_SCOREBOARD_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "daemon/abi/view_scoreboard.h"
#include "daemon/slab/ids.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::server {

// The daemon's side of a view scoreboard (daemon/abi/view_scoreboard.h): made
// here, written by the engine. Its size is sealed, so that reading the mapping
// cannot fault; every value read is the engine's own word. Move-only.
class ViewScoreboard {
 public:
  static absl::StatusOr<ViewScoreboard> Create(uint64_t epoch,
                                               slab::EngineId engine, pid_t pid,
                                               uint32_t slab_count);
  ViewScoreboard(ViewScoreboard&& other) noexcept;
  ViewScoreboard& operator=(ViewScoreboard&& other) noexcept;
  ~ViewScoreboard();

  // Blocks in use of a slab, as the engine says.
  uint32_t UsedBlocks(slab::SlabId slab) const;

  // Of all slabs; at most what the view has room for.
  uint64_t UsedBlocks(uint64_t most) const;

  int descriptor() const { return descriptor_.get(); }

 private:
  ViewScoreboard(driver::Descriptor descriptor, const void* base, size_t bytes)
      : descriptor_(std::move(descriptor)), base_(base), bytes_(bytes) {}

  driver::Descriptor descriptor_;
  const void* base_;
  size_t bytes_;
};

}  // namespace fineserve::server

#endif  // DAEMON_SERVER_VIEW_SCOREBOARD_H_
