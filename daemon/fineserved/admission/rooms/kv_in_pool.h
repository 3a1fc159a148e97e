#ifndef DAEMON_FINESERVED_ADMISSION_ROOMS_KV_IN_POOL_H_
#define DAEMON_FINESERVED_ADMISSION_ROOMS_KV_IN_POOL_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/fineserved/admission/rooms/engine_kv.h"
#include "daemon/pool/pool_state.h"

namespace fineserve::admission {

// Blocks of a slab that are in use in the engine's view, as the engine says.
using UsedBlocks = absl::FunctionRef<uint32_t(slab::EngineId, slab::SlabId)>;

// Returns the KV of these engines by the state of a pool's machine (AskPool).
// An engine is known by its name and by `uid`. Slabs with another engine's
// blocks are not counted, promised or not, since they come at an unknown time,
// when the blocks are freed. Only an engine that runs nothing may count on
// them. Pure; looks at every slab that is leased.
std::vector<EngineKv> KvInPool(const slab::PoolState& pool, uid_t uid,
                               const std::vector<EngineNeed>& needs,
                               UsedBlocks used_blocks);

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_ROOMS_KV_IN_POOL_H_
