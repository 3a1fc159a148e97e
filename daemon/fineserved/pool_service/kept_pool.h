#ifndef DAEMON_FINESERVED_POOL_SERVICE_KEPT_POOL_H_
#define DAEMON_FINESERVED_POOL_SERVICE_KEPT_POOL_H_

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

// The pool of a daemon that has ended, reconstructed from what that daemon
// stored (design note 0029).
struct KeptPool {
  driver::Descriptor table;  // to be written
  abi::TableSnapshot state;  // what the table says
  backing::CudaBacking::Granules granules;
  std::map<slab::EngineId, driver::Descriptor> scoreboards;  // of views
  driver::Descriptor listener;  // where engines wait for the next daemon
  // True if only waiting engines are left: the GPU has lost the memory, so the
  // pool will be new.
  bool is_lost = false;
};

// Names under which a daemon stores its pool. The table is stored last: without
// it the pool was never served, and the rest is forgotten.
inline constexpr char kTableName[] = "table";
inline constexpr char kListenerName[] = "listener";
std::string GranuleName(uint32_t granule);
std::string ScoreboardName(slab::EngineId engine);

// Returns nullopt if no daemon has served a pool before. If this program cannot
// continue with a served pool, returns an error with the remedy, and leaves the
// pool's memory as it is.
absl::StatusOr<absl::optional<KeptPool>> FindKeptPool(
    holder::DescriptorStore::Named named);

// Checks that another daemon could continue with this pool now. Tries several
// times, since the pool's own daemon still serves and may be in the middle of a
// change.
absl::Status CheckTakeover(const KeptPool& kept);

// Returns the living members of the pool's engines, as "engine a (pid 4711),
// …"; empty if there are none.
std::string LivingMembers(const abi::TableSnapshot& state);

// Drops everything that the parent and this process keep of the pool except the
// listener. The pool's memory is lost.
void Forget(KeptPool* kept);

slab::TableIdentity IdentityOf(const abi::TableSnapshot& state);

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_POOL_SERVICE_KEPT_POOL_H_
