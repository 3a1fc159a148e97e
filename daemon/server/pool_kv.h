#ifndef DAEMON_SERVER_POOL_KV_H_
#define DAEMON_SERVER_POOL_KV_H_

#include <cstdint>
#include <vector>

#include "daemon/admission/rooms/engine_kv.h"

namespace fineserve::server {

class PoolService;

// What the pool says of these engines' KV (admission::AskPool). An engine is
// known by its name and this daemon's user.
std::vector<admission::EngineKv> KvInPool(
    const PoolService& pool, const std::vector<admission::EngineNeed>& needs);

// Of the device's memory: what the pool has, or is to grow to, and what of it
// engines hold, dead ones too.
uint64_t PoolBytes(const PoolService& pool);
uint64_t LeasedBytes(const PoolService& pool);

}  // namespace fineserve::server

#endif  // DAEMON_SERVER_POOL_KV_H_
