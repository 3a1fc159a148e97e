#include "shim/testdata/fake_driver.h"

#include <string.h>

#include <utility>

namespace fineserve::shim {

using namespace driver;  // every type of the entry points' lists

const uint8_t kFakeGpu[16] = {1, 2, 3};

FakeDriverState& TheFakeDriver() {
  static FakeDriverState state;
  return state;
}

namespace {

// Logs the call; true if it is the one to fail.
bool Fails(const char* function) {
  FakeDriverState& s = TheFakeDriver();
  s.log.push_back(function);
  return s.fail == function && s.fail_after-- == 0;
}

CUresult Failure() { return TheFakeDriver().fail_with; }

CUresult Alloc(CUdeviceptr* address, size_t) {
  if (Fails("cuMemAlloc")) return Failure();
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *address = kDriversOwn;
  return CUDA_SUCCESS;
}

CUresult Free(CUdeviceptr) {
  return Fails("cuMemFree") ? Failure() : CUDA_SUCCESS;
}

CUresult GetDevice(CUdevice* device) {
  *device = 0;
  return Fails("cuCtxGetDevice") ? Failure() : CUDA_SUCCESS;
}

CUresult GetUuid(CUuuid* uuid, CUdevice) {
  memcpy(uuid->bytes, kFakeGpu, sizeof(uuid->bytes));
  return Fails("cuDeviceGetUuid") ? Failure() : CUDA_SUCCESS;
}

CUresult GetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(&TheFakeDriver());
  return Fails("cuCtxGetCurrent") ? Failure() : CUDA_SUCCESS;
}

CUresult Push(CUcontext) {
  return Fails("cuCtxPushCurrent") ? Failure() : CUDA_SUCCESS;
}

CUresult Pop(CUcontext*) {
  return Fails("cuCtxPopCurrent") ? Failure() : CUDA_SUCCESS;
}

CUresult Synchronize() {
  return Fails("cuCtxSynchronize") ? Failure() : CUDA_SUCCESS;
}

CUresult Reserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                 unsigned long long) {
  if (Fails("cuMemAddressReserve")) return Failure();
  FakeDriverState& s = TheFakeDriver();
  *address = kReserved + s.reserved_bytes;
  s.reserved_bytes += bytes;
  return CUDA_SUCCESS;
}

CUresult AddressFree(CUdeviceptr address, size_t bytes) {
  TheFakeDriver().touched.push_back({address, bytes});
  if (Fails("cuMemAddressFree")) return Failure();
  TheFakeDriver().reserved_bytes -= bytes;
  return CUDA_SUCCESS;
}

CUresult Import(CUmemGenericAllocationHandle* handle, void*,
                CUmemAllocationHandleType) {
  if (Fails("cuMemImport")) return Failure();
  *handle = TheFakeDriver().next_handle++;
  ++TheFakeDriver().handles;
  return CUDA_SUCCESS;
}

CUresult Release(CUmemGenericAllocationHandle) {
  if (Fails("cuMemRelease")) return Failure();
  --TheFakeDriver().handles;
  return CUDA_SUCCESS;
}

CUresult Map(CUdeviceptr address, size_t bytes, size_t,
             CUmemGenericAllocationHandle, unsigned long long) {
  TheFakeDriver().touched.push_back({address, bytes});
  if (Fails("cuMemMap")) return Failure();
  TheFakeDriver().mapped_bytes += bytes;
  return CUDA_SUCCESS;
}

CUresult Unmap(CUdeviceptr address, size_t bytes) {
  TheFakeDriver().touched.push_back({address, bytes});
  if (Fails("cuMemUnmap")) return Failure();
  TheFakeDriver().mapped_bytes -= bytes;
  return CUDA_SUCCESS;
}

CUresult SetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc*,
                   size_t) {
  TheFakeDriver().touched.push_back({address, bytes});
  if (Fails("cuMemSetAccess")) return Failure();
  TheFakeDriver().accessible_bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult Properties(CUmemAllocationProp* prop, CUmemGenericAllocationHandle) {
  *prop = {};
  prop->allocFlags.gpuDirectRDMACapable = TheFakeDriver().rdma_capable;
  return Fails("cuMemGetAllocationProperties") ? Failure() : CUDA_SUCCESS;
}

CUresult Create(CUmemGenericAllocationHandle* handle, size_t,
                const CUmemAllocationProp*, unsigned long long) {
  if (Fails("cuMemCreate")) return Failure();
  *handle = kDriversHandle;
  return CUDA_SUCCESS;
}

CUresult CreateEvent(CUevent* event, unsigned) {
  if (Fails("cuEventCreate")) return Failure();
  *event = reinterpret_cast<CUevent>(&TheFakeDriver());
  ++TheFakeDriver().events;
  return CUDA_SUCCESS;
}

CUresult RecordEvent(CUevent, CUstream) {
  return Fails("cuEventRecord") ? Failure() : CUDA_SUCCESS;
}

CUresult QueryEvent(CUevent) {
  FakeDriverState& s = TheFakeDriver();
  s.forbidden_queries += s.capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  if (s.passes_after >= 0 && s.passes_after-- == 0) s.passed = true;
  return s.passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult DestroyEvent(CUevent) {
  --TheFakeDriver().events;
  return CUDA_SUCCESS;
}

CUresult ExchangeCaptureMode(driver::CUstreamCaptureMode* mode) {
  std::swap(*mode, TheFakeDriver().capture_mode);
  return CUDA_SUCCESS;
}

CUresult IsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = TheFakeDriver().capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                      : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult PoolAccess(CUmemAccess_flags* flags, CUmemoryPool, CUmemLocation*) {
  *flags = TheFakeDriver().pool_access;
  return CUDA_SUCCESS;
}

}  // namespace

Driver NewFakeDriver() {
  TheFakeDriver() = {};
  Driver d;
  d.complete = true;
  d.entry.cuMemAlloc_v2 = &Alloc;
  d.entry.cuMemFree_v2 = &Free;
  d.entry.cuCtxGetDevice = &GetDevice;
  d.entry.cuDeviceGetUuid_v2 = &GetUuid;
  d.entry.cuCtxGetCurrent = &GetCurrent;
  d.entry.cuCtxPushCurrent_v2 = &Push;
  d.entry.cuCtxPopCurrent_v2 = &Pop;
  d.entry.cuCtxSynchronize = &Synchronize;
  d.entry.cuMemAddressReserve = &Reserve;
  d.entry.cuMemAddressFree = &AddressFree;
  d.entry.cuMemImportFromShareableHandle = &Import;
  d.entry.cuMemRelease = &Release;
  d.entry.cuMemMap = &Map;
  d.entry.cuMemUnmap = &Unmap;
  d.entry.cuMemSetAccess = &SetAccess;
  d.entry.cuMemCreate = &Create;
  d.entry.cuMemGetAllocationPropertiesFromHandle = &Properties;
  d.entry.cuEventCreate = &CreateEvent;
  d.entry.cuEventRecord = &RecordEvent;
  d.entry.cuEventQuery = &QueryEvent;
  d.entry.cuEventDestroy_v2 = &DestroyEvent;
  d.entry.cuStreamIsCapturing = &IsCapturing;
  d.entry.cuThreadExchangeStreamCaptureMode = &ExchangeCaptureMode;
  d.entry.cuMemPoolGetAccess = &PoolAccess;
  return d;
}

}  // namespace fineserve::shim
