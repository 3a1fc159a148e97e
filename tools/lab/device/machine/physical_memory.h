#ifndef TOOLS_LAB_DEVICE_MACHINE_PHYSICAL_MEMORY_H_
#define TOOLS_LAB_DEVICE_MACHINE_PHYSICAL_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/control_file.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/machine/range_locks.h"
#include "tools/lab/device/machine/state_folder.h"

namespace fineserve::emucuda {

class Allocation;

// One device's physical memory, which all processes of a state folder share.
//
// A granule is a range of gpuN.memory. It is in use as long as some file
// description holds an OFD read lock on it:
//   - Each process has one description for everything that it references. It
//     counts its references to a granule and drops the lock with the last one.
//     Adjacent locks merge in the kernel, so it may unlock only the granule's
//     exact range.
//   - An exported descriptor has a separate description, whose file offset is
//     the granule's start. It keeps the memory alive in flight, even after the
//     exporter's death. The control file's directory holds the length.
// No more is in use than the device has; the file has more, so that a free
// range is found where the free memory is in pieces. To allocate, a process
// enters the critical section, finds an unlocked range, takes it with a write
// lock, punches a hole (the range then reads zero, and a dead owner's pages
// return to the host), records its length and downgrades to a read lock. If it
// is killed in between it leaves nothing: its locks die with it.
//
// Thread-safe. It must live as long as the process, because allocations point
// to it.
class PhysicalMemory {
 public:
  // Returns null if the files cannot be opened or sized. If `poison` is given,
  // fresh memory reads as that byte instead of zero. For `mps_server`, see
  // ClaimSlot; for `is_persistent`, ControlFile::Open.
  static std::unique_ptr<PhysicalMemory> Open(
      const StateFolder& folder, int device, uint64_t wanted_bytes,
      std::optional<uint8_t> poison = std::nullopt, uint32_t mps_server = 0,
      bool is_persistent = true);

  // Allocates a granule that reads as zero (or poison); `bytes` must be a
  // multiple of kGranularity. Returns OUT_OF_MEMORY if less is free.
  CUresult Allocate(uint64_t bytes, std::shared_ptr<Allocation>* allocation);

  // Makes a CLOEXEC descriptor that names the granule and keeps it alive.
  CUresult Export(const Allocation& allocation, Descriptor* descriptor);

  // Takes a reference to the granule that an exported descriptor names; the
  // caller keeps the descriptor. Returns INVALID_VALUE if the descriptor names
  // no granule of this device.
  CUresult Import(int fd, std::shared_ptr<Allocation>* allocation);

  // Takes a reference to the granule at `start`. Returns INVALID_VALUE unless
  // the granule still has that serial number and some process references it.
  CUresult Attach(uint64_t start, uint64_t serial,
                  std::shared_ptr<Allocation>* allocation);

  // Overwrites part of an allocation of this process with poison, if poison is
  // set.
  void Poison(ByteRange range) const;

  // Makes the 2 MiB around `offset` a bad page: from now on reads of the page
  // fail, and once no process references it, it is not allocated again. Returns
  // false if there are too many bad pages.
  bool Spoil(uint64_t offset) EMUCUDA_EXCLUDES(mutex_);
  // True if a read of `range` would meet a bad page, which NVML then counts.
  bool MeetsBadPage(ByteRange range) const;

  // Returns how many bytes are referenced by any process or exported
  // descriptor.
  uint64_t UsedBytes() const;
  uint64_t TotalBytes() const { return control_->memory_bytes(); }

  // Takes what a context needs while it lives: `bytes` of memory (0 or a
  // multiple of kGranularity), and a place for this process in the device's
  // client list, which the process leaves with its last context. Dropping
  // `upkeep` releases both.
  CUresult OpenContext(uint64_t bytes, std::shared_ptr<const void>* upkeep)
      EMUCUDA_EXCLUDES(mutex_);
  std::vector<ControlFile::Client> Clients() const {
    return control_->Clients();
  }

  int fd() const { return memory_.get(); }
  int control_fd() const { return control_->fd(); }

  // Locks the mutex, which is held across fork so that no child inherits a
  // locked critical section.
  void LockForFork() EMUCUDA_ANNOTATE(acquire_capability(mutex_)) {
    mutex_.Lock();
  }
  void UnlockAfterFork() EMUCUDA_ANNOTATE(release_capability(mutex_)) {
    mutex_.Unlock();
  }

 private:
  friend class Allocation;

  PhysicalMemory(const StateFolder& folder, int device, Descriptor memory,
                 Descriptor probe, std::unique_ptr<ControlFile> control,
                 std::optional<uint8_t> poison, uint32_t mps_server)
      : folder_(folder),
        device_(device),
        memory_(std::move(memory)),
        probe_(std::move(probe)),
        control_(std::move(control)),
        poison_(poison),
        mps_server_(mps_server) {}

  // Allocates without poison.
  CUresult AllocateZeroed(uint64_t bytes,
                          std::shared_ptr<Allocation>* allocation)
      EMUCUDA_EXCLUDES(mutex_);
  void EnterClientList() EMUCUDA_EXCLUDES(mutex_);
  void LeaveClientList() EMUCUDA_EXCLUDES(mutex_);
  // Finds the granule that `fd` names. Returns INVALID_VALUE if there is none.
  CUresult Identify(int fd, ByteRange* granule) const;
  // Finds the granule that starts at `start` and is referenced. Returns
  // INVALID_VALUE if there is none.
  CUresult Look(uint64_t start, ByteRange* granule, uint64_t* serial) const;
  // Keeps bad pages that are free from being allocated, as long as this process
  // lives.
  void RetireBadPages() EMUCUDA_REQUIRES(mutex_);
  // Finds a free range, if possible in the first TotalBytes() of the file.
  std::optional<uint64_t> FindFree(uint64_t bytes) const;
  // Takes a free range under a write lock.
  CUresult Take(uint64_t bytes, ByteRange* granule) EMUCUDA_REQUIRES(mutex_);
  // Zeroes, records and publishes a range that was taken under a write lock.
  CUresult Publish(ByteRange granule, uint64_t* serial)
      EMUCUDA_REQUIRES(mutex_);
  CUresult Reference(ByteRange granule) EMUCUDA_REQUIRES(mutex_);
  void Release(const Allocation& allocation) EMUCUDA_EXCLUDES(mutex_);

  const StateFolder folder_;
  const int device_;
  const Descriptor memory_;  // its locks are this process's references
  const Descriptor probe_;   // holds no lock, and so sees the locks of all
  const std::unique_ptr<ControlFile> control_;
  const std::optional<uint8_t> poison_;
  const uint32_t mps_server_;

  Mutex mutex_;
  std::map<uint64_t, int> references_ EMUCUDA_GUARDED_BY(mutex_);  // by start
  int contexts_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  // Bytes that this process allocated, without imported ones.
  uint64_t own_bytes_ EMUCUDA_GUARDED_BY(mutex_) = 0;
};

// One reference of this process to a granule; the destructor drops it.
// Immutable, and therefore thread-safe.
class Allocation {
 public:
  ~Allocation() { memory_.Release(*this); }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  PhysicalMemory& memory() const { return memory_; }
  int fd() const { return memory_.fd(); }
  uint64_t offset() const { return granule_.start; }
  uint64_t bytes() const { return granule_.bytes(); }
  uint64_t serial() const { return serial_; }
  // True if a read of these bytes of the device's file fails.
  bool MeetsBadPage(uint64_t offset, uint64_t bytes) const {
    return memory_.MeetsBadPage({offset, offset + bytes});
  }

 private:
  friend class PhysicalMemory;
  enum class Origin { kOwn, kImported };
  Allocation(PhysicalMemory& memory, ByteRange granule, uint64_t serial,
             Origin origin)
      : memory_(memory), granule_(granule), serial_(serial), origin_(origin) {}

  PhysicalMemory& memory_;
  const ByteRange granule_;
  const uint64_t serial_;
  const Origin origin_;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_PHYSICAL_MEMORY_H_
