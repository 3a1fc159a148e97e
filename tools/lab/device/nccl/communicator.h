#ifndef TOOLS_LAB_DEVICE_NCCL_COMMUNICATOR_H_
#define TOOLS_LAB_DEVICE_NCCL_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/nccl/nccl_types.h"
#include "tools/lab/device/nccl/reduction.h"
#include "tools/lab/device/nccl/shared_region.h"

namespace fineserve::nccl {

// How a wait for other ranks ended.
enum class Waited {
  kReady,
  kReleased,  // this rank's communicator was aborted
  kPeerGone,  // a rank that was waited for has ended, or has left
};

// One rank of a communicator. Thread-safe.
//
// Its work runs in the order in which it was submitted, also on different
// streams. Work that cannot go on (a peer is gone, ranks disagree) reports an
// asynchronous error and keeps its stream until Release, as a kernel of NCCL
// does; what follows on the stream never sees results that are not there.
class Communicator {
 public:
  // Joins as rank `rank` of `ranks` on the current device, without waiting.
  static ncclResult_t Join(const ncclUniqueId& id, int ranks, int rank,
                           std::shared_ptr<Communicator>* out);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Waits until all ranks have joined, and checks that no two ranks share a
  // device.
  ncclResult_t WaitForAll();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_; }
  const SharedRegion& region() const { return *region_; }

  // Waits until `ready(rank)` holds for all ranks. `ready` looks at shared
  // memory only.
  Waited Await(const std::function<bool(int rank)>& ready) const;
  // Waits until `progress()` returns true. It is called again after each change
  // of shared memory, and may call Gone to learn that a rank will not arrive.
  Waited AwaitProgress(const std::function<bool()>& progress) const;
  // True if a rank's process has ended, or has left the communicator.
  bool Gone(int rank) const;

  // Reports an error of the work on a stream, and blocks the stream until
  // Release.
  void Fail(ncclResult_t error, const std::string& what);
  ncclResult_t async_error() const {
    return async_error_.load(std::memory_order_acquire);
  }

  // Work takes a ticket when it is submitted, and runs in the order of tickets.
  // Work of a captured graph has no ticket, because it may run often: it runs
  // when no other work runs. BeginWork returns false if the communicator has
  // been released.
  uint64_t TakeTicket();
  void ReturnLastTicket();  // nothing was submitted after all
  bool BeginWork(std::optional<uint64_t> ticket);
  void EndWork(std::optional<uint64_t> ticket);
  // Waits until all submitted work has run, or until Release.
  void WaitIdle();

  // Ends all waits of this rank; its work does nothing from now on. Returns
  // when no work is running. If `leave`, notifies the other ranks.
  void Release(bool leave);
  // Notifies the other ranks that this one has stopped taking part.
  void Leave();
  // Ends all waits of all communicators, when the process ends.
  static void ReleaseAll();

  // The operators that ncclRedOpCreatePreMulSum created.
  ncclRedOp_t AddFactor(ncclDataType_t type, const Factor& factor);
  bool RemoveFactor(ncclRedOp_t op);
  std::optional<Factor> FindFactor(ncclRedOp_t op, ncclDataType_t type) const;

  // Held while work is submitted, so that tickets have the order of the
  // streams.
  emucuda::Mutex& submission() { return submission_; }
  // The number of steps of a lane so far; confined to the running work, or to
  // the calling thread that exchanges.
  uint64_t& steps(Lane lane) { return steps_[static_cast<int>(lane)]; }
  emucuda::Mutex& call_exchange() { return call_exchange_; }

 private:
  Communicator(std::unique_ptr<SharedRegion> region, int ranks, int rank,
               int device);
  ncclResult_t Claim(const char* bus_id);
  ncclResult_t OpenPeers();
  ncclResult_t CheckDevices() const;

  const std::unique_ptr<SharedRegion> region_;
  const int ranks_;
  const int rank_;
  const int device_;
  const int pid_;  // of the process that joined; a forked child is another
  // By rank; const after WaitForAll. A descriptor becomes readable when its
  // rank's process has ended.
  std::vector<emucuda::Descriptor> peers_;

  // Release and acquire: a waiting thread sees what was decided before the
  // store.
  std::atomic<bool> released_{false};
  std::atomic<ncclResult_t> async_error_{ncclSuccess};

  emucuda::Mutex submission_;
  emucuda::Mutex call_exchange_;
  uint64_t steps_[kLanes] = {};

  mutable emucuda::Mutex mutex_;
  emucuda::Condition changed_;
  uint64_t next_ticket_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  uint64_t turn_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  bool busy_ EMUCUDA_GUARDED_BY(mutex_) = false;
  struct TypedFactor {
    ncclDataType_t type;
    Factor factor;
  };
  std::map<unsigned, TypedFactor> factors_ EMUCUDA_GUARDED_BY(mutex_);
  unsigned next_factor_ EMUCUDA_GUARDED_BY(mutex_) = ncclNumOps;
};

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_COMMUNICATOR_H_
