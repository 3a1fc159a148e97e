#ifndef DAEMON_FINESERVED_SERVER_KEPT_POOL_H_
#define DAEMON_FINESERVED_SERVER_KEPT_POOL_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/base/descriptor_store.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/fineserved/backing/cuda_backing.h"
#include "daemon/pool/slab_ids.h"
#include "daemon/pool/table_writer.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::server {

// The pool of a daemon that has ended, out of what that daemon has stored
// (design note 0029).
struct KeptPool {
  driver::Descriptor table;  // to be written
  abi::TableSnapshot state;  // what the table says
  backing::CudaBacking::Granules granules;
  std::map<slab::EngineId, driver::Descriptor> scoreboards;  // of views
  driver::Descriptor listener;  // where engines wait for the next daemon
  // Only they are left: the GPU has lost the memory, and the pool is new.
  bool is_lost = false;
};

// Under which names a daemon stores its pool. The table comes last: without it
// the pool was never served, and what else there is is forgotten.
inline constexpr char kTableName[] = "table";
inline constexpr char kListenerName[] = "listener";
std::string GranuleName(uint32_t granule);
std::string ScoreboardName(slab::EngineId engine);

// None if no daemon has served a pool before. An error, which says what to do,
// if one has and this program cannot go on with it: its memory stays as it is.
absl::StatusOr<absl::optional<KeptPool>> FindKeptPool(
    holder::DescriptorStore::Named named);

// Checks that a daemon could go on with this pool now, though its own still
// serves and may be in the middle of a change: tries several times.
absl::Status CheckTakeover(const KeptPool& kept);

// The members of its engines that live, as "engine a (pid 4711), …"; empty if
// none does.
std::string LivingMembers(const abi::TableSnapshot& state);

// Drops what the parent and this process keep of the pool, whose memory is
// lost, but for the listener.
void Forget(KeptPool* kept);

slab::TableIdentity IdentityOf(const abi::TableSnapshot& state);

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_SERVER_KEPT_POOL_H_
