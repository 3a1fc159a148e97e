#include "tools/lab/device/nccl/communicator.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "tools/lab/device/cudart/runtime_api.h"
#include "tools/lab/device/nccl/last_error.h"
#include "tools/lab/device/nccl/unique_id.h"

namespace fineserve::nccl {
namespace {

using emucuda::Mutex;
using emucuda::MutexLock;

// Interval at which a waiting rank checks that the other ranks are still alive;
// a change wakes it at once.
constexpr int kLookMs = 50;
// The default time limit of PyTorch's collectives.
constexpr std::chrono::minutes kJoinPatience{10};

struct Registry {
  Mutex mutex;
  std::set<Communicator*> live EMUCUDA_GUARDED_BY(mutex);
};

// Never destroyed: streams outlive static objects.
Registry& All() {
  static Registry* const registry = [] {
    atexit(Communicator::ReleaseAll);
    return new Registry;
  }();
  return *registry;
}

}  // namespace

ncclResult_t Communicator::Join(const ncclUniqueId& id, int ranks, int rank,
                                std::shared_ptr<Communicator>* out) {
  if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks) {
    return Refuse(ncclInvalidArgument,
                  "rank %d of %d: a communicator has 1 to %d ranks", rank,
                  ranks, kMaxRanks);
  }
  const std::string name = FileNameOf(id);
  if (name.empty()) {
    return Refuse(ncclInvalidArgument,
                  "the id is not from this library's ncclGetUniqueId");
  }
  int device = 0;
  char bus_id[sizeof(RankSlot::bus_id)] = {};
  if (cudart::cudaGetDevice(&device) != cudart::cudaSuccess ||
      cudart::cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device) !=
          cudart::cudaSuccess) {
    return Refuse(ncclUnhandledCudaError, "rank %d has no CUDA device", rank);
  }
  std::string complaint;
  auto region = SharedRegion::Open(name, ranks, &complaint);
  if (region == nullptr) {
    return Refuse(ncclSystemError, "rank %d cannot join: %s", rank,
                  complaint.c_str());
  }
  std::shared_ptr<Communicator> joined(
      new Communicator(std::move(region), ranks, rank, device));
  const ncclResult_t result = joined->Claim(bus_id);
  if (result == ncclSuccess) *out = std::move(joined);
  return result;
}

Communicator::Communicator(std::unique_ptr<SharedRegion> region, int ranks,
                           int rank, int device)
    : region_(std::move(region)),
      ranks_(ranks),
      rank_(rank),
      device_(device),
      pid_(getpid()) {
  Registry& all = All();
  const MutexLock lock(all.mutex);
  all.live.insert(this);
}

Communicator::~Communicator() {
  Registry& all = All();
  const MutexLock lock(all.mutex);
  all.live.erase(this);
}

ncclResult_t Communicator::Claim(const char* bus_id) {
  RankSlot& slot = region_->rank(rank_);
  if (slot.claimed.exchange(1, std::memory_order_acq_rel) != 0) {
    return Refuse(ncclInvalidUsage, "rank %d of %d joins twice", rank_, ranks_);
  }
  snprintf(slot.bus_id, sizeof(slot.bus_id), "%s", bus_id);
  slot.pid.store(pid_, std::memory_order_release);
  RegionHeader& header = region_->header();
  const uint32_t before = header.joined.fetch_add(1, std::memory_order_acq_rel);
  if (before + 1 == static_cast<uint32_t>(ranks_)) region_->Unlink();
  region_->Ring();
  return ncclSuccess;
}

ncclResult_t Communicator::WaitForAll() {
  const auto end = std::chrono::steady_clock::now() + kJoinPatience;
  const auto all_joined = [&] {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (region_->rank(rank).pid.load(std::memory_order_acquire) == 0) {
        return false;
      }
    }
    return true;
  };
  for (;;) {
    const uint32_t bell = region_->Bell();
    if (all_joined()) break;
    if (std::chrono::steady_clock::now() > end ||
        released_.load(std::memory_order_acquire)) {
      region_->Unlink();
      return Refuse(ncclRemoteError, "rank %d: %u of %d ranks have joined",
                    rank_, region_->header().joined.load(), ranks_);
    }
    region_->Sleep(bell, kLookMs);
  }
  const ncclResult_t result = OpenPeers();
  return result == ncclSuccess ? CheckDevices() : result;
}

ncclResult_t Communicator::OpenPeers() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const int pid = region_->rank(rank).pid.load(std::memory_order_acquire);
    emucuda::Descriptor peer(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    // If the process has already ended, the ranks that wait for it will notice.
    if (!peer.valid() && errno != ESRCH) {
      return Refuse(ncclSystemError,
                    "rank %d cannot watch rank %d (pid %d): %s", rank_, rank,
                    pid, strerror(errno));
    }
    peers_.push_back(std::move(peer));
  }
  return ncclSuccess;
}

ncclResult_t Communicator::CheckDevices() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_ ||
        strcmp(region_->rank(rank).bus_id, region_->rank(rank_).bus_id) != 0) {
      continue;
    }
    return Refuse(ncclInvalidUsage,
                  "ranks %d and %d are both on the device at %s", rank_, rank,
                  region_->rank(rank).bus_id);
  }
  return ncclSuccess;
}

bool Communicator::Gone(int rank) const {
  if (region_->rank(rank).left.load(std::memory_order_acquire) != 0) {
    return true;
  }
  const auto index = static_cast<size_t>(rank);
  if (index >= peers_.size()) return false;
  if (!peers_[index].valid()) return true;
  pollfd peer = {peers_[index].get(), POLLIN, 0};
  return poll(&peer, 1, 0) > 0;
}

Waited Communicator::AwaitProgress(
    const std::function<bool()>& progress) const {
  for (;;) {
    const uint32_t bell = region_->Bell();
    if (released_.load(std::memory_order_acquire)) return Waited::kReleased;
    if (progress()) return Waited::kReady;
    region_->Sleep(bell, kLookMs);
  }
}

Waited Communicator::Await(const std::function<bool(int rank)>& ready) const {
  bool peer_gone = false;
  const auto progress = [&] {
    bool all = true;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (ready(rank)) continue;
      // The rank's last writes may have become visible only now.
      peer_gone = rank != rank_ && Gone(rank) && !ready(rank);
      if (peer_gone) return true;
      all = all && ready(rank);
    }
    return all;
  };
  const Waited waited = AwaitProgress(progress);
  return peer_gone && waited == Waited::kReady ? Waited::kPeerGone : waited;
}

void Communicator::Fail(ncclResult_t error, const std::string& what) {
  async_error_.store(
      Refuse(error, "rank %d of %d: %s; its stream waits for ncclCommAbort",
             rank_, ranks_, what.c_str()),
      std::memory_order_release);
  AwaitProgress([] { return false; });
}

uint64_t Communicator::TakeTicket() {
  const MutexLock lock(mutex_);
  return next_ticket_++;
}

void Communicator::ReturnLastTicket() {
  const MutexLock lock(mutex_);
  --next_ticket_;
}

bool Communicator::BeginWork(std::optional<uint64_t> ticket) {
  const MutexLock lock(mutex_);
  for (;;) {
    if (released_.load(std::memory_order_acquire)) return false;
    if (!busy_ && (!ticket || *ticket == turn_)) break;
    changed_.Wait(mutex_);
  }
  busy_ = true;
  return true;
}

void Communicator::EndWork(std::optional<uint64_t> ticket) {
  const MutexLock lock(mutex_);
  busy_ = false;
  if (ticket) turn_ = *ticket + 1;
  changed_.NotifyAll();
}

void Communicator::WaitIdle() {
  const MutexLock lock(mutex_);
  while (turn_ != next_ticket_ && !released_.load(std::memory_order_acquire)) {
    changed_.Wait(mutex_);
  }
}

void Communicator::Release(bool leave) {
  {
    const MutexLock lock(mutex_);
    released_.store(true, std::memory_order_release);
    changed_.NotifyAll();
  }
  if (leave) Leave();
  region_->Ring();
  const MutexLock lock(mutex_);
  while (busy_) changed_.Wait(mutex_);
}

void Communicator::Leave() {
  region_->rank(rank_).left.store(1, std::memory_order_release);
  region_->Ring();
}

void Communicator::ReleaseAll() {
  Registry& all = All();
  const MutexLock lock(all.mutex);
  for (Communicator* const communicator : all.live) {
    // In a forked child, a communicator of the parent waits for nothing, and
    // its mapping is the parent's.
    if (communicator->pid_ == getpid()) communicator->Release(false);
  }
}

ncclRedOp_t Communicator::AddFactor(ncclDataType_t type, const Factor& factor) {
  const MutexLock lock(mutex_);
  factors_[next_factor_] = {type, factor};
  return static_cast<ncclRedOp_t>(next_factor_++);
}

bool Communicator::RemoveFactor(ncclRedOp_t op) {
  const MutexLock lock(mutex_);
  return factors_.erase(op) > 0;
}

std::optional<Factor> Communicator::FindFactor(ncclRedOp_t op,
                                               ncclDataType_t type) const {
  const MutexLock lock(mutex_);
  const auto found = factors_.find(op);
  if (found == factors_.end() || found->second.type != type) {
    return std::nullopt;
  }
  return found->second.factor;
}

}  // namespace fineserve::nccl
