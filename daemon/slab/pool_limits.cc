// The part of PoolState that limits what engines hold.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/slab/beyond.h"
#include "daemon/slab/pool_state.h"

namespace fineserve::slab {
absl::Status PoolState::SetLimit(EngineId id, uint32_t slabs) {
  const auto found = engines_.find(id);
  if (found == engines_.end() ||
      found->second.state != abi::EngineState::kAlive) {
    return absl::NotFoundError(
        absl::StrCat("there is no living engine ", Number(id)));
  }
  Engine& engine = found->second;
  const uint32_t floor = engine.view ? engine.view->floor : 0;
  if (slabs != 0 && slabs < floor) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine ", engine.name, " has a floor of ", floor,
        " slabs, which are its own at all times; its limit can be ", floor,
        " slabs at least, not ", slabs));
  }
  engine.limit = slabs;
  effects_.records.insert(id);
  Note(id, slabs == 0 ? "no limit any more"
                      : absl::StrCat("limited to ", slabs, " slabs"));
  if (slabs == 0) return absl::OkStatus();
  const uint32_t room = WholeRoom(id);
  for (const auto& request : slabs_.TakeBeyond(id, room)) {
    Refuse(request, room, /*late=*/false, slabs);
  }
  GrantWaiting();
  return absl::OkStatus();
}

// Limit on the engine's whole slabs, those included that it waits for.
uint32_t PoolState::WholeRoom(EngineId id) const {
  const Engine& engine = engines_.at(id);
  if (engine.limit == 0) return UINT32_MAX;
  const SlabManager::Holding held = slabs_.HeldBy(id);
  const uint32_t floor = engine.view ? engine.view->floor : 0;
  const uint32_t in_view = std::max(held.in_view, floor);
  return Beyond(engine.limit, held.slabs - held.in_view + in_view);
}

uint32_t PoolState::CapOf(EngineId id) const {
  const Engine& engine = engines_.at(id);
  const View& view = *engine.view;
  if (engine.limit == 0) return view.cap;
  const SlabManager::Holding held = slabs_.HeldBy(id);
  const uint32_t left = Beyond(engine.limit, held.slabs - held.in_view);
  return std::min(view.cap, std::max(view.floor, left));
}

// A view that is registered after its engine was limited must have room.
absl::Status PoolState::CheckLimit(EngineId id, const View& view) const {
  const Engine& engine = engines_.at(id);
  if (engine.limit == 0 || view.floor <= engine.limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "its floor of ", view.floor, " slabs is more than the limit of ",
      engine.limit, " slabs that its operator has set; fsctl limit ",
      engine.name, " none takes that away"));
}

// Asks views back what they hold above their limits, even if no engine needs
// it. First the slabs with the fewest blocks in use, which drain soonest. Late
// slabs are not replaced by others, as in AskBack: no engine waits for these.
void PoolState::AskBackAboveLimits(const Round& round, uint64_t now_ns,
                                   const UsedBlocks& used) {
  for (size_t i = 0; i < round.ids.size(); ++i) {
    const EngineId id = round.ids[i];
    const SlabManager::Holding held = slabs_.HeldBy(id);
    uint32_t above = Beyond(held.in_view - held.returning, round.claims[i].cap);
    if (engines_.at(id).limit == 0 || above == 0) continue;
    std::vector<Candidate> candidates;
    for (const auto& [slab, lease] : slabs_.InView(id)) {
      if (slabs_.word(slab).state != abi::SlabState::kPartial) continue;
      candidates.push_back({slab, used(id, slab), i});
    }
    for (SlabId slab : ChooseAskBacks(
             {{SlabId{slabs_.slab_count()}, above}}, {}, std::move(candidates),
             std::vector<Giver>(round.ids.size(), Giver{above}))) {
      AskBack(slab, now_ns);
    }
  }
}

}  // namespace fineserve::slab
