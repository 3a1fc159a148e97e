#ifndef DAEMON_FINESERVED_ADMISSION_ROOMS_KV_IN_POOL_H_
#define DAEMON_FINESERVED_ADMISSION_ROOMS_KV_IN_POOL_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/fineserved/admission/rooms/engine_kv.h"
#include "daemon/pool/pool_state.h"
#include "daemon/pool/table_writer.h"

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

// Returns the blocks that admission could count on for each engine that spans
// GPUs, beside what the engines of `needs` were promised here: another daemon
// admits its requests, and has to know. Pure.
std::map<slab::EngineId, slab::SureBlocks> SureOfGroups(
    const slab::PoolState& pool, uid_t uid,
    const std::vector<EngineNeed>& needs, UsedBlocks used_blocks);

// Lowers the room of an engine that spans GPUs to what it says that it can be
// sure of on all of them, and can ever have there. It says so of itself alone,
// so a room never grows by it.
void LimitToGroup(uint64_t sure_blocks, uint64_t most_blocks,
                  EngineKv::View* view);

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_ROOMS_KV_IN_POOL_H_
