#ifndef SHIM_MAP_GRANULES_H_
#define SHIM_MAP_GRANULES_H_

#include <cstdint>

#include "daemon/abi/transport.h"
#include "kernels/driver/descriptor.h"
#include "kernels/driver/entry_points.h"
#include "shim/link/daemon_link.h"

namespace fineserve::shim {

// How putting slabs in place of an allocation ended.
enum class MapOutcome {
  kMapped,
  kExhausted,    // the pool is: the program gets CUDA_ERROR_OUT_OF_MEMORY
  kNoDaemon,     // lost meanwhile; nothing is held
  kRefused,      // by the daemon; nothing is held
  kDriverError,  // `result` says what; everything was undone
  kWrongSize,    // slabs would not fit or be wasted; nothing was asked
  kWrongKind,    // wants what slabs are not; everything was undone
  kTableFull,    // of ours; everything was undone
};

struct MapResult {
  MapOutcome outcome;
  driver::CUresult result = driver::CUDA_SUCCESS;
};

MapResult DriverError(driver::CUresult result);
MapOutcome OutcomeOf(Exchange exchange);

// One descriptor's granule; it stays open, the handle is the caller's.
driver::CUresult ImportGranule(const driver::EntryPoints& entry, int descriptor,
                               driver::CUmemGenericAllocationHandle* out);

// Imports granules [0, count) of a lease and gives the handle of each to
// `use(handle) → CUresult`, in order; the handle is then `use`'s. Ends at the
// first failure: `use` keeps count of what it got. Descriptors are closed after
// each import: 8,192 of them would exhaust the host's limit.
template <typename Use>
MapResult ImportGranules(const driver::EntryPoints& entry, DaemonLink* link,
                         const Lease& lease, uint32_t count, Use use) {
  abi::Received batch;
  uint32_t done = 0;
  while (done < count) {
    const Exchange got = link->Granules(lease, done, &batch);
    // Not one descriptor was free in this process: no fault of the daemon's.
    if (got == Exchange::kRefused) {
      return DriverError(driver::CUDA_ERROR_OPERATING_SYSTEM);
    }
    if (got != Exchange::kOk) return {OutcomeOf(got)};
    for (uint32_t i = 0; i < batch.descriptor_count() && done < count; ++i) {
      const driver::Descriptor descriptor(batch.TakeDescriptor(i));
      driver::CUmemGenericAllocationHandle handle = 0;
      driver::CUresult result = ImportGranule(entry, descriptor.get(), &handle);
      if (result == driver::CUDA_SUCCESS) result = use(handle);
      if (result != driver::CUDA_SUCCESS) return DriverError(result);
      ++done;
    }
  }
  return {MapOutcome::kMapped};
}

// Waits for the work of `context`, whatever the calling thread's own is.
driver::CUresult Synchronize(const driver::EntryPoints& entry,
                             driver::CUcontext context);

}  // namespace fineserve::shim

#endif  // SHIM_MAP_GRANULES_H_
