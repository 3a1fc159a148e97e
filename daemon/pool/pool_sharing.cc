// The part of PoolState that shares the pool (Settle).

#include <algorithm>
#include <utility>

#include "daemon/pool/beyond.h"
#include "daemon/pool/pool_state.h"
#include "kernels/driver/rounding.h"

namespace fineserve::slab {
namespace {

using abi::SlabState;
using abi::SlabWord;
using abi::ViewState;

// Limit on the slabs that are being made at the same time, and on the slabs
// withdrawn in one Settle. Heuristic: a granule takes 193 µs on an A100, and
// members wait for that long.
constexpr uint32_t kResizeStep = 8;

// How long an engine that spans GPUs has found no free slab that it can use
// before its pool should grow. Heuristic: longer than it looks for others.
constexpr uint64_t kUnmatchedNs = 1'000'000'000;

}  // namespace

void PoolState::Settle(uint64_t now_ns, const UsedBlocks& used,
                       const Wished& wished) {
  if (awaiting() && lists_.Ask(now_ns)) effects_.list_processes = true;
  GrantWaiting();
  for (const auto& request : slabs_.TakeLate(now_ns, kLeaseWaitNs)) {
    Refuse(request, slabs_.free_count(), /*late=*/true);
  }
  if (present_slabs() < wanted_slabs_) Grow();
  if (present_slabs() > wanted_slabs_) Shrink();
  unmatched_ = false;
  Round round = Claims(now_ns, used);
  if (!round.ids.empty()) {
    Share(&round, now_ns, wished);
    AskBackAboveLimits(round, now_ns, used);
    AskBack(round, now_ns, used, wished);
  }
  for (SlabId slab : std::exchange(unfilled_, {})) Fill({slab});
  expecting_ = false;
  for (EngineId id : round.ids) {
    expecting_ = expecting_ || slabs_.HeldBy(id).returning > 0;
  }
}

bool PoolState::restless() const {
  return awaiting() || resizing() || expecting_ || contended_ ||
         slabs_.promised_count() > 0 || !unfilled_.empty();
}

void PoolState::Grow() {
  for (uint32_t i = 0; i < slabs_.slab_count(); ++i) {
    if (making_.size() >= kResizeStep ||
        present_slabs() + making_.size() >= wanted_slabs_) {
      return;
    }
    if (slabs_.word(SlabId{i}).state != SlabState::kAbsent) continue;
    if (making_.insert(SlabId{i}).second) effects_.make.push_back(SlabId{i});
  }
}

// Withdraws the highest slabs first, because every view can map the lowest
// ones. Keeps the slabs that floors and requests need in addition to the slabs
// of dead engines.
void PoolState::Shrink() {
  for (uint32_t i = slabs_.slab_count(), gone = 0;
       i-- > 0 && present_slabs() > wanted_slabs_ && gone < kResizeStep;) {
    if (Uncommitted(present_slabs(), nullptr) <= slabs_.promised_count()) {
      return;
    }
    if (!slabs_.Withdraw(SlabId{i})) continue;
    ++gone;
    effects_.drop.push_back(SlabId{i});
    ++counters_.slabs_withdrawn;
    // Every process that maps the slab must unmap it, or its memory stays in
    // use.
    for (const auto& [id, engine] : engines_) {
      if (engine.view && engine.view->state == ViewState::kActive) Touch(id);
    }
  }
}

void PoolState::Touch(EngineId id) {
  effects_.records.insert(id);
  effects_.views.insert(id);
}

// True if the slab was asked back longer ago than its return should take.
bool PoolState::IsLate(SlabId slab, uint64_t now_ns) const {
  return slabs_.word(slab).state == SlabState::kReturning &&
         now_ns - moved_ns_[Number(slab)] >= kPatienceNs;
}

PoolState::Usage PoolState::UsageOf(EngineId engine, uint64_t now_ns,
                                    const UsedBlocks& used) const {
  Usage usage;
  for (const SlabId slab : slabs_.SlabsHeldBy(engine)) {
    const SlabWord word = slabs_.word(slab);
    if (!abi::IsInView(word)) continue;
    const uint32_t blocks = used(engine, slab);
    usage.blocks += blocks;
    usage.idle += blocks == 0 && word.state == SlabState::kPartial &&
                  now_ns - moved_ns_[Number(slab)] >= kPatienceNs;
  }
  return usage;
}

// Lowers the claims of views that leave slabs unused and do not ask for more,
// while another view asks.
void PoolState::LimitToUse(Round* round, uint64_t now_ns,
                           const UsedBlocks& used) {
  if (!contended_) {
    // Here the use would change nothing, and computing it takes a look at each
    // slab.
    for (const EngineId id : round->ids) {
      View& view = *engines_[id].view;
      view.most = UINT32_MAX;
      view.used_then = UINT64_MAX;
    }
    return;
  }
  std::vector<Usage> usages;
  bool waiting = false;
  for (size_t i = 0; i < round->ids.size(); ++i) {
    View& view = *engines_[round->ids[i]].view;
    usages.push_back(UsageOf(round->ids[i], now_ns, used));
    if (usages[i].blocks > view.used_then) view.most = UINT32_MAX;
    const bool asks = now_ns - view.asked_ns < kPatienceNs;
    if (asks) usages[i].idle = 0;
    const Claim& claim = round->claims[i];
    waiting = waiting || (asks && claim.held < claim.wanted);
  }
  for (size_t i = 0; i < round->ids.size(); ++i) {
    View& view = *engines_[round->ids[i]].view;
    Claim& claim = round->claims[i];
    if (waiting && usages[i].idle > 0) {
      view.most = std::min(view.most, claim.held - usages[i].idle);
    }
    view.used_then = view.most == UINT32_MAX
                         ? usages[i].blocks
                         : std::min(view.used_then, usages[i].blocks);
    claim.wanted = std::min(claim.wanted, view.most);
  }
}

PoolState::Round PoolState::Claims(uint64_t now_ns, const UsedBlocks& used) {
  Round round;
  const uint32_t present = present_slabs();
  round.reserved = slabs_.promised_count() +
                   (present > wanted_slabs_ ? present - wanted_slabs_ : 0);
  uint32_t all = slabs_.free_count() + slabs_.zeroing_count() -
                 static_cast<uint32_t>(unfilled_.size());
  uint64_t demand = 0;
  for (const auto& [id, engine] : engines_) {
    if (!engine.view || engine.view->state != ViewState::kActive) continue;
    const View& view = *engine.view;
    const uint32_t held = slabs_.HeldBy(id).in_view;
    const uint32_t cap = CapOf(id);
    const uint32_t wanted = std::min(view.wanted, cap);
    round.ids.push_back(id);
    round.claims.push_back({view.floor, cap, wanted, held});
    all += held;
    demand += std::max(view.floor, wanted);
  }
  const uint32_t shared = all - std::min(all, round.reserved);
  uint32_t late = 0;
  for (const auto& [id, holding] : slabs_.Holdings()) {
    if (holding.returning == 0) continue;
    for (const SlabId slab : slabs_.SlabsHeldBy(id)) {
      late += IsLate(slab, now_ns);
    }
  }
  contended_ = demand + late > shared;
  LimitToUse(&round, now_ns, used);
  SetTargets(shared, late, &round);
  return round;
}

// Sets the views' targets. Slabs that are not late and that no view claims go
// to the views whose claims were lowered.
void PoolState::SetTargets(uint32_t shared, uint32_t late, Round* round) {
  round->targets = FairTargets(shared, round->claims);
  std::vector<Claim> more;
  uint32_t left = shared;
  for (size_t i = 0; i < round->ids.size(); ++i) {
    const View& view = *engines_[round->ids[i]].view;
    const uint32_t most = std::min(view.wanted, round->claims[i].cap);
    const uint32_t target = round->targets[i];
    const uint32_t lacks = most - std::min(most, target);
    more.push_back({/*floor=*/0, /*cap=*/lacks, /*wanted=*/lacks});
    left -= target;
  }
  const std::vector<uint32_t> parts =
      FairTargets(left - std::min(left, late), more);
  for (size_t i = 0; i < parts.size(); ++i) round->targets[i] += parts[i];
  SetOffers(shared, *round);
}

// Sets the offers to engines that span GPUs.
void PoolState::SetOffers(uint32_t shared, const Round& round) {
  for (size_t i = 0; i < round.ids.size(); ++i) {
    View& view = *engines_[round.ids[i]].view;
    if (!view.group) continue;
    std::vector<Claim> claims = round.claims;
    claims[i].wanted = claims[i].cap;
    const uint32_t offer = FairTargets(shared, claims)[i];
    if (std::exchange(view.offer, offer) != offer) Touch(round.ids[i]);
  }
}

// True if the engine wishes for the slab. Ignores the wishes of a process that
// has died since.
bool PoolState::WishesFor(EngineId engine, SlabId slab,
                          const Wished& wished) const {
  return wished && engines_.at(engine).view->runs_pool != 0 &&
         wished(engine, slab);
}

std::vector<bool> PoolState::WishesOf(EngineId engine,
                                      const Wished& wished) const {
  std::vector<bool> wishes(slabs_.slab_count(), false);
  for (uint32_t i = 0; i < wishes.size(); ++i) {
    wishes[i] = WishesFor(engine, SlabId{i}, wished);
  }
  return wishes;
}

// Leases a free slab that the engine's view can use, if there is one.
absl::optional<SlabId> PoolState::LeaseTo(EngineId id, const Wished& wished) {
  const View& view = *engines_[id].view;
  if (!view.group) return slabs_.LeaseForView(id, SlabId{view.slabs});
  for (uint32_t i = 0; i < view.slabs; ++i) {
    const SlabId slab{i};
    if (WishesFor(id, slab, wished) && slabs_.LeaseSlabForView(id, slab)) {
      return slab;
    }
  }
  return absl::nullopt;
}

// Leases the free slabs, except those set aside, to views below their targets.
void PoolState::Share(Round* round, uint64_t now_ns, const Wished& wished) {
  std::vector<bool> blocked(round->ids.size(), false);
  while (slabs_.free_count() > round->reserved) {
    const size_t i = NextToGrant(round->claims, round->targets, blocked);
    if (i == round->ids.size()) break;
    const EngineId id = round->ids[i];
    const auto slab = LeaseTo(id, wished);
    if (!slab) {
      blocked[i] = true;  // it can use none of the free slabs
      continue;
    }
    moved_ns_[Number(*slab)] = now_ns;
    ++counters_.leases_granted;
    ++round->claims[i].held;
    Touch(id);
  }
  for (size_t i = 0; i < round->ids.size(); ++i) {
    View& view = *engines_[round->ids[i]].view;
    if (!blocked[i] || !view.group) {
      view.unmatched_ns = 0;
    } else if (view.unmatched_ns == 0) {
      view.unmatched_ns = now_ns;
    }
    unmatched_ = unmatched_ || (view.unmatched_ns != 0 &&
                                now_ns - view.unmatched_ns >= kUnmatchedNs);
    if (std::exchange(view.target, round->targets[i]) != round->targets[i]) {
      Touch(round->ids[i]);
    }
  }
}

// Returns how many slabs each view can spare above its floor. A view whose
// asked-back slabs are late spares others in their place, unless it lacks slabs
// itself: otherwise two views that both want the whole pool would take slab
// after slab from each other until most slabs of both are closed. Even a view
// that lacks slabs spares others if some view cannot have its longest request.
std::vector<uint32_t> PoolState::Spare(
    const Round& round, uint64_t now_ns, const std::vector<uint32_t>& returning,
    const std::vector<uint32_t>& expected) const {
  bool urgent = false;
  for (size_t i = 0; i < round.ids.size(); ++i) {
    const Claim& claim = round.claims[i];
    const uint32_t open = Beyond(claim.held, returning[i]);
    urgent = urgent || (claim.held < round.targets[i] &&
                        open < std::max(claim.floor, 1u));
  }
  std::vector<uint32_t> spare;
  for (size_t i = 0; i < round.ids.size(); ++i) {
    const Claim& claim = round.claims[i];
    const uint32_t open = Beyond(claim.held, returning[i]);
    const uint64_t asked_ns = engines_.at(round.ids[i]).view->asked_ns;
    const bool lacks = now_ns - asked_ns < kPatienceNs && open < claim.wanted;
    const uint32_t leaving = lacks && !urgent ? returning[i] : expected[i];
    spare.push_back(std::min(Beyond(claim.held, round.targets[i] + leaving),
                             Beyond(open, claim.floor)));
  }
  return spare;
}

// Returns the needs of the views below their targets, and the need for slabs
// that are set aside.
std::vector<Need> PoolState::Needs(const Round& round,
                                   const Wished& wished) const {
  std::vector<Need> needs;
  for (size_t i = 0; i < round.ids.size(); ++i) {
    const Claim& claim = round.claims[i];
    if (claim.held >= round.targets[i]) continue;
    const View& view = *engines_.at(round.ids[i]).view;
    needs.push_back({SlabId{view.slabs}, round.targets[i] - claim.held});
    if (!view.group) continue;
    const SlabManager::Holding held = slabs_.HeldBy(round.ids[i]);
    needs.back().wished = WishesOf(round.ids[i], wished);
    needs.back().open = held.in_view - held.returning;
  }
  if (round.reserved > slabs_.free_count()) {
    needs.push_back(
        {SlabId{slabs_.slab_count()}, round.reserved - slabs_.free_count()});
  }
  return needs;
}

// Asks back the slabs that views below their targets need, and the slabs that
// are missing from the free ones that are set aside.
void PoolState::AskBack(const Round& round, uint64_t now_ns,
                        const UsedBlocks& used, const Wished& wished) {
  std::vector<Need> needs = Needs(round, wished);
  if (needs.empty()) return;
  std::vector<SlabId> coming;
  for (uint32_t i = 0; slabs_.zeroing_count() > 0 && i < slabs_.slab_count();
       ++i) {
    const bool fills = slabs_.word(SlabId{i}).state == SlabState::kZeroing;
    if (fills && unfilled_.count(SlabId{i}) == 0) coming.push_back(SlabId{i});
  }
  std::vector<Candidate> candidates;
  // For each claim, the slabs that were asked back, and how many of them are
  // not late yet.
  std::vector<uint32_t> returning(round.ids.size(), 0);
  std::vector<uint32_t> expected(round.ids.size(), 0);
  for (size_t c = 0; c < round.ids.size(); ++c) {
    for (const SlabId slab : slabs_.SlabsHeldBy(round.ids[c])) {
      const SlabState state = slabs_.word(slab).state;
      if (state == SlabState::kPartial) {
        candidates.push_back({slab, used(round.ids[c], slab), c});
      } else if (state == SlabState::kReturning) {
        ++returning[c];
        if (IsLate(slab, now_ns)) continue;
        ++expected[c];
        coming.push_back(slab);
      }
    }
  }
  const std::vector<uint32_t> spare = Spare(round, now_ns, returning, expected);
  std::vector<Giver> givers;
  for (size_t i = 0; i < round.ids.size(); ++i) {
    const Claim& claim = round.claims[i];
    givers.push_back({spare[i], claim.held - returning[i], claim.floor});
  }
  for (SlabId slab : ChooseAskBacks(std::move(needs), std::move(coming),
                                    std::move(candidates), givers)) {
    AskBack(slab, now_ns);
  }
}

void PoolState::AskBack(SlabId slab, uint64_t now_ns) {
  Touch(EngineId{slabs_.word(slab).engine});
  slabs_.AskBack(slab);
  moved_ns_[Number(slab)] = now_ns;
  ++counters_.slabs_asked_back;
}

std::map<EngineId, PoolState::Prospect> PoolState::Prospects(
    const std::map<EngineId, uint64_t>& promised_tokens) const {
  std::map<EngineId, Prospect> prospects;
  std::vector<Claim> claims;
  uint32_t all = slabs_.free_count() + slabs_.zeroing_count();
  for (const auto& [id, engine] : engines_) {
    if (!engine.view || engine.view->state != ViewState::kActive) continue;
    const View& view = *engine.view;
    const uint64_t slab_tokens =
        view.layout.LeastBlocks() * view.layout.format().block_tokens;
    const uint32_t held = slabs_.HeldBy(id).in_view;
    const uint32_t cap = CapOf(id);
    prospects[id] = {0, cap, held, slab_tokens};
    const auto promised = promised_tokens.find(id);
    const uint64_t needed = promised == promised_tokens.end()
                                ? 0
                                : DivideUp(promised->second, slab_tokens);
    claims.push_back({view.floor, cap,
                      static_cast<uint32_t>(std::max<uint64_t>(
                          view.wanted, std::min<uint64_t>(needed, cap))),
                      0});
    all += held;
  }
  size_t i = 0;
  for (auto& [id, prospect] : prospects) {
    const uint32_t wanted = std::exchange(claims[i].wanted, claims[i].cap);
    prospect.slabs = FairTargets(all, claims)[i];
    claims[i++].wanted = wanted;
  }
  return prospects;
}

}  // namespace fineserve::slab
