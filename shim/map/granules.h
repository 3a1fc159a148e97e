#ifndef SHIM_MAP_GRANULES_H_
#define SHIM_MAP_GRANULES_H_

#include <cstdint>

#include "daemon/contract/abi/transport.h"
#include "kernels/driver/descriptor.h"
#include "kernels/driver/entry_points.h"
#include "shim/link/daemon_link.h"

namespace fineserve::shim {

// The result of mapping slabs in place of an allocation.
enum class MapOutcome {
  kMapped,
  kExhausted,    // the pool has too few free slabs
  kNoDaemon,     // the daemon was lost; nothing is held
  kRefused,      // the daemon refused; nothing is held
  kDriverError,  // the driver failed with `result`; everything was undone
  kWrongSize,    // slabs would not fit or would be wasted; nothing was leased
  kWrongKind,    // slabs are not such memory; everything was undone
  kTableFull,    // a table of ours is full; everything was undone
};

struct MapResult {
  MapOutcome outcome;
  driver::CUresult result = driver::CUDA_SUCCESS;
};

MapResult DriverError(driver::CUresult result);
MapOutcome OutcomeOf(Exchange exchange);

// Imports a descriptor's granule. The descriptor stays open; the caller owns
// the handle.
driver::CUresult ImportGranule(const driver::EntryPoints& entry, int descriptor,
                               driver::CUmemGenericAllocationHandle* out);

// Imports granules [0, count) of a lease and passes the handle of each to
// `use(handle) → CUresult`, in order; `use` then owns the handle. Stops at the
// first failure; `use` must count the handles that it got. Each descriptor is
// closed after its import, since 8,192 of them would exceed the host's limit.
template <typename Use>
MapResult ImportGranules(const driver::EntryPoints& entry, DaemonLink* link,
                         const Lease& lease, uint32_t count, Use use) {
  abi::Received batch;
  uint32_t done = 0;
  while (done < count) {
    const Exchange got = link->Granules(lease, done, &batch);
    // This process had no free descriptor at all; the daemon refused nothing.
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

// Maps memory at reserved addresses, and gives `device` access. Releases the
// handle in any case: the mapping keeps the memory. After an error nothing is
// mapped.
driver::CUresult MapMemory(const driver::EntryPoints& entry,
                           driver::CUmemGenericAllocationHandle handle,
                           driver::CUdeviceptr base, uint64_t bytes,
                           driver::CUdevice device,
                           driver::CUmemAccess_flags access =
                               driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

// Gives `device` access to mapped memory.
driver::CUresult PermitAccess(const driver::EntryPoints& entry,
                              driver::CUdeviceptr address, uint64_t bytes,
                              driver::CUdevice device,
                              driver::CUmemAccess_flags access =
                                  driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

// The properties, for cuMemCreate, of plain memory of a device, and of plain
// memory that can be exported.
driver::CUmemAllocationProp PlainMemoryOf(driver::CUdevice device);
driver::CUmemAllocationProp ExportableMemoryOf(driver::CUdevice device);

// Waits for the work of `context`, or of the current context if `context` is
// null. If a context has been destroyed, the driver has already waited for its
// work.
driver::CUresult Synchronize(const driver::EntryPoints& entry,
                             driver::CUcontext context);

}  // namespace fineserve::shim

#endif  // SHIM_MAP_GRANULES_H_
