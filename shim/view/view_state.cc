#include "shim/view/view_state.h"

#include <algorithm>
#include <iterator>
#include <new>

#include "kernels/driver/rounding.h"
#include "shim/view/view_format.h"

namespace fineserve::shim {
namespace {

// Heuristic: how long the blocks that a failed allocation needed stay wanted,
// since a request that was given up must not hold memory forever.
constexpr uint64_t kShortfallMs = 1'000;
// Heuristic: an engine that has begun no step for this long has no requests,
// and needs no room for the blocks of running steps. A step of a serving engine
// takes less time, or is in flight.
constexpr uint64_t kIdleMs = 100;

}  // namespace

bool ViewState::OpenLeases(const ViewGrant& grant, const ViewShape& shape) {
  return leases_.Open(grant.table, grant.table_bytes, grant.answer.engine_slot,
                      grant.engine_id, shape.slabs);
}

bool ViewState::OpenBlocks(const ViewGrant& grant, const ViewShape& shape) {
  blocks_ = new (blocks_storage_) BlockAllocator;
  cap_slabs_ = std::min(grant.answer.cap_slabs, shape.slabs);
  least_blocks_ = std::max(LeastBlocks(shape), uint64_t{1});
  want_ = grant.answer.floor_slabs;
  return blocks_->Create(shape.slabs, shape.plane_bytes, shape.page_bytes);
}

void ViewState::Close() {
  if (blocks_ != nullptr) blocks_->~BlockAllocator();
  leases_.Close();
  const uint64_t watermark = watermark_blocks_;
  const bool has_steps = has_steps_;
  *this = ViewState();
  watermark_blocks_ = watermark;
  has_steps_ = has_steps;
}

void ViewState::Look() {
  if (leases_.Changed()) leases_.Look();
  if (!has_steps()) return;
  for (uint32_t v = 0; (v = leases_.Next(Hold::kAsked, v)) != 0;) {
    blocks_->Leave(v);
    leases_.Report(v);
  }
  TakeDrained();
}

void ViewState::TakeDrained() {
  uint32_t drained[64];
  uint32_t count;
  do {
    count = blocks_->TakeDrained(std::size(drained), drained);
    for (uint32_t i = 0; i < count; ++i) leases_.ReturnSlab(drained[i]);
  } while (count == std::size(drained));
}

void ViewState::Link(uint32_t v) {
  blocks_->Link(v);
  leases_.Report(v);
}

uint64_t ViewState::BeginStep(uint64_t now_ms) {
  begun_ms_ = now_ms;
  steps_begun_ = blocks_->BeginStep();
  return steps_begun_;
}

bool ViewState::EndStep(uint64_t step, uint64_t now_ms) {
  if (step > steps_begun_ || step <= steps_ended_) return false;
  blocks_->EndStep(step);
  steps_ended_ = step;
  active_ms_ = now_ms;
  TakeDrained();
  return true;
}

void ViewState::Starve(uint32_t count, uint64_t now_ms) {
  ++failed_allocations_;
  // A slab that became free after the step began does not count, because every
  // slab that passes from one engine to another is free for a moment.
  if (leases_.leased() < cap_slabs_ &&
      leases_.AnyFreeSince(begun_ms_ * 1'000'000)) {
    ++watermark_misses_;
  }
  starving_ = true;
  shortfall_ = std::max(shortfall_, count);
  shortfall_until_ms_ = now_ms + kShortfallMs;
  AskAgain(now_ms);
}

void ViewState::AskAgain(uint64_t now_ms) {
  if (now_ms - asked_again_ms_ < kAskAgainMs) return;
  asked_again_ms_ = now_ms;
  ask_again_ = true;
}

uint64_t ViewState::needed_blocks() const {
  return std::max({watermark_blocks_, uint64_t{shortfall_}, uint64_t{1}});
}

// Returns the number of blocks that the engine needs besides those that it
// uses. Sets the time at which that number may decrease by itself.
uint64_t ViewState::Room(uint64_t now_ms) {
  less_at_ms_ = UINT64_MAX;
  if (now_ms >= shortfall_until_ms_) shortfall_ = 0;
  if (shortfall_ > 0) less_at_ms_ = shortfall_until_ms_;
  uint64_t room = shortfall_;
  const uint64_t idle_at_ms = (in_flight() ? now_ms : active_ms_) + kIdleMs;
  if (starving_ || now_ms < idle_at_ms) {
    room = std::max(room, watermark_blocks_);
    if (!starving_) less_at_ms_ = std::min(less_at_ms_, idle_at_ms);
  }
  // A number above the cap would change nothing, and could overflow.
  return std::min(room, cap_slabs_ * least_blocks_);
}

void ViewState::UpdateWant(uint64_t now_ms) {
  if (!has_steps()) return;
  const uint64_t room = Room(now_ms);
  const auto staying = static_cast<uint64_t>(StayingBlocks());
  const uint64_t slabs = DivideUp(staying + room, least_blocks_);
  const uint64_t most = cap_slabs_ - std::min(cap_slabs_, leases_.leaving());
  const uint64_t needed = std::min(slabs, most);
  want_ = static_cast<uint32_t>(needed) + leases_.leaving();
  less_below_ = needed == 0
                    ? -1
                    : static_cast<int64_t>((needed - 1) * least_blocks_) -
                          static_cast<int64_t>(room);
}

void ViewState::Show(ViewGauges* gauges) const {
  gauges->watermark_blocks = watermark_blocks_;
  gauges->linked_slabs = leases_.count(Hold::kHeld);
  gauges->leaving_slabs = leases_.leaving();
  gauges->free_blocks = blocks_->free_blocks();
  gauges->used_blocks = used_blocks_;
  gauges->allocated_blocks = allocated_blocks_;
  gauges->freed_blocks = freed_blocks_;
  gauges->failed_allocations = failed_allocations_;
  gauges->watermark_misses = watermark_misses_;
  gauges->steps_begun = steps_begun_;
  gauges->steps_ended = steps_ended_;
}

void ViewState::Show(fs_kv_stats* stats) const {
  stats->leased_slabs = leases_.leased();
  stats->leaving_slabs = leases_.leaving();
  stats->wanted_slabs = want_;
  stats->free_blocks = blocks_->free_blocks();
  stats->used_blocks = used_blocks_;
  stats->failed_allocations = failed_allocations_;
  stats->watermark_misses = watermark_misses_;
}

}  // namespace fineserve::shim
