#ifndef DAEMON_ADMISSION_ROOMS_KV_IN_POOL_H_
#define DAEMON_ADMISSION_ROOMS_KV_IN_POOL_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/admission/rooms/engine_kv.h"
#include "daemon/slab/pool_state.h"

namespace fineserve::admission {

// Tokens in blocks that are in use in an engine's view, as the engine says; no
// more than `most_slabs` of its slabs hold.
using UsedTokens =
    absl::FunctionRef<uint64_t(slab::EngineId, uint32_t most_slabs)>;

// What a pool's machine says of these engines' KV (AskPool). An engine is known
// by its name and by `uid`. Pure.
std::vector<EngineKv> KvInPool(const slab::PoolState& pool, uid_t uid,
                               const std::vector<EngineNeed>& needs,
                               UsedTokens used_tokens);

}  // namespace fineserve::admission

#endif  // DAEMON_ADMISSION_ROOMS_KV_IN_POOL_H_
