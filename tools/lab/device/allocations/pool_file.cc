#include "tools/lab/device/allocations/pool_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <optional>
#include <utility>

namespace fineserve::emucuda {
namespace {

struct PoolFile {
  static constexpr uint64_t kMagic = 0x6c6f6f70756d65ull;  // "emupool"
  uint64_t magic = 0;
  Uuid device = {};
};

}  // namespace

CUresult ExportPool(const DeviceList& devices, const MemPool& pool,
                    Descriptor* file) {
  if (pool.props().handleTypes !=
          driver::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      pool.imported()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Descriptor fresh(memfd_create("emucuda-pool", MFD_CLOEXEC));
  const PoolFile content = {PoolFile::kMagic, devices[pool.device()].uuid};
  if (!fresh.valid() || pwrite(fresh.get(), &content, sizeof(content), 0) !=
                            static_cast<ssize_t>(sizeof(content))) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *file = std::move(fresh);
  return CUDA_SUCCESS;
}

CUresult ImportPool(const DeviceList& devices, int fd, PoolTable& pools,
                    CUmemoryPool* pool) {
  PoolFile content;
  if (pread(fd, &content, sizeof(content), 0) !=
          static_cast<ssize_t>(sizeof(content)) ||
      content.magic != PoolFile::kMagic) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::optional<int> device = devices.Find(content.device);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  driver::CUmemPoolProps props = {};
  props.allocType = driver::CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = driver::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  props.location = {driver::CU_MEM_LOCATION_TYPE_DEVICE, *device};
  *pool = pools.Create(devices.memory(*device), props, /*imported=*/true);
  return CUDA_SUCCESS;
}

}  // namespace fineserve::emucuda
