// The part of PoolState that resizes the pool, and by which its size is chosen.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/slab/beyond.h"
#include "daemon/slab/pool_state.h"

namespace fineserve::slab {

using abi::EngineState;

namespace {

// The part of a pool that is next to nothing. Heuristic.
constexpr uint32_t kTightParts = 16;

}  // namespace

absl::Status PoolState::Resize(uint32_t slabs) {
  if (slabs == 0 || slabs > slabs_.slab_count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the pool can have 1 to ", slabs_.slab_count(), " slabs, not ", slabs));
  }
  const uint32_t needed = NeededSlabs();
  if (slabs < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("the pool cannot shrink to ", slabs, " slabs: ", needed,
                     " are floors of engines or leased whole"));
  }
  wanted_slabs_ = slabs;
  return absl::OkStatus();
}

uint32_t PoolState::NeededSlabs() const {
  const uint32_t all = slabs_.slab_count();
  uint32_t quarantined = 0;  // these only delay it: see Shrink
  return all - Uncommitted(all, &quarantined) + slabs_.promised_count();
}

uint32_t PoolState::GivableFor(EngineId asker) const {
  const uint32_t left = Uncommitted(present_slabs(), nullptr);
  uint32_t kept = slabs_.promised_count();
  const auto found = engines_.find(asker);
  if (found != engines_.end() && found->second.view) {
    kept += Beyond(slabs_.HeldBy(asker).in_view, found->second.view->floor);
  }
  // A pool has one slab at least.
  return std::min(Beyond(left, kept), Beyond(present_slabs(), 1u));
}

bool PoolState::tight() const {
  const uint32_t left = slabs_.free_count() + slabs_.zeroing_count();
  const uint32_t leased = Beyond(present_slabs(), left);
  return contended_ || (leased > 0 && left <= present_slabs() / kTightParts);
}

bool PoolState::IsExhausted() const {
  if (slabs_.free_count() != 0) return false;
  return std::any_of(engines_.begin(), engines_.end(), [this](const auto& e) {
    const auto& [id, engine] = e;
    if (engine.state != EngineState::kAlive || !engine.view) return false;
    return slabs_.HeldBy(id).in_view < std::min(engine.view->wanted, CapOf(id));
  });
}

bool PoolState::AnyStarting(uint64_t now_ns) const {
  for (const auto& [id, engine] : engines_) {
    if (engine.state != EngineState::kAlive ||
        now_ns - engine.since_ns > kStartNs || slabs_.HeldBy(id).slabs > 0) {
      continue;
    }
    if (!engine.view || engine.view->state == abi::ViewState::kRegistered) {
      return true;
    }
  }
  return false;
}

}  // namespace fineserve::slab
