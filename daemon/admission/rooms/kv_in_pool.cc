#include "daemon/admission/rooms/kv_in_pool.h"

#include <algorithm>
#include <map>

#include "absl/types/optional.h"
#include "kernels/driver/rounding.h"

namespace fineserve::admission {

using slab::EngineId;

std::vector<EngineKv> KvInPool(const slab::PoolState& pool, uid_t uid,
                               const std::vector<EngineNeed>& needs,
                               UsedTokens used_tokens) {
  std::vector<absl::optional<EngineId>> ids;
  std::map<EngineId, uint64_t> promised, wanted;
  for (const EngineNeed& need : needs) {
    ids.push_back(pool.Find(need.name, uid));
    if (!ids.back()) continue;
    promised[*ids.back()] = need.promised_tokens;
    wanted[*ids.back()] = need.wanted_tokens;
  }
  const auto shares = pool.Prospects(wanted);
  // An engine that runs nothing does not leave others the share that they wait
  // for: a prompt longer than its own share would never start.
  const auto first_shares = pool.Prospects(promised);
  const auto promised_slabs = [&](EngineId id) -> uint64_t {
    const uint64_t slab_tokens = shares.at(id).slab_tokens;
    return DivideUp(promised[id], slab_tokens);
  };
  // Of the slabs that views may have, those that no engine was promised.
  const slab::SlabManager& slabs = pool.slabs();
  uint64_t left = slabs.free_count() + slabs.zeroing_count();
  for (const auto& [id, share] : shares) left += slabs.HeldBy(id).in_view;
  for (const auto& [id, share] : shares) {
    left -= std::min(left, promised_slabs(id));
  }
  std::vector<EngineKv> all;
  for (const absl::optional<EngineId>& id : ids) {
    EngineKv& kv = all.emplace_back();
    if (!id) continue;
    kv.leased_bytes = slabs.HeldBy(*id).slabs * pool.geometry().slab_bytes();
    if (shares.count(*id) == 0) continue;
    const slab::PoolState::Prospect& p =
        (promised[*id] == 0 ? first_shares : shares).at(*id);
    const uint64_t sure =
        std::min<uint64_t>(p.slabs, left + promised_slabs(*id));
    kv.view = {sure * p.slab_tokens, p.cap * p.slab_tokens,
               used_tokens(*id, p.leased)};
  }
  return all;
}

}  // namespace fineserve::admission
