#ifndef TOOLS_LAB_DEVICE_VIRTUAL_MEMORY_ADDRESS_SPACE_H_
#define TOOLS_LAB_DEVICE_VIRTUAL_MEMORY_ADDRESS_SPACE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/virtual_memory/memory_handles.h"

namespace fineserve::emucuda {

// The physical memory behind part of a virtual range. It shares ownership of
// the memory, so that a copy in flight never reads the bytes of a later owner.
struct Segment {
  std::shared_ptr<const MemoryObject> object;
  uint64_t file_offset = 0;
  uint64_t bytes = 0;
};

// The process's device addresses: reservations (PROT_NONE, anonymous), and
// inside them mappings of memory objects (MAP_SHARED of the device file).
//
// Invariants: reservations do not overlap; neither do mappings; each mapping is
// inside one reservation. Device work uses Resolve() and the device file, never
// these addresses, so unmapping cannot make a running copy fault.
//
// A program that touches device memory from the host faults, as on a GPU: the
// addresses are PROT_NONE, but for managed memory, and while a HostWindow is
// open. Then a mapping's protection is the widest access that any device has.
//
// Thread-safe. All lookups are O(log n). Mappings are not inherited by forked
// children.
class AddressSpace {
 public:
  CUresult Reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr wanted,
                   CUdeviceptr* address);
  // Frees exactly one reservation, in which nothing is mapped.
  CUresult Free(CUdeviceptr address, uint64_t bytes);

  // Maps the whole object at unmapped addresses inside one reservation.
  CUresult Map(CUdeviceptr address, uint64_t bytes,
               std::shared_ptr<const MemoryObject> object);
  // For both functions, the range must consist of whole, adjacent mappings.
  CUresult Unmap(CUdeviceptr address, uint64_t bytes);
  CUresult SetAccess(CUdeviceptr address, uint64_t bytes, int device,
                     driver::CUmemAccess_flags access);

  // Reserves as many addresses as the object has bytes, and maps the object
  // there for its own device. Used for memory that the driver itself places.
  CUresult Place(std::shared_ptr<const MemoryObject> object,
                 CUdeviceptr* address);
  // Undoes Place.
  void Remove(CUdeviceptr address, uint64_t bytes);

  // Gets the access that `device` has at an address. Returns INVALID_VALUE if
  // nothing is mapped there.
  CUresult GetAccess(CUdeviceptr address, int device,
                     driver::CUmemAccess_flags* access) const;
  // Finds the mapping around an address. Returns INVALID_VALUE if there is
  // none.
  CUresult GetMapping(CUdeviceptr address, CUdeviceptr* base, uint64_t* bytes,
                      std::shared_ptr<const MemoryObject>* object) const;

  // Lets host code access device memory, for kernels that are host functions.
  class HostWindow {
   public:
    explicit HostWindow(AddressSpace& space) : space_(space) {
      space_.ChangeWindows(1);
    }
    ~HostWindow() { space_.ChangeWindows(-1); }
    HostWindow(const HostWindow&) = delete;
    HostWindow& operator=(const HostWindow&) = delete;

   private:
    AddressSpace& space_;
  };

  // True if one handle is mapped more than once in the range.
  bool HasAliases(CUdeviceptr address, uint64_t bytes) const;

  // True if the address is in a reservation, and is therefore a device address.
  bool Contains(CUdeviceptr address) const;

  // Finds the memory behind a range that `device` will read or write. Returns
  // ILLEGAL_ADDRESS if a byte is unmapped or the device lacks access. Every
  // device has access to memory that the driver itself placed.
  CUresult Resolve(int device, CUdeviceptr address, uint64_t bytes,
                   driver::CUmemAccess_flags wanted,
                   std::vector<Segment>* segments) const;

 private:
  struct Mapping {
    uint64_t bytes = 0;
    std::shared_ptr<const MemoryObject> object;
    std::array<driver::CUmemAccess_flags, kMaxDevices> access = {};
  };
  using Mappings = std::map<CUdeviceptr, Mapping>;

  bool IsReserved(CUdeviceptr address, uint64_t bytes) const
      EMUCUDA_REQUIRES(mutex_);
  bool AnyMapped(CUdeviceptr address, uint64_t bytes) const
      EMUCUDA_REQUIRES(mutex_);
  // True if the range consists of whole, adjacent mappings.
  bool Tiled(CUdeviceptr address, uint64_t bytes) const
      EMUCUDA_REQUIRES(mutex_);
  CUresult Protect(CUdeviceptr address, uint64_t bytes)
      EMUCUDA_REQUIRES(mutex_);
  // The host's access to a mapping.
  int Protection(const Mapping& mapping) const EMUCUDA_REQUIRES(mutex_);
  void ChangeWindows(int by) EMUCUDA_EXCLUDES(mutex_);

  mutable Mutex mutex_;
  std::map<CUdeviceptr, uint64_t> reservations_ EMUCUDA_GUARDED_BY(mutex_);
  Mappings mappings_ EMUCUDA_GUARDED_BY(mutex_);
  int windows_ EMUCUDA_GUARDED_BY(mutex_) = 0;  // open ones
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_VIRTUAL_MEMORY_ADDRESS_SPACE_H_
