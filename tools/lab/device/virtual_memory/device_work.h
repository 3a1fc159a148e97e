#ifndef TOOLS_LAB_DEVICE_VIRTUAL_MEMORY_DEVICE_WORK_H_
#define TOOLS_LAB_DEVICE_VIRTUAL_MEMORY_DEVICE_WORK_H_

#include <cstdint>

#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/virtual_memory/address_space.h"

namespace fineserve::emucuda {

// The work that the emulated device does on memory, as `device`. It goes
// through the device's file, not through the mapped addresses, so unmapped or
// forbidden memory and a bad host pointer return ILLEGAL_ADDRESS and never
// raise SIGSEGV. A copy that reads a bad page returns ECC_UNCORRECTABLE.
// LAUNCH_FAILED means that the host's file system is full. Thread-safe.

// `width` (1, 2 or 4) bytes of `value`, repeated; `bytes` must be a multiple of
// `width`. A large fill with zero frees the pages instead of writing to them.
struct Pattern {
  uint32_t value = 0;
  uint32_t width = 1;
};
CUresult Fill(const AddressSpace& space, int device, CUdeviceptr to,
              Pattern pattern, uint64_t bytes);

CUresult CopyIn(const AddressSpace& space, int device, CUdeviceptr to,
                const void* from, uint64_t bytes);
CUresult CopyOut(const AddressSpace& space, int device, void* to,
                 CUdeviceptr from, uint64_t bytes);
CUresult CopyWithin(const AddressSpace& space, int device, CUdeviceptr to,
                    CUdeviceptr from, uint64_t bytes);

// An address, and whether it was a device address when the work was submitted,
// so that device memory which has been freed since is not mistaken for host
// memory.
struct Place {
  CUdeviceptr address = 0;
  bool on_device = false;
};
CUresult Copy(const AddressSpace& space, int device, Place to, Place from,
              uint64_t bytes);
CUresult FillPlace(const AddressSpace& space, int device, Place to,
                   Pattern pattern, uint64_t bytes);

// `depth` slices of `height` rows of `width` bytes. Pitches and slices are
// distances in bytes.
struct Box {
  Place to;
  Place from;
  uint64_t to_pitch = 0;
  uint64_t from_pitch = 0;
  uint64_t to_slice = 0;
  uint64_t from_slice = 0;
  uint64_t width = 0;
  uint64_t height = 0;
  uint64_t depth = 0;
};
CUresult CopyBox(const AddressSpace& space, int device, const Box& box);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_VIRTUAL_MEMORY_DEVICE_WORK_H_
