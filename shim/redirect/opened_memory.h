#ifndef SHIM_REDIRECT_OPENED_MEMORY_H_
#define SHIM_REDIRECT_OPENED_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/share_messages.h"
#include "daemon/contract/abi/slab_table.h"
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
// Memory that an exporter of the same engine has lent leaves the GPU with that
// engine:
//
//   in use ─Rest─► resting ─Unmap─► resting, not mapped
//      ▲              │                  │
//      └────Return────┴──────────────────┘
//
// From Rest until Return this process's gate is closed, and its work on the GPU
// must not touch resting memory: the exporter may copy it, release it, and make
// new memory for it. Return asks the exporter for its present memory.
//
// Thread-safe; a mutex spans an exchange with the exporter, which is short, and
// not the wait for memory that is on the host. Constant-initialised, trivially
// destroyed. Not for a forked child.
class OpenedMemory {
 public:
  static constexpr size_t kCapacity = 1024;

  // `ranges` and `peers` must outlive this object.
  constexpr OpenedMemory(RangeTable* ranges, PeerAccess* peers)
      : ranges_(ranges), peers_(peers) {}

  // True if the handle was made by a process under the preload.
  static bool IsOurs(const driver::CUipcMemHandle& handle);

  // Implements cuIpcOpenMemHandle for such a handle. If the memory is on the
  // host, waits until it is back.
  driver::CUresult Open(const Driver& real,
                        const driver::CUipcMemHandle& handle, unsigned flags,
                        driver::CUdeviceptr* out);
  // Implements cuIpcCloseMemHandle; makes `original`'s call for an address that
  // Open did not return.
  driver::CUresult Close(const Driver& real, driver::CUdeviceptr address,
                         const Original& original);
  // Ends a range whose context has ended, and with it all openings, or which
  // could not be used. The range has already left the table.
  driver::CUresult Drop(const Driver& real, const Redirection& range);

  // Writes the contexts that have something open, each at least once, and
  // returns their number; most + 1 if there are more than `most`.
  size_t Contexts(driver::CUcontext* out, size_t most);
  // Tells this engine's exporters that this process touches none of their
  // memory before Return. The gate must be closed and the contexts' work must
  // have ended.
  void Rest(const char (&engine_name)[abi::kNameBytes]);
  // Unmaps the resting memory, since its exporters may have released it.
  void Unmap(const Driver& real);
  enum class Back {
    kHere,  // all of it: the gate may open
    kAway,  // some is on the host still, or its exporter is silent: try again
    kLost,  // some had left the GPU, and has ended with its exporter
  };
  // Asks for the resting memory again, and maps it. If its exporter has ended,
  // uses the memory that is still mapped, unless `may_be_old`: the exporter may
  // have continued with other memory. Writes one line in `why`, unless it
  // returns kHere.
  Back Return(const Driver& real, bool may_be_old, char* why, size_t why_bytes);

  // True once any memory has been opened.
  bool in_use() const { return in_use_.load(std::memory_order_relaxed); }

 private:
  struct Opened {
    Redirection range;
    abi::IpcHandle handle = {};
    uint32_t count = 0;       // 0: it is closed, and still to be given back
    uint32_t departures = 0;  // of the memory when it was mapped
    bool is_mapped = true;
    bool rests = false;
  };

  enum class Tried {
    kDone,       // with `result`
    kAway,       // it is on the host, or its exporter is silent
    kUnreached,  // its exporter does not listen, but has not ended
    kUnknown,
  };
  Tried TryToOpen(const Driver& real, const abi::IpcHandle& handle,
                  driver::CUcontext context, driver::CUresult* result,
                  driver::CUdeviceptr* out) FINESERVE_REQUIRES(mutex_);
  driver::CUresult Refuse(const abi::IpcHandle& handle, Tried tried);
  Back ReturnOne(const Driver& real, Opened* opened, bool may_be_old, char* why,
                 size_t why_bytes) FINESERVE_REQUIRES(mutex_);
  driver::CUresult Remap(const Driver& real, Opened* opened, int memory)
      FINESERVE_REQUIRES(mutex_);
  static driver::CUresult MapAt(const Driver& real, const Redirection& range,
                                int memory);
  static driver::CUresult UnmapOne(const Driver& real, Opened* opened);
  driver::CUresult Place(const Driver& real, Redirection* range, int memory)
      FINESERVE_REQUIRES(mutex_);
  driver::CUresult End(const Driver& real, Opened* opened)
      FINESERVE_REQUIRES(mutex_);
  bool GiveBackUnlessOpen(const abi::IpcHandle& handle)
      FINESERVE_REQUIRES(mutex_);
  void GiveBackClosed() FINESERVE_REQUIRES(mutex_);
  int PatienceMs() const FINESERVE_REQUIRES(mutex_);
  void NoteAnswer(bool came) FINESERVE_REQUIRES(mutex_);
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
