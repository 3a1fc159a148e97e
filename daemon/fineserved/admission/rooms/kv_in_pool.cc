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
  // Unused blocks of slabs that were asked back: nothing new goes into them.
  uint64_t closed_blocks = 0;

  // Slabs that no other engine can count on.
  uint64_t slabs() const { return std::max(promised_slabs, occupied_slabs); }
  // Tokens in `slabs`, of which the engine can fill all but the closed blocks.
  uint64_t TokensOf(uint64_t slabs) const {
    const uint64_t blocks = slabs * slab_blocks;
    return (blocks - std::min(blocks, closed_blocks)) * block_tokens;
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
      // The engine may report any number.
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

// A sleeper can be sure of nothing until it wakes up.
EngineKv::View Sleeper(const PoolState& pool, EngineId engine) {
  const slab::SlabLayout& layout = pool.Layout(engine);
  const uint32_t block_tokens = layout.format().block_tokens;
  const abi::ViewRecord view = pool.Record(engine).view;
  return {0,          pool.CapOf(engine) * layout.LeastBlocks() * block_tokens,
          0,          TokenBytes(pool, engine),
          view.shape, block_tokens};
}

}  // namespace

std::vector<EngineKv> KvInPool(const PoolState& pool, uid_t uid,
                               const std::vector<EngineNeed>& needs,
                               UsedBlocks used_blocks) {
  std::vector<absl::optional<EngineId>> ids;
  std::map<EngineId, uint64_t> promised, wanted;
  for (const EngineNeed& need : needs) {
    ids.push_back(pool.Find(need.name, uid));
    if (!ids.back()) continue;
    promised[*ids.back()] = need.promised_tokens;
    wanted[*ids.back()] = need.wanted_tokens;
  }
  const auto shares = pool.Prospects(wanted);
  // An engine that runs nothing may count on slabs that others wait for or
  // still use, since the pool asks for them once it runs something. Otherwise a
  // prompt longer than the KV that the engine holds would never start.
  const auto first_shares = pool.Prospects(promised);
  Stakes stakes = StakesOf(pool, shares, promised);
  CountBlocks(pool.slabs(), used_blocks, &stakes);
  const Left left = LeftBeside(pool.slabs(), stakes);
  std::vector<EngineKv> all;
  for (const absl::optional<EngineId>& id : ids) {
    EngineKv& kv = all.emplace_back();
    if (!id) continue;
    kv.leased_bytes =
        pool.slabs().HeldBy(*id).slabs * pool.geometry().slab_bytes();
    const auto found = stakes.find(*id);
    if (found == stakes.end()) {
      if (pool.IsSuspended(*id)) kv.view = Sleeper(pool, *id);
      continue;
    }
    const Stake& stake = found->second;
    const bool idle = promised[*id] == 0;
    const PoolState::Prospect& p = (idle ? first_shares : shares).at(*id);
    const uint64_t reach = idle ? left.unpromised : left.free + stake.slabs();
    const uint64_t sure = std::min<uint64_t>(p.slabs, reach);
    kv.view = {stake.TokensOf(sure),
               p.cap * p.slab_tokens,
               stake.used_blocks * stake.block_tokens,
               TokenBytes(pool, *id),
               pool.Shape(*id),
               stake.block_tokens};
  }
  return all;
}

}  // namespace fineserve::admission
