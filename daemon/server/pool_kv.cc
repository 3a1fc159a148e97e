#include "daemon/server/pool_kv.h"

#include <unistd.h>

#include "daemon/admission/rooms/kv_in_pool.h"
#include "daemon/server/pool_service.h"

namespace fineserve::server {

std::vector<admission::EngineKv> KvInPool(
    const PoolService& pool, const std::vector<admission::EngineNeed>& needs) {
  return admission::KvInPool(pool.state(), geteuid(), needs,
                             [&](slab::EngineId engine, uint32_t most_slabs) {
                               return pool.UsedTokens(engine, most_slabs);
                             });
}

}  // namespace fineserve::server
