#include "daemon/server/pool_kv.h"

#include <unistd.h>

#include <map>

#include "absl/types/optional.h"
#include "daemon/server/pool_service.h"

namespace fineserve::server {

using admission::EngineKv;
using admission::EngineNeed;
using slab::EngineId;

std::vector<EngineKv> KvInPool(const PoolService& pool,
                               const std::vector<EngineNeed>& needs) {
  std::vector<absl::optional<EngineId>> ids;
  std::map<EngineId, uint64_t> promised;
  for (const EngineNeed& need : needs) {
    ids.push_back(pool.state().Find(need.name, geteuid()));
    if (ids.back()) promised[*ids.back()] = need.promised_tokens;
  }
  const auto prospects = pool.state().Prospects(promised);
  std::vector<EngineKv> all;
  for (const absl::optional<EngineId>& id : ids) {
    EngineKv& kv = all.emplace_back();
    if (!id) continue;
    kv.leased_bytes = pool.slabs().HeldBy(*id).slabs * pool.slab_bytes();
    const auto view = prospects.find(*id);
    if (view == prospects.end()) continue;
    const slab::PoolState::Prospect& p = view->second;
    kv.view = {p.slabs * p.slab_tokens, p.cap * p.slab_tokens,
               pool.UsedTokens(*id, p.leased)};
  }
  return all;
}

}  // namespace fineserve::server
