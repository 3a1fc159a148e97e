#ifndef SHIM_REDIRECT_HANDLE_CALLS_H_
#define SHIM_REDIRECT_HANDLE_CALLS_H_

#include <atomic>

#include "daemon/abi/hooks.h"
#include "kernels/driver/entry_points.h"
#include "shim/host/original.h"
#include "shim/host/real_driver.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/redirect/pointer_queries.h"
#include "shim/redirect/virtual_memory.h"

namespace fineserve::shim {

// Answers the calls after cuMemCreate, by which a program maps, releases and
// shares memory that may lie in leased slabs. Makes `original`'s call if it
// does not. Records each end and each refusal. Thread-safe;
// constant-initialised, trivially destroyed.
class HandleCalls {
 public:
  // All of these must outlive this object. `*forked` says that this process is
  // a forked child, which owns none of what it inherited.
  constexpr HandleCalls(VirtualMemory* memory, const PointerQueries* queries,
                        RangeTable* ranges, ScoreboardWriter* scoreboard,
                        const std::atomic<bool>* forked)
      : memory_(memory),
        queries_(queries),
        ranges_(ranges),
        scoreboard_(scoreboard),
        forked_(forked) {}

  driver::CUresult Map(const Driver& real, driver::CUdeviceptr address,
                       uint64_t bytes, uint64_t offset,
                       driver::CUmemGenericAllocationHandle handle,
                       unsigned long long flags, const Original& original);
  driver::CUresult Unmap(const Driver& real, driver::CUdeviceptr address,
                         uint64_t bytes, const Original& original);
  driver::CUresult Release(const Driver& real,
                           driver::CUmemGenericAllocationHandle handle,
                           const Original& original);
  driver::CUresult Retain(const Driver& real,
                          driver::CUmemGenericAllocationHandle* out,
                          driver::CUdeviceptr address,
                          const Original& original);
  driver::CUresult Properties(const Driver& real,
                              driver::CUmemAllocationProp* out,
                              driver::CUmemGenericAllocationHandle handle,
                              const Original& original);
  // Fails for redirected memory.
  driver::CUresult Export(const Driver& real,
                          driver::CUmemGenericAllocationHandle handle,
                          const Original& original);
  // Legacy IPC and DMA-BUF: fails with `refusal` for redirected memory.
  driver::CUresult ShareAddress(const Driver& real, abi::Hook hook,
                                driver::CUdeviceptr address,
                                driver::CUresult refusal,
                                const Original& original);

 private:
  bool forked() const { return forked_->load(std::memory_order_relaxed); }
  void RecordEnd(abi::Hook hook, const Ended& ended);
  driver::CUresult RefuseSharing(abi::Hook hook, uint64_t address,
                                 uint64_t bytes, driver::CUresult result);

  VirtualMemory* const memory_;
  const PointerQueries* const queries_;
  RangeTable* const ranges_;
  ScoreboardWriter* const scoreboard_;
  const std::atomic<bool>* const forked_;
  std::atomic<bool> sharing_warned_{false};
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_HANDLE_CALLS_H_
