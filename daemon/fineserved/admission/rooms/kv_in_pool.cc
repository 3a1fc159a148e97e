#include "daemon/fineserved/admission/rooms/kv_in_pool.h"

#include <algorithm>
#include <map>

#include "absl/types/optional.h"
#include "kernels/driver/rounding.h"

namespace fineserve::admission {
namespace {

using slab::EngineId;
using slab::PoolState;
using slab::SlabId;

// An engine's used blocks in its view, and the slabs that it is owed.
struct Stake {
  uint32_t slab_blocks = 0;
  uint32_t block_tokens = 0;
  uint64_t promised_slabs = 0;
  uint64_t used_blocks = 0;
  uint64_t occupied_slabs = 0;  // with a block in use
  // Unused blocks of slabs that were asked back. They cannot be filled.
  uint64_t closed_blocks = 0;

  // Slabs that no other engine can count on.
  uint64_t slabs() const { return std::max(promised_slabs, occupied_slabs); }
  // Blocks of `slabs`, of which the engine can fill all but the closed ones.
  uint64_t BlocksOf(uint64_t slabs) const {
    const uint64_t blocks = slabs * slab_blocks;
    return blocks - std::min(blocks, closed_blocks);
  }
  uint64_t TokensOf(uint64_t slabs) const {
    return BlocksOf(slabs) * block_tokens;
  }
};
using Stakes = std::map<EngineId, Stake>;  // of the engines with a view

Stakes StakesOf(const PoolState& pool,
                const std::map<EngineId, PoolState::Prospect>& shares,
                const std::map<EngineId, uint64_t>& promised) {
  Stakes stakes;
  for (const auto& [id, share] : shares) {
    Stake& stake = stakes[id];
    stake.slab_blocks = pool.Layout(id).LeastBlocks();
    stake.block_tokens = pool.Layout(id).format().block_tokens;
    const auto need = promised.find(id);
    if (need == promised.end()) continue;
    stake.promised_slabs = DivideUp(need->second, share.slab_tokens);
  }
  return stakes;
}

void CountBlocks(const slab::SlabManager& slabs, UsedBlocks used_blocks,
                 Stakes* stakes) {
  for (auto& [holder, s] : *stakes) {
    for (const SlabId slab : slabs.SlabsHeldBy(holder)) {
      const abi::SlabState state = slabs.word(slab).state;
      const bool returning = state == abi::SlabState::kReturning;
      if (!returning && state != abi::SlabState::kPartial) continue;
      // The engine may report any number, so it is capped.
      const uint32_t used = std::min(used_blocks(holder, slab), s.slab_blocks);
      s.used_blocks += used;
      s.occupied_slabs += used > 0;
      if (returning) s.closed_blocks += s.slab_blocks - used;
    }
  }
}

// Slabs that views may have and that no engine can claim.
struct Left {
  uint64_t unpromised = 0;  // they may still have used blocks
  uint64_t free = 0;        // no engine has a stake in them
};

Left LeftBeside(const slab::SlabManager& slabs, const Stakes& stakes) {
  uint64_t all = slabs.free_count() + slabs.zeroing_count();
  for (const auto& [id, stake] : stakes) all += slabs.HeldBy(id).in_view;
  Left left{all, all};
  for (const auto& [id, stake] : stakes) {
    left.unpromised -= std::min(left.unpromised, stake.promised_slabs);
    left.free -= std::min(left.free, stake.slabs());
  }
  return left;
}

uint64_t TokenBytes(const PoolState& pool, EngineId engine) {
  const slab::Format& format = pool.Layout(engine).format();
  return format.block_bytes() / std::max(format.block_tokens, 1u);
}

// Returns the view of a sleeper, which can be sure of nothing until it wakes
// up.
EngineKv::View Sleeper(const PoolState& pool, EngineId engine) {
  const slab::SlabLayout& layout = pool.Layout(engine);
  const uint32_t block_tokens = layout.format().block_tokens;
  const abi::ViewRecord view = pool.Record(engine).view;
  return {0,          pool.CapOf(engine) * layout.LeastBlocks() * block_tokens,
          0,          TokenBytes(pool, engine),
          view.shape, block_tokens};
}

// The pool as it is now, and the slabs that each engine was promised or uses.
class Shares {
 public:
  Shares(const PoolState& pool, uid_t uid, const std::vector<EngineNeed>& needs,
         UsedBlocks used_blocks);

  // The ids, one for each need, in the same order.
  const std::vector<absl::optional<EngineId>>& ids() const { return ids_; }
  const Stakes& stakes() const { return stakes_; }
  uint64_t SureSlabs(EngineId engine, bool runs_nothing) const;
  const PoolState::Prospect& share(EngineId engine) const {
    return shares_.at(engine);
  }

 private:
  std::vector<absl::optional<EngineId>> ids_;
  std::map<EngineId, PoolState::Prospect> shares_;
  // An engine that runs nothing may count on slabs that others wait for or
  // still use, since the pool asks for those slabs once the engine runs
  // something. Otherwise a prompt longer than the KV that the engine holds
  // would never start.
  std::map<EngineId, PoolState::Prospect> first_shares_;
  Stakes stakes_;
  Left left_;
};

Shares::Shares(const PoolState& pool, uid_t uid,
               const std::vector<EngineNeed>& needs, UsedBlocks used_blocks) {
  std::map<EngineId, uint64_t> promised, wanted;
  for (const EngineNeed& need : needs) {
    ids_.push_back(pool.Find(need.name, uid));
    if (!ids_.back()) continue;
    promised[*ids_.back()] = need.promised_tokens;
    wanted[*ids_.back()] = need.wanted_tokens;
  }
  shares_ = pool.Prospects(wanted);
  first_shares_ = pool.Prospects(promised);
  stakes_ = StakesOf(pool, shares_, promised);
  CountBlocks(pool.slabs(), used_blocks, &stakes_);
  left_ = LeftBeside(pool.slabs(), stakes_);
}

uint64_t Shares::SureSlabs(EngineId engine, bool runs_nothing) const {
  const uint64_t share =
      (runs_nothing ? first_shares_ : shares_).at(engine).slabs;
  return std::min(share, runs_nothing
                             ? left_.unpromised
                             : left_.free + stakes_.at(engine).slabs());
}

}  // namespace

std::vector<EngineKv> KvInPool(const PoolState& pool, uid_t uid,
                               const std::vector<EngineNeed>& needs,
                               UsedBlocks used_blocks) {
  const Shares shares(pool, uid, needs, used_blocks);
  std::vector<EngineKv> all;
  for (size_t i = 0; i < needs.size(); ++i) {
    EngineKv& kv = all.emplace_back();
    const absl::optional<EngineId>& id = shares.ids()[i];
    if (!id) continue;
    kv.leased_bytes =
        pool.slabs().HeldBy(*id).slabs * pool.geometry().slab_bytes();
    const auto found = shares.stakes().find(*id);
    if (found == shares.stakes().end()) {
      if (pool.IsSuspended(*id)) kv.view = Sleeper(pool, *id);
      continue;
    }
    const Stake& stake = found->second;
    const PoolState::Prospect& share = shares.share(*id);
    const uint64_t sure = shares.SureSlabs(*id, needs[i].promised_tokens == 0);
    kv.view = {stake.TokensOf(sure),
               share.cap * share.slab_tokens,
               stake.used_blocks * stake.block_tokens,
               TokenBytes(pool, *id),
               pool.Shape(*id),
               stake.block_tokens};
  }
  return all;
}

std::map<EngineId, slab::SureBlocks> SureOfGroups(
    const PoolState& pool, uid_t uid, const std::vector<EngineNeed>& needs,
    UsedBlocks used_blocks) {
  std::map<EngineId, slab::SureBlocks> sure;
  const std::vector<EngineId> groups = pool.Groups();
  if (groups.empty()) return sure;
  const Shares shares(pool, uid, needs, used_blocks);
  for (const EngineId id : groups) {
    const Stake& stake = shares.stakes().at(id);
    const auto blocks = [&](bool runs_nothing) {
      return stake.BlocksOf(shares.SureSlabs(id, runs_nothing));
    };
    sure[id] = {blocks(/*runs_nothing=*/false), blocks(/*runs_nothing=*/true)};
  }
  return sure;
}

void LimitToGroup(uint64_t sure_blocks, uint64_t most_blocks,
                  EngineKv::View* view) {
  if (most_blocks == 0) return;  // it does not say
  const auto tokens = [view](uint64_t blocks) {
    return std::min<uint64_t>(blocks, UINT32_MAX) * view->block_tokens;
  };
  view->tokens = std::min(view->tokens, tokens(sure_blocks));
  view->most_tokens = std::min(view->most_tokens, tokens(most_blocks));
}

}  // namespace fineserve::admission
