#include "daemon/server/pool_kv.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "absl/types/optional.h"
#include "daemon/server/pool_service.h"
#include "kernels/driver/rounding.h"

namespace fineserve::server {

using admission::EngineKv;
using admission::EngineNeed;
using slab::EngineId;

std::vector<EngineKv> KvInPool(const PoolService& pool,
                               const std::vector<EngineNeed>& needs) {
  std::vector<absl::optional<EngineId>> ids;
  std::map<EngineId, uint64_t> promised, wanted;
  for (const EngineNeed& need : needs) {
    ids.push_back(pool.state().Find(need.name, geteuid()));
    if (!ids.back()) continue;
    promised[*ids.back()] = need.promised_tokens;
    wanted[*ids.back()] = need.wanted_tokens;
  }
  const auto shares = pool.state().Prospects(wanted);
  // An engine that runs nothing does not leave others the share that they wait
  // for: a prompt longer than its own share would never start.
  const auto first_shares = pool.state().Prospects(promised);
  const auto promised_slabs = [&](EngineId id) -> uint64_t {
    const uint64_t slab_tokens = shares.at(id).slab_tokens;
    return DivideUp(promised[id], slab_tokens);
  };
  // Of the slabs that views may have, those that no engine was promised.
  uint64_t left = pool.slabs().free_count() + pool.slabs().zeroing_count();
  for (const auto& [id, share] : shares) {
    left += pool.slabs().HeldBy(id).in_view;
  }
  for (const auto& [id, share] : shares) {
    left -= std::min(left, promised_slabs(id));
  }
  std::vector<EngineKv> all;
  for (const absl::optional<EngineId>& id : ids) {
    EngineKv& kv = all.emplace_back();
    if (!id) continue;
    kv.leased_bytes = pool.slabs().HeldBy(*id).slabs * pool.slab_bytes();
    if (shares.count(*id) == 0) continue;
    const slab::PoolState::Prospect& p =
        (promised[*id] == 0 ? first_shares : shares).at(*id);
    const uint64_t sure =
        std::min<uint64_t>(p.slabs, left + promised_slabs(*id));
    kv.view = {sure * p.slab_tokens, p.cap * p.slab_tokens,
               pool.UsedTokens(*id, p.leased)};
  }
  return all;
}

}  // namespace fineserve::server
