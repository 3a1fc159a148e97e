#include "shim/map/granules.h"

#include "shim/host/pushed_context.h"

namespace fineserve::shim {

using driver::CUDA_SUCCESS;
using driver::CUmemGenericAllocationHandle;
using driver::CUresult;

CUresult ImportGranule(const driver::EntryPoints& entry, int descriptor,
                       CUmemGenericAllocationHandle* out) {
  // The driver takes the descriptor's number as the value of the pointer.
  void* shareable = reinterpret_cast<void*>(static_cast<uintptr_t>(descriptor));
  return entry.cuMemImportFromShareableHandle(
      out, shareable, driver::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

MapResult DriverError(CUresult result) {
  return {MapOutcome::kDriverError, result};
}

MapOutcome OutcomeOf(Exchange exchange) {
  switch (exchange) {
    case Exchange::kOk:
      return MapOutcome::kMapped;
    case Exchange::kExhausted:
      return MapOutcome::kExhausted;
    case Exchange::kRefused:
      return MapOutcome::kRefused;
    case Exchange::kLost:
      break;
  }
  return MapOutcome::kNoDaemon;
}

CUresult MapMemory(const driver::EntryPoints& entry,
                   CUmemGenericAllocationHandle handle,
                   driver::CUdeviceptr base, uint64_t bytes,
                   driver::CUdevice device, driver::CUmemAccess_flags access) {
  CUresult result = entry.cuMemMap(base, bytes, 0, handle, 0);
  entry.cuMemRelease(handle);
  if (result != CUDA_SUCCESS) return result;
  result = PermitAccess(entry, base, bytes, device, access);
  if (result != CUDA_SUCCESS) entry.cuMemUnmap(base, bytes);
  return result;
}

CUresult PermitAccess(const driver::EntryPoints& entry,
                      driver::CUdeviceptr address, uint64_t bytes,
                      driver::CUdevice device,
                      driver::CUmemAccess_flags access) {
  const driver::CUmemAccessDesc desc = {
      {driver::CU_MEM_LOCATION_TYPE_DEVICE, device}, access};
  return entry.cuMemSetAccess(address, bytes, &desc, 1);
}

driver::CUmemAllocationProp PlainMemoryOf(driver::CUdevice device) {
  driver::CUmemAllocationProp prop = {};
  prop.type = driver::CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {driver::CU_MEM_LOCATION_TYPE_DEVICE, device};
  return prop;
}

driver::CUmemAllocationProp ExportableMemoryOf(driver::CUdevice device) {
  driver::CUmemAllocationProp prop = PlainMemoryOf(device);
  prop.requestedHandleTypes = driver::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

CUresult Synchronize(const driver::EntryPoints& entry,
                     driver::CUcontext context) {
  const PushedContext current(entry, context);
  // An ended context is no error: it was valid when something was mapped in it.
  if (HasEnded(current.result())) return CUDA_SUCCESS;
  if (current.result() != CUDA_SUCCESS) return current.result();
  return entry.cuCtxSynchronize();
}

}  // namespace fineserve::shim
