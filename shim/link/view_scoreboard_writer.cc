#include "shim/link/view_scoreboard_writer.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fineserve::shim {

using abi::ViewScoreboardHeader;

bool ViewScoreboardWriter::Adopt(int fd, uint64_t epoch, uint32_t engine_id,
                                 uint32_t slab_count) {
  static_assert(offsetof(Scoreboard, used) == sizeof(ViewScoreboardHeader));
  const size_t bytes = abi::ViewScoreboardBytes(slab_count);
  struct stat st;
  void* mapped = MAP_FAILED;
  if (fstat(fd, &st) == 0 && st.st_size >= static_cast<off_t>(bytes)) {
    mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (mapped == MAP_FAILED) {
    close(fd);
    return false;
  }
  auto* fresh = static_cast<Scoreboard*>(mapped);
  ViewScoreboardHeader& h = fresh->header;
  memcpy(h.magic, abi::kViewScoreboardMagic, sizeof(h.magic));
  h.abi_version = abi::kAbiVersion;
  h.pid = static_cast<uint32_t>(getpid());
  h.scoreboard_bytes = bytes;
  h.epoch = epoch;
  h.engine_id = engine_id;
  h.slab_count = slab_count;
  // The new count must not be used with the old scoreboard.
  scoreboard_.store(nullptr, std::memory_order_relaxed);
  slab_count_.store(slab_count, std::memory_order_relaxed);
  descriptor_.Close();
  descriptor_.Adopt(fd);
  // Release: publishes the count. Pairs with scoreboard().
  scoreboard_.store(fresh, std::memory_order_release);
  return true;
}

void ViewScoreboardWriter::Show(const ViewGauges& gauges) {
  Scoreboard* p = scoreboard();
  if (p == nullptr) return;
  ViewScoreboardHeader& h = p->header;
  // Each value is a hint or is read by people; nothing is inferred from two of
  // them together.
  const auto show = [](std::atomic<uint64_t>* to, uint64_t value) {
    to->store(value, std::memory_order_relaxed);
  };
  show(&h.free_blocks, gauges.free_blocks);
  show(&h.used_blocks, gauges.used_blocks);
  show(&h.watermark_blocks, gauges.watermark_blocks);
  show(&h.linked_slabs, gauges.linked_slabs);
  show(&h.leaving_slabs, gauges.leaving_slabs);
  show(&h.steps_begun, gauges.steps_begun);
  show(&h.steps_ended, gauges.steps_ended);
  show(&h.allocated_blocks, gauges.allocated_blocks);
  show(&h.freed_blocks, gauges.freed_blocks);
  show(&h.failed_allocations, gauges.failed_allocations);
  show(&h.watermark_misses, gauges.watermark_misses);
  show(&h.returned_slabs, gauges.returned_slabs);
  show(&h.driver_calls_to_activate, gauges.driver_calls_to_activate);
  show(&h.driver_calls_serving, gauges.driver_calls_serving);
  show(&h.swaps, gauges.swaps);
  show(&h.swaps_ns, gauges.swaps_ns);
  show(&h.longest_swap_ns, gauges.longest_swap_ns);
}

void ViewScoreboardWriter::ShowUsed(uint32_t view_index, uint32_t blocks) {
  Scoreboard* p = scoreboard();
  if (p == nullptr || view_index > slab_count_.load(std::memory_order_relaxed))
    return;
  p->used[view_index].store(blocks, std::memory_order_relaxed);
}

void ViewScoreboardWriter::ShowWished(uint32_t view_index, bool wished) {
  Scoreboard* p = scoreboard();
  const uint32_t count = slab_count_.load(std::memory_order_relaxed);
  if (p == nullptr || view_index > count) return;
  Wished(p, count)[view_index].store(wished, std::memory_order_relaxed);
}

uint64_t ViewScoreboardWriter::SumUsed() const {
  const Scoreboard* p = scoreboard();
  if (p == nullptr) return 0;
  uint64_t sum = 0;
  const uint32_t count = slab_count_.load(std::memory_order_relaxed);
  for (uint32_t v = 1; v <= count; ++v) {
    sum += p->used[v].load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace fineserve::shim
