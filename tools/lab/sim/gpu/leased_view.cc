#include "tools/lab/sim/gpu/leased_view.h"

#include <algorithm>
#include <utility>

#include "kernels/driver/rounding.h"

namespace fineserve::sim {
namespace {

using abi::SlabState;

// As in shim/view/view_state.cc.
constexpr Micros kShortfallUs = 1'000'000;
constexpr Micros kAskAgainUs = 50'000;
constexpr Micros kIdleUs = 100'000;

}  // namespace

bool LeasedView::Notice(const slab::SlabChange& change) {
  const Lease& lease = leases_[slab::Number(change.slab)];
  const bool ours = change.word.engine == slab::Number(id_) &&
                    (change.word.state == SlabState::kPartial ||
                     change.word.state == SlabState::kReturning);
  if (!ours && lease.id == slab::LeaseId{0}) return false;
  // If a lease of this view ends, the view itself has ended it.
  if (ours) unseen_.push_back(change);
  return ours;
}

bool LeasedView::IsAskedBack(slab::SlabId slab) const {
  return std::any_of(unseen_.begin(), unseen_.end(), [&](const auto& change) {
    return change.slab == slab && change.word.state == SlabState::kReturning;
  });
}

bool LeasedView::LeaveAsked() {
  std::vector<slab::SlabChange> asked, others;
  for (const slab::SlabChange& change : unseen_) {
    (IsAskedBack(change.slab) ? asked : others).push_back(change);
  }
  for (const slab::SlabChange& change : asked) Apply(change);
  unseen_ = std::move(others);
  return !asked.empty();
}

void LeasedView::Look() {
  for (const slab::SlabChange& change : std::exchange(unseen_, {})) {
    Apply(change);
  }
}

void LeasedView::Apply(const slab::SlabChange& change) {
  const uint32_t slab = slab::Number(change.slab);
  Lease& lease = leases_[slab];
  lease.id = slab::LeaseId{change.word.lease};
  if (change.word.state == SlabState::kPartial) {
    // View index 0 is the scratch's.
    const abi::BlockRange range = layout_.Blocks(slab + 1);
    blocks_->Link(slab, static_cast<uint32_t>(range.end - range.first));
    lease.linked = true;
  } else if (lease.linked) {
    ++leaving_;
    lease.linked = false;
    blocks_->Leave(slab);
  }
}

std::vector<LeasedView::Held> LeasedView::TakeDrained() {
  std::vector<Held> drained;
  for (const uint32_t slab : blocks_->TakeDrained()) {
    drained.push_back({slab::SlabId{slab}, leases_[slab].id});
    leases_[slab] = {};
    --leaving_;
  }
  return drained;
}

void LeasedView::SetStarving(uint32_t shortfall, Micros now) {
  starving_ = shortfall > 0;
  if (!starving_) {
    shortfall_ = 0;
    return;
  }
  shortfall_ = std::max(shortfall_, shortfall);
  shortfall_until_ = now + kShortfallUs;
  if (now - asked_again_ < kAskAgainUs) return;
  asked_again_ = now;
  ask_again_ = true;
}

uint64_t LeasedView::Room(Micros now, bool stepping) {
  next_want_ = kNever;
  if (now >= shortfall_until_) shortfall_ = 0;
  if (shortfall_ > 0) next_want_ = shortfall_until_;
  uint64_t room = shortfall_;
  const Micros idle_at = (stepping ? now : active_) + kIdleUs;
  if (starving_ || now < idle_at) {
    room = std::max(room, watermark_);
    if (!starving_ && !stepping) next_want_ = std::min(next_want_, idle_at);
  }
  return std::min<uint64_t>(room, cap_slabs_ * least_blocks_);
}

absl::optional<uint32_t> LeasedView::UpdateWant(Micros now, bool stepping) {
  room_ = Room(now, stepping);
  const uint64_t slabs = DivideUp(Staying() + room_, least_blocks_);
  const uint64_t most = cap_slabs_ - std::min(cap_slabs_, leaving_);
  const uint32_t want = static_cast<uint32_t>(std::min(slabs, most)) + leaving_;
  const bool again = std::exchange(ask_again_, false);
  if (std::exchange(want_, want) == want && !again) return absl::nullopt;
  return want;
}

uint64_t LeasedView::BlocksWithin() const {
  const uint64_t needed = Staying() + room_;
  return DivideUp(needed, least_blocks_) * least_blocks_ - needed;
}

}  // namespace fineserve::sim
