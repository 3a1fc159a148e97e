// The part of Gpu that knows the future (EvictionSetup::next_request).

#include "tools/lab/sim/gpu/gpu.h"

namespace fineserve::sim {
namespace {

// An engine begins to come back this many times its transfer time before its
// next request, because others have to leave first and several may come back at
// once. Heuristic.
constexpr int kWaysAhead = 4;
constexpr Micros kLookAgainUs = 100'000;

}  // namespace

bool Gpu::IsClairvoyant() const {
  return setup_.eviction && setup_.eviction->next_request;
}

// Belady's choice. If the room can wait, excludes each engine that could not be
// back for its next request after the asker's next request has come.
absl::optional<size_t> Gpu::LastNeeded(evict::RoomFor reason,
                                       const std::string& asker) const {
  const auto& next = setup_.eviction->next_request;
  Micros wanted = now_;
  for (const auto& e : engines_) {
    if (e->setup.name != asker) continue;
    if (reason == evict::RoomFor::kNext) wanted = next(e->setup.model, now_);
  }
  Micros latest = -1;
  absl::optional<size_t> last;
  for (const auto& e : engines_) {
    if (e->pid == 0 || e->at != Running::At::kGpu || e->setup.name == asker ||
        !e->engine.idle() || e->engine.stepping() ||
        scheduler_.Figures(sched::ModelId{e->setup.model}).queued != 0) {
      continue;
    }
    const Micros at = next(e->setup.model, now_);
    const bool is_soon = at - wanted < kWaysAhead * MoveTime(*e);
    if (at <= latest || (reason != evict::RoomFor::kRequests && is_soon)) {
      continue;
    }
    latest = at;
    last = e->place;
  }
  return last;
}

// Brings back the absent engine whose next request comes first, if its time has
// come or if memory is free.
void Gpu::BringBackNext() {
  if (first_ != nullptr || now_ < next_ahead_) return;
  Running* first = nullptr;
  Micros soonest = kNever;
  for (const auto& e : engines_) {
    if (e->at != Running::At::kHost) continue;
    const Micros at = setup_.eviction->next_request(e->setup.model, now_);
    if (at >= soonest) continue;
    soonest = at;
    first = e.get();
  }
  next_ahead_ = kNever;
  if (first == nullptr) return;
  const uint64_t bytes = first->setup.weight_bytes;
  const uint64_t slab = setup_.geometry.slab_bytes();
  const uint64_t free = FreeBytes() + pool_->slabs().free_count() * slab;
  const Micros begins = soonest - kWaysAhead * MoveTime(*first);
  if (now_ < begins && free < 2 * bytes) {
    next_ahead_ = begins;
    return;
  }
  BringBack(first);
  next_ahead_ = now_ + kLookAgainUs;
}

}  // namespace fineserve::sim
