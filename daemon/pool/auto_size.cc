#include "daemon/pool/auto_size.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/pool/beyond.h"
#include "kernels/driver/rounding.h"

namespace fineserve::slab {
namespace {

// Added to what an engine asks for, since the driver may need a little more.
constexpr uint64_t kSlackBytes = uint64_t{4} << 20;
// The pool grows by 1/kGrowthParts of its size at a time. Heuristic: growing
// takes driver calls, and the GPU's free memory is measured between two steps.
constexpr uint32_t kGrowthParts = 8;
// Limit on the total memory that the pool gives up, as a multiple of the need.
// Heuristic.
constexpr uint64_t kMostTimes = 2;

}  // namespace

void AutoSize::Ask(uint32_t asker, uint64_t bytes, bool starts,
                   uint64_t now_ns) {
  DropOldWishes(now_ns);
  Wish& wish = wishes_[asker];
  if (wish.bytes != bytes) {
    wish.since_ns = now_ns;
    due_bytes_ += bytes + kSlackBytes;
  }
  wish.bytes = bytes;
  wish.starts = starts;
  wish.until_ns = now_ns + kAskNs;
}

void AutoSize::Served(uint32_t asker) {
  const auto wish = wishes_.find(asker);
  if (wish == wishes_.end()) return;
  // The asker has already taken this part of the memory that left the pool, so
  // the GPU will not show it as free.
  if (return_.on) return_.taken_bytes += wish->second.bytes;
  wishes_.erase(wish);
  has_arrived_ = wishes_.empty();
}

void AutoSize::DropOldWishes(uint64_t now_ns) {
  for (auto it = wishes_.begin(); it != wishes_.end();) {
    it = it->second.until_ns <= now_ns ? wishes_.erase(it) : std::next(it);
  }
}

bool AutoSize::asked(uint64_t now_ns) const {
  for (const auto& [asker, wish] : wishes_) {
    if (wish.until_ns > now_ns) return true;
  }
  return false;
}

uint64_t AutoSize::Wished() const {
  uint64_t bytes = 0;
  for (const auto& [asker, wish] : wishes_) bytes += wish.bytes + kSlackBytes;
  return bytes;
}

bool AutoSize::AnyOlderThan(uint64_t ns, uint64_t now_ns) const {
  for (const auto& [asker, wish] : wishes_) {
    if (now_ns - wish.since_ns > ns) return true;
  }
  return false;
}

bool AutoSize::arriving(uint32_t present, uint64_t now_ns) const {
  return present < last_present_ ||
         (return_.on && now_ns < return_.last_ns + kReturnNs);
}

bool AutoSize::HasArrived(const SizeSight& sight) const {
  return sight.free_bytes >= FreeSoon(0, sight.present);
}

// Keeps track of memory that has left the pool and is not free yet, so that it
// is not given up twice.
void AutoSize::Follow(const SizeSight& sight, uint64_t now_ns) {
  if (std::exchange(has_arrived_, false)) {
    return_.on = false;
    last_present_ = sight.present;
  }
  if (sight.present < last_present_) {
    if (!return_.on) return_ = {true, last_free_, last_present_, now_ns, 0};
    return_.last_ns = now_ns;
    (gives_to_headroom_ ? given_to_headroom_bytes_ : given_bytes_) +=
        (last_present_ - sight.present) * slab_bytes_;
  } else if (sight.present > last_present_ || HasArrived(sight) ||
             !arriving(sight.present, now_ns)) {
    return_.on = false;
  }
  // The device could not provide the memory by which the pool should have
  // grown.
  if (last_choice_ > sight.present && sight.wanted == sight.present) {
    calm_until_ns_ = now_ns + kCalmNs;
  }
  last_present_ = sight.present;
  last_free_ = sight.free_bytes;
}

uint64_t AutoSize::FreeSoon(uint64_t free_bytes, uint32_t present) const {
  if (!return_.on) return free_bytes;
  const uint64_t given = Beyond(return_.present, present) * slab_bytes_;
  return std::max(free_bytes,
                  Beyond(return_.free_bytes + given, return_.taken_bytes));
}

uint32_t AutoSize::Smaller(const SizeSight& sight, uint64_t bytes,
                           uint32_t least) const {
  const uint64_t slabs = DivideUp(bytes, slab_bytes_);
  const uint64_t size =
      std::max<uint64_t>(Beyond<uint64_t>(sight.present, slabs), least);
  return static_cast<uint32_t>(std::min<uint64_t>(size, sight.present));
}

uint32_t AutoSize::Larger(const SizeSight& sight) const {
  const uint64_t room =
      Beyond(sight.free_bytes, headroom_bytes_ + sight.reserved_bytes) /
      slab_bytes_;
  const uint64_t step =
      std::max({1u, sight.present / kGrowthParts, sight.lacking});
  return static_cast<uint32_t>(
      std::min<uint64_t>(sight.most, sight.present + std::min(room, step)));
}

// Makes room for engines that wait. A decision for an engine holds until the
// engine stops waiting.
uint32_t AutoSize::MakeRoom(const SizeSight& sight, uint64_t free_soon,
                            uint64_t now_ns) {
  const uint32_t least = std::max(sight.least, 1u);
  // New floors may have come since the size was decided.
  const uint32_t held = std::min(std::max(sight.wanted, least), sight.present);
  const uint64_t wished = Wished();
  uint64_t missing = Beyond(wished, free_soon);
  if (given_bytes_ >= kMostTimes * due_bytes_) return held;
  // The driver reports enough free memory but still refuses: the memory may be
  // fragmented.
  if (missing == 0 && !return_.on && sight.wanted >= sight.present &&
      AnyOlderThan(kReturnNs, now_ns)) {
    missing = slab_bytes_ * pieces_;
    pieces_ *= 2;
  }
  return std::min(held, Smaller(sight, missing, least));
}

uint32_t AutoSize::Choose(const SizeSight& sight, uint64_t now_ns) {
  DropOldWishes(now_ns);
  Follow(sight, now_ns);
  return last_choice_ = Decide(sight, now_ns);
}

uint32_t AutoSize::Decide(const SizeSight& sight, uint64_t now_ns) {
  const uint64_t free_soon = FreeSoon(sight.free_bytes, sight.present);
  if (wishes_.empty()) {
    pieces_ = 1;
    given_bytes_ = due_bytes_ = 0;
  } else {
    const bool starts =
        std::any_of(wishes_.begin(), wishes_.end(),
                    [](const auto& wish) { return wish.second.starts; });
    if (starts) calm_until_ns_ = now_ns + kCalmNs;
    const uint32_t size = MakeRoom(sight, free_soon, now_ns);
    if (size < sight.wanted) gives_to_headroom_ = false;
    return size;
  }
  if (free_soon < headroom_bytes_ / 2) {
    calm_until_ns_ = now_ns + kCalmNs;
    if (given_to_headroom_bytes_ >= kMostTimes * headroom_bytes_) {
      return sight.present;
    }
    // No engine asks for this memory, so only idle slabs leave the pool for it.
    const uint64_t leased = Beyond(sight.present, sight.idle);
    gives_to_headroom_ = true;
    return Smaller(sight, headroom_bytes_ - free_soon,
                   static_cast<uint32_t>(
                       std::max<uint64_t>({leased, sight.least, uint64_t{1}})));
  }
  if (sight.free_bytes >= headroom_bytes_ / 2) given_to_headroom_bytes_ = 0;
  // The pool keeps growing to the size that was decided.
  if (sight.wanted > sight.present) return sight.wanted;
  if (sight.start_waits ||
      (sight.tight && !sight.starting && now_ns >= calm_until_ns_)) {
    return Larger(sight);
  }
  return sight.present;
}

}  // namespace fineserve::slab
