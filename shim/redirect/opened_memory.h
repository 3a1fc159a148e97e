#ifndef SHIM_REDIRECT_OPENED_MEMORY_H_
#define SHIM_REDIRECT_OPENED_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/abi/share_messages.h"
#include "kernels/driver/entry_points.h"
#include "shim/host/original.h"
#include "shim/host/plain_mutex.h"
#include "shim/host/real_driver.h"
#include "shim/map/range_table.h"
#include "shim/redirect/peer_access.h"

namespace fineserve::shim {

// Resident memory of other processes that this one has opened by CUDA's legacy
// IPC. A context has one mapping of each, at an address of its own; opening it
// again yields the same address and is counted. It stays on the GPU for as long
// as it is open (ResidentMemory::Lend); the memory itself lives for as long as
// a process has it mapped, whatever happens to its exporter.
//
// Thread-safe; a mutex spans the exchange with the exporter, whose waits are
// bounded. Constant-initialised, trivially destroyed. Not for a forked child.
class OpenedMemory {
 public:
  static constexpr size_t kCapacity = 1024;

  // Both must outlive this object.
  constexpr OpenedMemory(RangeTable* ranges, PeerAccess* peers)
      : ranges_(ranges), peers_(peers) {}

  // True if a process under the preload has made the handle.
  static bool IsOurs(const driver::CUipcMemHandle& handle);

  // Answers cuIpcOpenMemHandle for such a handle. If the memory is on the host,
  // waits until it is back.
  driver::CUresult Open(const Driver& real,
                        const driver::CUipcMemHandle& handle, unsigned flags,
                        driver::CUdeviceptr* out);
  // Answers cuIpcCloseMemHandle; makes `original`'s call for an address that
  // Open did not return.
  driver::CUresult Close(const Driver& real, driver::CUdeviceptr address,
                         const Original& original);
  // Its context has ended, and with it all of its openings; or it could not be
  // used. The range has left the table.
  driver::CUresult Drop(const Driver& real, const Redirection& range);

  // True once something was opened.
  bool in_use() const { return in_use_.load(std::memory_order_relaxed); }

 private:
  struct Opened {
    Redirection range;
    abi::IpcHandle handle = {};
    uint32_t count = 0;
  };

  driver::CUresult OpenNew(const Driver& real, const abi::IpcHandle& handle,
                           driver::CUcontext context, driver::CUdeviceptr* out)
      FINESERVE_REQUIRES(mutex_);
  driver::CUresult Place(const Driver& real, Redirection* range, int memory)
      FINESERVE_REQUIRES(mutex_);
  driver::CUresult End(const Driver& real, Opened* opened)
      FINESERVE_REQUIRES(mutex_);
  void GiveBackUnlessOpen(const abi::IpcHandle& handle)
      FINESERVE_REQUIRES(mutex_);
  // Null `context`: in any.
  Opened* Find(const abi::IpcHandle& handle, driver::CUcontext context)
      FINESERVE_REQUIRES(mutex_);
  Opened* At(driver::CUdeviceptr base) FINESERVE_REQUIRES(mutex_);

  RangeTable* const ranges_;
  PeerAccess* const peers_;
  std::atomic<bool> in_use_{false};
  std::atomic<bool> refusal_warned_{false};
  Mutex mutex_;
  uint64_t impatient_until_ms_ FINESERVE_GUARDED_BY(mutex_) = 0;
  size_t count_ FINESERVE_GUARDED_BY(mutex_) = 0;
  Opened opened_[kCapacity] FINESERVE_GUARDED_BY(mutex_) = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_OPENED_MEMORY_H_
