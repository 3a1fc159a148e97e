#include "shim/ranks/group_leases.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "daemon/contract/abi/engine_entry.h"

namespace fineserve::shim {
namespace {

using abi::SlabState;
using On = ViewLeases::Hold;

// Costs of getting a slab on one rank; the slab with the smallest sum is
// chosen.
constexpr uint8_t kFree = 0;
constexpr uint8_t kOnItsWay = 1;
constexpr uint8_t kOfAnother = 2;
// Comes at an unknown time, when the other engine's blocks are freed.
constexpr uint8_t kInUse = 15;
static_assert(kInUse * GroupLeases::kMaxRanks < 255);

// True if a rank holds a lease that it has not begun to return.
bool Holds(On hold) {
  return hold == On::kArrived || hold == On::kHeld || hold == On::kAsked ||
         hold == On::kLeaving;
}

}  // namespace

void PoolSight::Look(const void* table) {
  const auto* header = static_cast<const abi::TableHeader*>(table);
  const auto* entries = reinterpret_cast<const abi::EngineEntry*>(
      static_cast<const char*>(table) + header->engines_offset);
  for (uint32_t slot = 0; slot < abi::kEngineCapacity; ++slot) {
    seen_[slot] = {};
    abi::EngineRecord record;
    if (!abi::CopyRecord(entries[slot], &record)) continue;
    const abi::ViewRecord& view = record.view;
    if (record.state != abi::EngineState::kAlive ||
        view.state != abi::ViewState::kActive) {
      continue;
    }
    seen_[slot] = {
        record.id, view.offer, view.target,
        view.leased - std::min(view.leased, view.returning), view.floor,
        record.limit == 0 ? view.cap : std::min(view.cap, record.limit),
        // Relaxed: no reader concludes from these figures that another write is
        // visible.
        entries[slot].sure_blocks.load(std::memory_order_relaxed),
        entries[slot].first_blocks.load(std::memory_order_relaxed)};
  }
}

bool PoolSight::CanSpare(uint32_t engine, uint32_t slot) const {
  const uint64_t mine = seen_[slot].open;
  for (const Seen& other : seen_) {
    if (other.engine != engine) continue;
    return other.open > other.target ||
           (other.open > other.floor && other.open >= mine + 2);
  }
  return false;
}

bool GroupLeases::Open(const Place* places, uint32_t count, uint32_t views,
                       uint32_t cap, uint32_t seed) {
  if (count == 0 || count > kMaxRanks || views == 0 || slabs_ != nullptr) {
    return false;
  }
  void* memory =
      mmap(nullptr, (size_t{views} + 1) * sizeof(Slab), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  slabs_ = static_cast<Slab*>(memory);
  std::copy(places, places + count, places_);
  place_count_ = count;
  views_ = views;
  cap_ = std::min(cap, views);
  random_ = seed | 1;
  begin_ = want_ = take_ = 0;
  std::fill(counts_, counts_ + kHoldCount, 0);
  counts_[static_cast<int>(Hold::kNone)] = views;
  return true;
}

void GroupLeases::Close() {
  if (slabs_ != nullptr) munmap(slabs_, (size_t{views_} + 1) * sizeof(Slab));
  slabs_ = nullptr;
  views_ = 0;
  std::fill(counts_, counts_ + kHoldCount, 0);
}

void GroupLeases::Move(uint32_t v, Hold to) {
  const Hold from = slabs_[v].hold;
  wishes_changed_ =
      wishes_changed_ || from == Hold::kWished || to == Hold::kWished;
  --counts_[static_cast<int>(from)];
  ++counts_[static_cast<int>(to)];
  slabs_[v].hold = to;
}

bool GroupLeases::TakeWishesChanged() {
  return std::exchange(wishes_changed_, false);
}

uint32_t GroupLeases::Next(Hold hold, uint32_t v) const {
  if (count(hold) == 0) return 0;
  while (++v <= views_) {
    if (slabs_[v].hold == hold) return v;
  }
  return 0;
}

void GroupLeases::Look() {
  for (uint32_t v = 1; v <= views_; ++v) LookAt(v);
}

void GroupLeases::LookAt(uint32_t v) {
  uint32_t holding = 0;
  bool asked = false;
  bool any = false;
  for (uint32_t r = 0; r < place_count_; ++r) {
    const On on = places_[r].leases->hold(v);
    any = any || on != On::kNone;
    holding += Holds(on);
    // A lease that was asked back before it was reported is already kDone.
    asked = asked || (on != On::kNone && on != On::kArrived && on != On::kHeld);
  }
  switch (slabs_[v].hold) {
    case Hold::kNone:
      if (any) GiveBack(v);  // granted after the wish was dropped
      break;
    case Hold::kWished:
      // One that was chosen may have got other memory since.
      if (asked || (holding > 0 && !IsMappedByAll(v))) {
        GiveBack(v);
      } else if (holding == place_count_) {
        for (uint32_t r = 0; r < place_count_; ++r)
          places_[r].leases->Report(v);
        Move(v, Hold::kReady);
      }
      break;
    case Hold::kReady:
      if (asked) GiveBack(v);
      break;
    case Hold::kHeld:
      if (asked) Move(v, Hold::kAsked);
      break;
    case Hold::kGiven:
      if (any) {
        GiveBack(v);
      } else {
        Move(v, Hold::kNone);
      }
      break;
    case Hold::kAsked:
    case Hold::kLeaving:
      break;
  }
}

// Returns the slab on every rank that holds it.
void GroupLeases::GiveBack(uint32_t v) {
  for (uint32_t r = 0; r < place_count_; ++r) {
    ViewLeases& leases = *places_[r].leases;
    if (leases.hold(v) == On::kArrived) leases.Report(v);
    leases.ReturnSlab(v);
  }
  if (slabs_[v].hold != Hold::kGiven) Move(v, Hold::kGiven);
}

void GroupLeases::Report(uint32_t v) {
  Move(v, slabs_[v].hold == Hold::kReady ? Hold::kHeld : Hold::kLeaving);
}

bool GroupLeases::Return(uint32_t v) {
  if (v == 0 || v > views_) return false;
  const Hold hold = slabs_[v].hold;
  if (hold != Hold::kHeld && hold != Hold::kAsked && hold != Hold::kLeaving) {
    return false;
  }
  GiveBack(v);
  return true;
}

void GroupLeases::Plan(uint64_t now_ms) {
  take_ = std::min(want_, cap_);
  for (uint32_t r = 0; r < place_count_; ++r) {
    take_ = std::min(take_, places_[r].sight->OfferOf(places_[r].slot));
  }
  DropLate(now_ms);
  const uint32_t settled = Having();
  const uint32_t wished = count(Hold::kWished);
  const uint32_t missing = take_ - std::min(take_, settled);
  if (wished > missing) {
    DropSome(wished - missing);
  } else if (wished < missing) {
    AddWishes(missing - wished, now_ms);
  }
}

void GroupLeases::Rest() {
  DropSome(UINT32_MAX);
  take_ = std::min(want_, Having());
}

// Drops the wish for a slab, and returns the leases that some ranks hold.
void GroupLeases::DropWish(uint32_t v, uint64_t again_ms) {
  slabs_[v].since_ms = again_ms;
  GiveBack(v);
}

// Drops late wishes. The next search begins at another slab. For kPatienceMs or
// more, searches skip the slabs that were not obtained.
void GroupLeases::DropLate(uint64_t now_ms) {
  for (uint32_t v = 0; (v = Next(Hold::kWished, v)) != 0;) {
    if (now_ms - slabs_[v].since_ms < kPatienceMs) continue;
    const bool waits = IsComing(v) && !(IsInUse(v) && AnyUnused(now_ms));
    const uint64_t patience = waits ? kDrainMs : kPatienceMs;
    if (now_ms - slabs_[v].since_ms < patience) continue;
    // xorshift32
    random_ ^= random_ << 13;
    random_ ^= random_ >> 17;
    random_ ^= random_ << 5;
    begin_ = random_ % views_;
    DropWish(v, now_ms + kPatienceMs + random_ % kPatienceMs);
  }
}

void GroupLeases::DropSome(uint32_t surplus) {
  for (uint32_t v = 0; surplus > 0 && (v = Next(Hold::kWished, v)) != 0;
       --surplus) {
    DropWish(v, /*again_ms=*/0);
  }
}

void GroupLeases::AddWishes(uint32_t missing, uint64_t now_ms) {
  uint8_t dearest = 0;
  for (uint32_t v = 1; v <= views_; ++v) {
    Slab& slab = slabs_[v];
    const bool open = slab.hold == Hold::kNone && slab.since_ms <= now_ms;
    slab.cost = open ? CostOf(v) : kNever;
    if (slab.cost != kNever) dearest = std::max(dearest, slab.cost);
  }
  for (uint32_t cost = 0; missing > 0 && cost <= dearest; ++cost) {
    for (uint32_t i = 0; missing > 0 && i < views_; ++i) {
      const uint32_t v = 1 + (begin_ + i) % views_;
      if (slabs_[v].cost != cost || slabs_[v].hold != Hold::kNone) continue;
      slabs_[v].since_ms = now_ms;
      Move(v, Hold::kWished);
      --missing;
    }
  }
}

GroupLeases::Reach GroupLeases::CountReach() const {
  Reach reach = {Having(), Having()};
  for (uint32_t v = 1; v <= views_; ++v) {
    const Hold hold = slabs_[v].hold;
    if (hold != Hold::kNone && hold != Hold::kWished && hold != Hold::kGiven) {
      continue;  // it has it
    }
    if (CostOf(v) == kNever) continue;
    ++reach.first;
    reach.sure += !IsInUse(v);
  }
  return {std::min(cap_, reach.sure), std::min(cap_, reach.first)};
}

// True if the engine could wish for a slab in which no other engine has blocks.
bool GroupLeases::AnyUnused(uint64_t now_ms) const {
  for (uint32_t v = 0; (v = Next(Hold::kNone, v)) != 0;) {
    const bool open = slabs_[v].since_ms <= now_ms && CostOf(v) != kNever;
    if (open && !IsInUse(v)) return true;
  }
  return false;
}

// True if another engine has blocks in the slab, on any rank.
bool GroupLeases::IsInUse(uint32_t v) const {
  for (uint32_t r = 0; r < place_count_; ++r) {
    if (CostAt(places_[r], v) == kInUse) return true;
  }
  return false;
}

uint32_t GroupLeases::Most() const {
  uint32_t most = cap_;
  for (uint32_t r = 0; r < place_count_; ++r) {
    most = std::min(most, places_[r].sight->MostOf(places_[r].slot));
  }
  return most;
}

PoolSight::Sure GroupLeases::SureBeside(uint32_t but) const {
  PoolSight::Sure least;
  for (uint32_t r = 0; r < place_count_; ++r) {
    if (r == but) continue;
    const PoolSight::Sure sure = places_[r].sight->SureOf(places_[r].slot);
    least.blocks = std::min(least.blocks, sure.blocks);
    least.first_blocks = std::min(least.first_blocks, sure.first_blocks);
  }
  return least;
}

// True if each rank has the slab or will get it.
bool GroupLeases::IsComing(uint32_t v) const {
  for (uint32_t r = 0; r < place_count_; ++r) {
    const SlabState state = places_[r].leases->word(v).state;
    const bool is_coming =
        state == SlabState::kReturning || CostAt(places_[r], v) <= kOnItsWay;
    if (!is_coming) return false;
  }
  return true;
}

uint8_t GroupLeases::CostOf(uint32_t v) const {
  uint32_t sum = 0;
  for (uint32_t r = 0; r < place_count_; ++r) {
    const uint8_t cost = CostAt(places_[r], v);
    if (cost == kNever) return kNever;
    sum += cost;
  }
  return static_cast<uint8_t>(sum);
}

bool GroupLeases::IsMapped(const Place& place, uint32_t v) {
  return place.shown->IsMapped(v, place.leases->Memory(v));
}

bool GroupLeases::IsMappedByAll(uint32_t v) const {
  return std::all_of(places_, places_ + place_count_,
                     [v](const Place& place) { return IsMapped(place, v); });
}

uint8_t GroupLeases::CostAt(const Place& place, uint32_t v) const {
  if (!IsMapped(place, v)) return kNever;
  const abi::SlabWord word = place.leases->word(v);
  const bool is_used =
      word.engine != place.engine && place.leases->BlocksInUse(v) > 0;
  switch (word.state) {
    case SlabState::kFree:
      return kFree;
    case SlabState::kZeroing:
      return kOnItsWay;
    case SlabState::kReturning:
      return is_used ? kInUse : kOnItsWay;
    case SlabState::kPartial:
      if (word.engine == place.engine) return kFree;
      if (!place.sight->CanSpare(word.engine, place.slot)) return kNever;
      return is_used ? kInUse : kOfAnother;
    default:
      return kNever;
  }
}

}  // namespace fineserve::shim
