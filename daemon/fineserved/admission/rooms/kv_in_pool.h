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

// Returns how many blocks of a slab are in use in the engine's view, as the
// engine reports it.
using UsedBlocks = absl::FunctionRef<uint32_t(slab::EngineId, slab::SlabId)>;

// Returns the KV of these engines according to the state of a pool's machine
// (AskPool). An engine is known by its name and by `uid`. A slab with another
// engine's blocks is not counted, promised or not, since it becomes free at an
// unknown time, when those blocks are freed. Only an engine that runs nothing
// may count on such slabs. Pure; looks at every leased slab.
std::vector<EngineKv> KvInPool(const slab::PoolState& pool, uid_t uid,
                               const std::vector<EngineNeed>& needs,
                               UsedBlocks used_blocks);

// Returns the blocks that admission could count on for each engine that spans
// GPUs, given what the engines of `needs` were promised here. The daemon that
// admits the engine's requests needs this number. Pure.
std::map<slab::EngineId, slab::SureBlocks> SureOfGroups(
    const slab::PoolState& pool, uid_t uid,
    const std::vector<EngineNeed>& needs, UsedBlocks used_blocks);

// Lowers the room of an engine that spans GPUs to the KV that it reports it can
// be sure of on all of them, and can ever have there. The report comes from the
// engine alone, so it can only lower the room.
void LimitToGroup(uint64_t sure_blocks, uint64_t most_blocks,
                  EngineKv::View* view);

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_ROOMS_KV_IN_POOL_H_
