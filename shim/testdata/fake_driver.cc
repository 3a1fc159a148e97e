#include "shim/testdata/fake_driver.h"

#include <string.h>
#include <unistd.h>

#include <utility>

namespace fineserve::shim {

using namespace driver;  // every type of the entry points' lists

const uint8_t kFakeGpu[16] = {1, 2, 3};

FakeDriverState& TheFakeDriver() {
  static FakeDriverState state;
  return state;
}

namespace {

bool ChangesMemory(const std::string& function) {
  return function == "cuMemCreate" || function == "cuMemMap" ||
         function == "cuMemUnmap" || function == "cuMemSetAccess";
}

// Logs the call. True if this call must fail.
bool Fails(const char* function) {
  FakeDriverState& s = TheFakeDriver();
  s.log.push_back(function);
  s.forbidden_calls += ChangesMemory(function) &&
                       s.capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  const int left = s.fail == function ? s.fail_after-- : 1;
  return left <= 0 && left > -s.fail_times;
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
  *device = TheFakeDriver().current_device;
  return Fails("cuCtxGetDevice") ? Failure() : CUDA_SUCCESS;
}

CUresult GetUuid(CUuuid* uuid, CUdevice) {
  memcpy(uuid->bytes, kFakeGpu, sizeof(uuid->bytes));
  return Fails("cuDeviceGetUuid") ? Failure() : CUDA_SUCCESS;
}

CUcontext Current() {
  const FakeDriverState& s = TheFakeDriver();
  if (!s.pushed.empty()) return s.pushed.back();
  return s.no_context ? nullptr : reinterpret_cast<CUcontext>(&TheFakeDriver());
}

CUcontext ContextOfStreams() {
  const CUcontext own = TheFakeDriver().stream_context;
  return own != nullptr ? own : Current();
}

CUresult GetCurrent(CUcontext* context) {
  *context = Current();
  return Fails("cuCtxGetCurrent") ? Failure() : CUDA_SUCCESS;
}

CUresult Push(CUcontext context) {
  if (Fails("cuCtxPushCurrent")) return Failure();
  if (TheFakeDriver().destroyed.count(context) != 0) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  TheFakeDriver().pushed.push_back(context);
  return CUDA_SUCCESS;
}

CUresult Pop(CUcontext*) {
  if (Fails("cuCtxPopCurrent")) return Failure();
  if (TheFakeDriver().pushed.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  TheFakeDriver().pushed.pop_back();
  return CUDA_SUCCESS;
}

CUresult Synchronize() {
  if (Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return Fails("cuCtxSynchronize") ? Failure() : CUDA_SUCCESS;
}

CUresult RetainPrimary(CUcontext* context, CUdevice) {
  *context = TheFakeDriver().primary;
  ++TheFakeDriver().primary_references;
  return CUDA_SUCCESS;
}

CUresult ReleasePrimary(CUdevice) {
  --TheFakeDriver().primary_references;
  return CUDA_SUCCESS;
}

CUresult PrimaryState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = TheFakeDriver().primary != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult Reserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                 unsigned long long) {
  if (Fails("cuMemAddressReserve")) return Failure();
  FakeDriverState& s = TheFakeDriver();
  if (s.reserved_bytes == 0) s.next_address = kReserved;
  *address = s.next_address;
  s.next_address += bytes;
  s.reserved_bytes += bytes;
  return CUDA_SUCCESS;
}

CUresult AddressFree(CUdeviceptr address, size_t bytes) {
  TheFakeDriver().touched.push_back({address, bytes});
  if (Fails("cuMemAddressFree")) return Failure();
  TheFakeDriver().reserved_bytes -= bytes;
  return CUDA_SUCCESS;
}

CUresult Import(CUmemGenericAllocationHandle* handle, void* shareable,
                CUmemAllocationHandleType) {
  if (Fails("cuMemImport")) return Failure();
  uint32_t number = 0;  // from 1; 0 if it is not of the pool
  const auto fd = static_cast<int>(reinterpret_cast<uintptr_t>(shareable));
  if (pread(fd, &number, sizeof(number), 0) == sizeof(number) && number != 0) {
    *handle = kPoolHandle + number - 1;
  } else {
    *handle = TheFakeDriver().next_handle++;
  }
  ++TheFakeDriver().handles;
  return CUDA_SUCCESS;
}

CUresult Retain(CUmemGenericAllocationHandle* handle, void* address) {
  if (Fails("cuMemRetain")) return Failure();
  FakeDriverState& s = TheFakeDriver();
  const auto at = s.mappings.find(reinterpret_cast<CUdeviceptr>(address));
  if (at == s.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  *handle = at->second.handle;
  ++s.handles;
  return CUDA_SUCCESS;
}

CUresult Export(void* shareable, CUmemGenericAllocationHandle handle,
                CUmemAllocationHandleType, unsigned long long) {
  if (Fails("cuMemExport")) return Failure();
  const int fd = memfd_create("memory", MFD_CLOEXEC);
  *static_cast<int*>(shareable) = fd;
  return pwrite(fd, &handle, sizeof(handle), 0) == sizeof(handle)
             ? CUDA_SUCCESS
             : CUDA_ERROR_UNKNOWN;
}

CUresult Release(CUmemGenericAllocationHandle handle) {
  if (Fails("cuMemRelease")) return Failure();
  FakeDriverState& s = TheFakeDriver();
  const auto created = s.created.find(handle);
  if (created == s.created.end()) {
    --s.handles;
    return CUDA_SUCCESS;
  }
  s.free_bytes += created->second;
  s.created.erase(created);
  return CUDA_SUCCESS;
}

CUresult Map(CUdeviceptr address, size_t bytes, size_t,
             CUmemGenericAllocationHandle handle, unsigned long long) {
  TheFakeDriver().touched.push_back({address, bytes});
  if (Fails("cuMemMap")) return Failure();
  FakeDriverState& s = TheFakeDriver();
  const auto next = s.mappings.lower_bound(address);
  const bool over_next =
      next != s.mappings.end() && next->first < address + bytes;
  const bool over_last =
      next != s.mappings.begin() &&
      std::prev(next)->first + std::prev(next)->second.bytes > address;
  if (over_next || over_last) return CUDA_ERROR_ALREADY_MAPPED;
  const auto created = s.created.find(handle);
  if (created != s.created.end() && created->second != bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  s.mappings[address] = {bytes, handle, false};
  s.mapped_bytes += bytes;
  return CUDA_SUCCESS;
}

// True if the range consists of whole mappings, and one call may cover them.
bool IsTiled(CUdeviceptr address, uint64_t bytes) {
  const auto& mappings = TheFakeDriver().mappings;
  CUdeviceptr at = address;
  std::set<CUmemGenericAllocationHandle> handles;
  while (at < address + bytes) {
    const auto found = mappings.find(at);
    if (found == mappings.end()) return false;
    if (!handles.insert(found->second.handle).second &&
        TheFakeDriver().aliases_apart) {
      return false;
    }
    at += found->second.bytes;
  }
  return at == address + bytes;
}

CUresult Unmap(CUdeviceptr address, size_t bytes) {
  TheFakeDriver().touched.push_back({address, bytes});
  if (Fails("cuMemUnmap")) return Failure();
  if (!IsTiled(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  auto& mappings = TheFakeDriver().mappings;
  mappings.erase(mappings.find(address), mappings.lower_bound(address + bytes));
  TheFakeDriver().mapped_bytes -= bytes;
  return CUDA_SUCCESS;
}

CUresult SetAccess(CUdeviceptr address, size_t bytes,
                   const CUmemAccessDesc* access, size_t) {
  TheFakeDriver().touched.push_back({address, bytes});
  if (Fails("cuMemSetAccess")) return Failure();
  if (!IsTiled(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  FakeDriverState& s = TheFakeDriver();
  if (access->location.id != 0) {
    s.peers[{address, access->location.id}] = access->flags;
    return CUDA_SUCCESS;
  }
  for (auto m = s.mappings.find(address);
       m != s.mappings.end() && m->first < address + bytes; ++m) {
    m->second.accessible = true;
    m->second.access = access->flags;
  }
  s.accessible_bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult Granularity(size_t* bytes, const CUmemAllocationProp*,
                     CUmemAllocationGranularity_flags) {
  *bytes = kFakeGranularity;
  return Fails("cuMemGetAllocationGranularity") ? Failure() : CUDA_SUCCESS;
}

CUresult Memset(CUdeviceptr address, unsigned char value, size_t bytes) {
  if (Fails("cuMemset")) return Failure();
  FakeDriverState& s = TheFakeDriver();
  const auto at = s.mappings.find(address);
  if (at == s.mappings.end() || at->second.bytes != bytes || value != 0 ||
      !at->second.accessible) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  s.zeroed.push_back(at->second.handle);
  return CUDA_SUCCESS;
}

// Copies are of whole mappings.
std::string* ContentsAt(CUdeviceptr address, size_t bytes) {
  FakeDriverState& s = TheFakeDriver();
  const auto at = s.mappings.find(address);
  if (at == s.mappings.end() || at->second.bytes != bytes ||
      !at->second.accessible) {
    return nullptr;
  }
  std::string& contents = s.contents[at->second.handle];
  contents.resize(bytes, '\xa5');
  return &contents;
}

CUresult CopyToDevice(CUdeviceptr to, const void* from, size_t bytes) {
  if (Fails("cuMemcpyHtoD")) return Failure();
  std::string* contents = ContentsAt(to, bytes);
  if (contents == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  contents->assign(static_cast<const char*>(from), bytes);
  return CUDA_SUCCESS;
}

CUresult CopyToHost(void* to, CUdeviceptr from, size_t bytes) {
  if (Fails("cuMemcpyDtoH")) return Failure();
  const std::string* contents = ContentsAt(from, bytes);
  if (contents == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  memcpy(to, contents->data(), bytes);
  return CUDA_SUCCESS;
}

CUresult CopyOnDevice(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                      CUstream) {
  if (Fails("cuMemcpyDtoD")) return Failure();
  const std::string* const source = ContentsAt(from, bytes);
  std::string* const target = ContentsAt(to, bytes);
  if (source == nullptr || target == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  *target = *source;
  return CUDA_SUCCESS;
}

CUresult PropertiesOf(CUmemAllocationProp* prop, CUmemGenericAllocationHandle) {
  prop->location.id = TheFakeDriver().imported_device;
  return CUDA_SUCCESS;
}

CUresult CanAccessPeer(int* can, CUdevice, CUdevice) {
  *can = TheFakeDriver().reaches_peers ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult GetAttribute(int* value, driver::CUdevice_attribute attribute,
                      CUdevice) {
  *value =
      attribute ==
          driver::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED &&
      TheFakeDriver().rdma_capable;
  return CUDA_SUCCESS;
}

CUresult Create(CUmemGenericAllocationHandle* handle, size_t bytes,
                const CUmemAllocationProp*, unsigned long long) {
  if (Fails("cuMemCreate")) return Failure();
  FakeDriverState& s = TheFakeDriver();
  if (bytes > s.free_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  s.free_bytes -= bytes;
  *handle = kDriversHandle + s.next_created++;
  s.created[*handle] = bytes;
  return CUDA_SUCCESS;
}

CUresult GetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (Fails("cuMemGetInfo")) return Failure();
  *free_bytes = TheFakeDriver().free_bytes;
  *total_bytes = kFakeTotalBytes;
  return CUDA_SUCCESS;
}

CUresult CreateEvent(CUevent* event, unsigned) {
  if (Fails("cuEventCreate")) return Failure();
  *event = reinterpret_cast<CUevent>(&TheFakeDriver());
  TheFakeDriver().event_context = Current();
  ++TheFakeDriver().events;
  return CUDA_SUCCESS;
}

CUresult StreamContext(CUstream, CUcontext* context) {
  *context = ContextOfStreams();
  return CUDA_SUCCESS;
}

// Like a driver, the fake records an event only on a stream of its context.
CUresult RecordEvent(CUevent, CUstream) {
  if (Fails("cuEventRecord")) return Failure();
  return TheFakeDriver().event_context == ContextOfStreams()
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_HANDLE;
}

CUresult QueryEvent(CUevent) {
  FakeDriverState& s = TheFakeDriver();
  s.forbidden_calls += s.capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
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

CUresult PoolAccess(CUmemAccess_flags* flags, CUmemoryPool,
                    CUmemLocation* location) {
  FakeDriverState& s = TheFakeDriver();
  *flags = location->id == 0 ? s.pool_access : s.pool_peers[location->id];
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
  d.entry.cuDeviceGetCount = [](int* count) {
    *count = TheFakeDriver().devices;
    return CUDA_SUCCESS;
  };
  d.entry.cuDeviceGetMemPool = [](CUmemoryPool* pool, CUdevice) {
    *pool = reinterpret_cast<CUmemoryPool>(&TheFakeDriver());
    return CUDA_SUCCESS;
  };
  d.entry.cuDeviceGetUuid_v2 = &GetUuid;
  d.entry.cuCtxGetCurrent = &GetCurrent;
  d.entry.cuCtxPushCurrent_v2 = &Push;
  d.entry.cuCtxPopCurrent_v2 = &Pop;
  d.entry.cuCtxSynchronize = &Synchronize;
  d.entry.cuDevicePrimaryCtxRetain = &RetainPrimary;
  d.entry.cuDevicePrimaryCtxRelease_v2 = &ReleasePrimary;
  d.entry.cuDevicePrimaryCtxGetState = &PrimaryState;
  d.entry.cuMemAddressReserve = &Reserve;
  d.entry.cuMemAddressFree = &AddressFree;
  d.entry.cuMemImportFromShareableHandle = &Import;
  d.entry.cuMemRelease = &Release;
  d.entry.cuMemMap = &Map;
  d.entry.cuMemUnmap = &Unmap;
  d.entry.cuMemSetAccess = &SetAccess;
  d.entry.cuMemCreate = &Create;
  d.entry.cuMemRetainAllocationHandle = &Retain;
  d.entry.cuMemExportToShareableHandle = &Export;
  d.entry.cuMemGetInfo_v2 = &GetInfo;
  d.entry.cuMemGetAllocationGranularity = &Granularity;
  d.entry.cuMemsetD8_v2 = &Memset;
  d.entry.cuMemcpyHtoD_v2 = &CopyToDevice;
  d.entry.cuMemcpyDtoH_v2 = &CopyToHost;
  d.entry.cuMemcpyDtoDAsync_v2 = &CopyOnDevice;
  d.entry.cuMemGetAllocationPropertiesFromHandle = &PropertiesOf;
  d.entry.cuDeviceCanAccessPeer = &CanAccessPeer;
  d.entry.cuStreamCreate = [](CUstream*, unsigned) {
    return Fails("cuStreamCreate") ? Failure() : CUDA_SUCCESS;
  };
  d.entry.cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
  d.entry.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
  d.entry.cuDeviceGetAttribute = &GetAttribute;
  d.entry.cuEventCreate = &CreateEvent;
  d.entry.cuEventRecord = &RecordEvent;
  d.entry.cuEventQuery = &QueryEvent;
  d.entry.cuEventDestroy_v2 = &DestroyEvent;
  d.entry.cuStreamIsCapturing = &IsCapturing;
  d.entry.cuStreamGetCtx = &StreamContext;
  d.entry.cuThreadExchangeStreamCaptureMode = &ExchangeCaptureMode;
  d.entry.cuMemPoolGetAccess = &PoolAccess;
  return d;
}

}  // namespace fineserve::shim
