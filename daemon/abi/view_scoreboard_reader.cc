#include "daemon/abi/view_scoreboard_reader.h"

#include <string.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/abi/header_copy.h"
#include "daemon/abi/view_scoreboard.h"

namespace fineserve::abi {
namespace {

template <typename... Parts>
absl::Status BadViewScoreboard(const Parts&... parts) {
  return absl::DataLossError(absl::StrCat("view scoreboard: ", parts...));
}

absl::Status Check(const ViewScoreboardHeader& h) {
  if (memcmp(h.magic, kViewScoreboardMagic, sizeof(h.magic)) != 0) {
    return BadViewScoreboard(
        "it does not begin with the view scoreboard magic");
  }
  if (h.abi_version != kAbiVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("view scoreboard has ABI version ", h.abi_version,
                     ", this program reads version ", kAbiVersion));
  }
  if (h.slab_count == 0 || h.slab_count > kMostSlabs) {
    return BadViewScoreboard("slab_count is ", h.slab_count);
  }
  if (h.scoreboard_bytes != ViewScoreboardBytes(h.slab_count)) {
    return BadViewScoreboard("scoreboard_bytes is ", h.scoreboard_bytes,
                             " for ", h.slab_count, " slabs");
  }
  if (h.pid == 0 || h.pid > INT32_MAX) {
    return BadViewScoreboard("pid is ", h.pid);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ViewScoreboardSnapshot> ReadViewScoreboard(int fd) {
  HeaderCopy<ViewScoreboardHeader> h;
  if (pread(fd, h.bytes, sizeof(h.bytes), 0) !=
      static_cast<ssize_t>(sizeof(h.bytes))) {
    return BadViewScoreboard("it is shorter than its header");
  }
  if (absl::Status s = Check(*h); !s.ok()) return s;
  ViewScoreboardSnapshot to;
  to.pid = h->pid;
  to.epoch = h->epoch;
  to.engine_id = h->engine_id;
  to.free_blocks = Get(h->free_blocks);
  to.used_blocks = Get(h->used_blocks);
  to.watermark_blocks = Get(h->watermark_blocks);
  to.linked_slabs = Get(h->linked_slabs);
  to.leaving_slabs = Get(h->leaving_slabs);
  to.steps_begun = Get(h->steps_begun);
  to.steps_ended = Get(h->steps_ended);
  to.allocated_blocks = Get(h->allocated_blocks);
  to.freed_blocks = Get(h->freed_blocks);
  to.failed_allocations = Get(h->failed_allocations);
  to.watermark_misses = Get(h->watermark_misses);
  to.returned_slabs = Get(h->returned_slabs);
  to.driver_calls_to_activate = Get(h->driver_calls_to_activate);
  to.driver_calls_serving = Get(h->driver_calls_serving);
  to.swaps = Get(h->swaps);
  to.swaps_ns = Get(h->swaps_ns);
  to.longest_swap_ns = Get(h->longest_swap_ns);
  to.used.resize(size_t{h->slab_count} + 1);
  const size_t bytes = to.used.size() * sizeof(to.used[0]);
  if (pread(fd, to.used.data(), bytes, sizeof(h.bytes)) !=
      static_cast<ssize_t>(bytes)) {
    return BadViewScoreboard("it is shorter than its ", h->slab_count,
                             " slabs need");
  }
  return to;
}

}  // namespace fineserve::abi
