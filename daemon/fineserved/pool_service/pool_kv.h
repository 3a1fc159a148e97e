#ifndef DAEMON_FINESERVED_POOL_SERVICE_POOL_KV_H_
#define DAEMON_FINESERVED_POOL_SERVICE_POOL_KV_H_

#include <cstdint>
#include <map>
#include <vector>

#include "daemon/fineserved/admission/rooms/engine_kv.h"
#include "daemon/pool/slab_ids.h"
#include "daemon/pool/table_writer.h"

namespace fineserve::server {

class PoolService;

// Returns the pool's figures about these engines' KV (admission::AskPool). An
// engine is known by its name and this daemon's user.
std::vector<admission::EngineKv> KvInPool(
    const PoolService& pool, const std::vector<admission::EngineNeed>& needs);

// Returns the blocks that admission could count on here for each engine that
// spans GPUs (admission::SureOfGroups).
std::map<slab::EngineId, slab::SureBlocks> SureOfGroups(
    const PoolService& pool, const std::vector<admission::EngineNeed>& needs);

// True if the engine's view has a block in use, as the engine says.
bool UsesKv(const PoolService& pool, slab::EngineId engine);

// PoolBytes returns the bytes of the device's memory that the pool has or will
// grow to; LeasedBytes, those of them that engines hold, including dead
// engines.
uint64_t PoolBytes(const PoolService& pool);
uint64_t LeasedBytes(const PoolService& pool);

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_POOL_SERVICE_POOL_KV_H_
