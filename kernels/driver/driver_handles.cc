#include "kernels/driver/driver_handles.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "kernels/driver/status.h"

namespace fineserve::driver {
namespace {

std::atomic<uint64_t> refused_releases{0};

// Relaxed: a statistic that publishes no other data.
void CountIfRefused(CUresult result) {
  if (result != CUDA_SUCCESS) {
    refused_releases.fetch_add(1, std::memory_order_relaxed);
  }
}

// Network cards can use the memory if the device supports that, since a program
// may ask for such memory and a granule cannot be changed later.
CUmemAllocationProp PropFor(const EntryPoints& call, CUdevice device) {
  CUmemAllocationProp prop = {};
  int capable = 0;
  call.cuDeviceGetAttribute(
      &capable, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
      device);
  prop.allocFlags.gpuDirectRDMACapable = capable != 0;
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return prop;
}

}  // namespace

uint64_t release_failures() {
  return refused_releases.load(std::memory_order_relaxed);
}

absl::StatusOr<Context> Context::Retain(const Driver& driver, CUdevice device) {
  CUcontext context = nullptr;
  const EntryPoints& call = driver.call();
  absl::Status s =
      ToStatus(call, call.cuDevicePrimaryCtxRetain(&context, device),
               absl::StrCat("cuDevicePrimaryCtxRetain(device ", device, ")"));
  if (!s.ok()) return s;
  Context owner(driver, device, context);
  s = ToStatus(call, call.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  if (!s.ok()) return s;
  return owner;
}

Context::Context(Context&& other) noexcept
    : driver_(std::move(other.driver_)),
      device_(other.device_),
      context_(other.context_),
      owns_(std::exchange(other.owns_, false)) {}

void Context::MakeCurrent() const { driver_.call().cuCtxSetCurrent(context_); }

Context::~Context() {
  if (owns_) {
    CountIfRefused(driver_.call().cuDevicePrimaryCtxRelease_v2(device_));
  }
}

absl::StatusOr<uint64_t> FreeBytes(const Driver& driver) {
  const EntryPoints& call = driver.call();
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  absl::Status s = ToStatus(
      call, call.cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo");
  if (!s.ok()) return s;
  return free_bytes;
}

absl::StatusOr<Granule> Granule::Create(const Driver& driver, CUdevice device,
                                        uint64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  const EntryPoints& call = driver.call();
  CUmemAllocationProp prop = PropFor(call, device);
  CUresult result = call.cuMemCreate(&handle, bytes, &prop, 0);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY &&
      prop.allocFlags.gpuDirectRDMACapable != 0) {
    // The device supports GPUDirect RDMA, but its (virtual) machine may not.
    prop.allocFlags.gpuDirectRDMACapable = 0;
    result = call.cuMemCreate(&handle, bytes, &prop, 0);
  }
  absl::Status s =
      ToStatus(call, result, absl::StrCat("cuMemCreate(", bytes, " bytes)"));
  if (!s.ok()) return s;
  return Granule(driver, handle, bytes);
}

absl::StatusOr<Granule> Granule::Import(const Driver& driver, int descriptor,
                                        uint64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  const EntryPoints& call = driver.call();
  // The CUDA API takes the descriptor as the value of a pointer.
  void* shareable = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
  absl::Status s = ToStatus(
      call,
      call.cuMemImportFromShareableHandle(
          &handle, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "cuMemImportFromShareableHandle");
  if (!s.ok()) return s;
  return Granule(driver, handle, bytes);
}

Granule::Granule(Granule&& other) noexcept
    : driver_(std::move(other.driver_)),
      handle_(std::exchange(other.handle_, 0)),
      bytes_(other.bytes_) {}

Granule::~Granule() {
  if (handle_ != 0) CountIfRefused(driver_.call().cuMemRelease(handle_));
}

absl::StatusOr<Descriptor> Granule::Export() const {
  int descriptor = -1;
  const EntryPoints& call = driver_.call();
  absl::Status s = ToStatus(
      call,
      call.cuMemExportToShareableHandle(
          &descriptor, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "cuMemExportToShareableHandle");
  if (!s.ok()) return s;
  return Descriptor(descriptor);
}

absl::StatusOr<Reservation> Reservation::Create(const Driver& driver,
                                                uint64_t bytes) {
  CUdeviceptr address = 0;
  const EntryPoints& call = driver.call();
  absl::Status s =
      ToStatus(call, call.cuMemAddressReserve(&address, bytes, 0, 0, 0),
               absl::StrCat("cuMemAddressReserve(", bytes, " bytes)"));
  if (!s.ok()) return s;
  return Reservation(driver, address, bytes);
}

Reservation::Reservation(Reservation&& other) noexcept
    : driver_(std::move(other.driver_)),
      address_(std::exchange(other.address_, 0)),
      bytes_(other.bytes_) {}

Reservation::~Reservation() {
  if (address_ != 0) {
    CountIfRefused(driver_.call().cuMemAddressFree(address_, bytes_));
  }
}

absl::StatusOr<Mapping> Mapping::Create(const Driver& driver,
                                        CUdeviceptr address,
                                        const Granule& granule) {
  const EntryPoints& call = driver.call();
  absl::Status s = ToStatus(
      call, call.cuMemMap(address, granule.bytes(), 0, granule.handle(), 0),
      absl::StrCat("cuMemMap(", granule.bytes(), " bytes at 0x",
                   absl::Hex(address), ")"));
  if (!s.ok()) return s;
  return Mapping(driver, address, granule.bytes());
}

Mapping::Mapping(Mapping&& other) noexcept
    : driver_(std::move(other.driver_)),
      address_(std::exchange(other.address_, 0)),
      bytes_(other.bytes_) {}

Mapping::~Mapping() {
  if (address_ != 0) {
    CountIfRefused(driver_.call().cuMemUnmap(address_, bytes_));
  }
}

absl::Status AllowReadWrite(const Driver& driver, CUdevice device,
                            CUdeviceptr address, uint64_t bytes) {
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const EntryPoints& call = driver.call();
  return ToStatus(call, call.cuMemSetAccess(address, bytes, &access, 1),
                  absl::StrCat("cuMemSetAccess(", bytes, " bytes at 0x",
                               absl::Hex(address), ")"));
}

absl::StatusOr<uint64_t> AllocationGranularity(const Driver& driver,
                                               CUdevice device) {
  size_t bytes = 0;
  const EntryPoints& call = driver.call();
  const CUmemAllocationProp prop = PropFor(call, device);
  absl::Status s =
      ToStatus(call,
               call.cuMemGetAllocationGranularity(
                   &bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
               "cuMemGetAllocationGranularity");
  if (!s.ok()) return s;
  return bytes;
}

}  // namespace fineserve::driver
