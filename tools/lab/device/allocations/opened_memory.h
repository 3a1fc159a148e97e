#ifndef TOOLS_LAB_DEVICE_ALLOCATIONS_OPENED_MEMORY_H_
#define TOOLS_LAB_DEVICE_ALLOCATIONS_OPENED_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>

#include "tools/lab/device/allocations/shared_block.h"
#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/virtual_memory/address_space.h"

namespace fineserve::emucuda {

// Memory of other processes that cuIpcOpenMemHandle opened. Opening a handle
// again increments a count and yields the same address. Thread-safe.
class OpenedMemory {
 public:
  explicit OpenedMemory(AddressSpace& space) : space_(space) {}

  // Returns INVALID_CONTEXT for this process's own memory, as a real driver
  // does.
  CUresult Open(const DeviceList& devices, const Context& owner,
                const SharedBlock& block, CUdeviceptr* address);
  // Returns INVALID_VALUE if `address` did not come from Open.
  CUresult Close(CUdeviceptr address);

  bool Find(CUdeviceptr address, MemoryBlock* block) const;

 private:
  struct Opened {
    SharedBlock shared;
    std::shared_ptr<const MemoryObject> object;
    const Context* owner = nullptr;
    int count = 0;
  };

  AddressSpace& space_;
  mutable Mutex mutex_;
  std::map<CUdeviceptr, Opened> opened_ EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_ALLOCATIONS_OPENED_MEMORY_H_
