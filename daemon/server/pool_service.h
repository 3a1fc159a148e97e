#ifndef DAEMON_SERVER_POOL_SERVICE_H_
#define DAEMON_SERVER_POOL_SERVICE_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/backing/backing.h"
#include "daemon/clock/clock.h"
#include "daemon/server/view_service.h"
#include "daemon/slab/slab_manager.h"
#include "daemon/slab/table_writer.h"

namespace fineserve::server {

// One pool and its engines: connects slab manager, backing and table, and
// decides when a dead engine's slabs may be used again. Knows nothing of
// sockets or time sources, so that tests can drive it step by step. Confined to
// the daemon's thread.
//
// Who may die where. A member may die at any point; Exited is then called once,
// after the kernel has reported it. When an engine's last member has exited,
// its slabs are QUARANTINED until the driver lists none of its processes any
// more (design note 0000, Memory).
class PoolService {
 public:
  using Grant = slab::SlabManager::Grant;
  static constexpr uint64_t kPidCheckNs = 50'000'000;

  // All must outlive this object. The first `present` slabs have memory.
  PoolService(backing::Backing* backing, uint32_t present,
              slab::TableWriter* table, const Clock* clock);
  PoolService(backing::Backing* backing, slab::TableWriter* table,
              const Clock* clock)
      : PoolService(backing, backing->geometry().slab_count, table, clock) {}

  // Begins the first zero fill of every slab that has memory.
  void Start();

  // Sets how many slabs the pool should have, at most geometry()'s. Poll makes
  // the changes step by step while resizing(): it makes and zeroes new slabs,
  // or withdraws slabs once they are free, for which it asks views to return
  // what they hold above their floors. InvalidArgument if `slabs` is too large,
  // or smaller than the floors.
  absl::Status Resize(uint32_t slabs);
  bool resizing() const { return wanted_slabs_ != present_slabs(); }
  uint64_t slab_bytes() const { return backing_->geometry().slab_bytes(); }
  // The size of the pool once it is no longer resizing.
  uint32_t wanted_slabs() const { return wanted_slabs_; }
  uint32_t present_slabs() const {
    return slabs_.slab_count() - slabs_.absent_count();
  }

  // Makes `pid` a member of the engine of this name and user; the first member
  // creates the engine. ResourceExhausted if a table is full; the message says
  // which.
  absl::StatusOr<slab::EngineId> Join(const std::string& name, uid_t uid,
                                      pid_t pid);
  // The living engine of this name and user.
  absl::optional<slab::EngineId> Find(const std::string& name, uid_t uid) const;
  // `pid` has exited. Does nothing if it is not a member.
  void Exited(pid_t pid);

  // Asks for whole slabs: see SlabManager::Lease. Views are asked to return
  // what they hold above their floors if it is needed. An exhausted pool is
  // logged, with what each engine holds.
  slab::SlabManager::Outcome Lease(slab::EngineId engine, uint32_t slab_count,
                                   uint64_t ticket);
  // Drops a waiting request; false if none has this ticket.
  bool CancelLease(uint64_t ticket) { return slabs_.Cancel(ticket); }
  absl::Status Return(slab::EngineId engine, slab::LeaseId lease);
  // A descriptor of the lease's `index`-th granule, in mapping order. NotFound
  // if the engine has no such lease or granule.
  absl::StatusOr<driver::Descriptor> ExportGranule(slab::EngineId engine,
                                                   slab::LeaseId lease,
                                                   uint32_t index);

  // Views of the pool: see ViewService, whose errors these pass on. `pid` is
  // the member that asks.
  absl::Status RegisterView(slab::EngineId engine, pid_t pid,
                            const ViewSpec& spec, const ShareLimits& limits);
  absl::Status ActivateView(slab::EngineId engine, pid_t pid, uint32_t slabs,
                            uint32_t wanted);
  bool Want(slab::EngineId engine, pid_t pid, uint32_t wanted);
  // NotFound if the view does not hold `slab` by this lease.
  absl::Status ReturnSlab(slab::EngineId engine, pid_t pid, slab::SlabId slab,
                          slab::LeaseId lease);
  // Ends the view and all its leases.
  absl::Status CloseView(slab::EngineId engine, pid_t pid);
  // A descriptor of the pool's `index`-th granule. NotFound if this process may
  // not map it.
  absl::StatusOr<driver::Descriptor> ExportPoolGranule(slab::EngineId engine,
                                                       pid_t pid,
                                                       uint32_t index);

  // Collects completed zero fills, ends quarantines, resizes the pool and
  // shares it among the views. Returns the waiting requests that were granted.
  // To be called regularly while filling(), and every kPidCheckNs while
  // quarantining().
  std::vector<Grant> Poll();
  bool filling() const { return slabs_.zeroing_count() > failed_fills_; }
  bool quarantining() const;

  // "engine 1 (vllm-a) 40 slabs, engine 2 (vllm-b, dead) 22 slabs".
  std::string DescribeHolders() const;

  const slab::SlabManager& slabs() const { return slabs_; }
  const ViewService& views() const { return views_; }
  // The engine's slot in the slab table.
  uint32_t SlotOf(slab::EngineId engine) const {
    return engines_.at(engine).slot;
  }

 private:
  struct Engine {
    uint32_t slot;  // in the table
    std::string name;
    uid_t uid;
    std::set<pid_t> members;
    std::set<pid_t> exited;  // which the driver may still list
    abi::EngineState state;
    uint64_t since_ns;
  };

  absl::StatusOr<slab::EngineId> FindOrMake(const std::string& name, uid_t uid);
  void Bury(slab::EngineId id, Engine* engine);
  void EndQuarantines();
  void Remove(slab::EngineId id);
  void Fill(const std::vector<slab::SlabId>& slabs);
  void Grow();
  void Shrink();
  void Share();
  void Publish(slab::EngineId id);

  backing::Backing* const backing_;
  slab::TableWriter* const table_;
  const Clock* const clock_;
  slab::SlabManager slabs_;
  ViewService views_;
  std::map<slab::EngineId, Engine> engines_;
  std::set<uint32_t> free_slots_;
  uint32_t last_engine_ = 0;
  uint32_t wanted_slabs_;
  uint32_t failed_fills_ = 0;       // slabs that will never be FREE again
  uint64_t next_pid_check_ns_ = 0;  // a question to NVML takes about 1 ms
  bool cannot_list_logged_ = false;
};

}  // namespace fineserve::server

#endif  // DAEMON_SERVER_POOL_SERVICE_H_
