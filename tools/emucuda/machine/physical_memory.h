#ifndef TOOLS_EMUCUDA_MACHINE_PHYSICAL_MEMORY_H_
#define TOOLS_EMUCUDA_MACHINE_PHYSICAL_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tools/emucuda/machine/annotated_mutex.h"
#include "tools/emucuda/machine/control_file.h"
#include "tools/emucuda/machine/driver_types.h"
#include "tools/emucuda/machine/range_locks.h"

namespace fineserve::emucuda {

class Allocation;

// One device's physical memory, shared by all processes of a state folder.
//
// A granule is a range of gpuN.memory. It is in use as long as some file
// description holds an OFD read lock on it:
//   - each process has one description for all that it references; a count per
//     granule decides when its lock goes (adjacent locks merge in the kernel,
//     so only a granule's exact range may be unlocked);
//   - an exported descriptor is a description of its own, whose file offset is
//     the granule's start: it keeps memory alive in flight, even after the
//     exporter's death. The length stands in the control file's directory.
// To allocate: inside the critical section of all processes, find an unlocked
// range, take it by a write lock, punch a hole (so that it reads zero and dead
// owners' pages go back to the host), record its length, downgrade to a read
// lock. A process killed in between leaves nothing, for locks die with it.
//
// Thread-safe. Lives as long as the process (allocations point to it).
class PhysicalMemory {
 public:
  // nullptr if the files cannot be opened or sized. Fresh memory reads as the
  // byte `poison` instead of zero if there is one.
  static std::unique_ptr<PhysicalMemory> Open(
      const StateFolder& folder, int device, uint64_t wanted_bytes,
      std::optional<uint8_t> poison = std::nullopt);

  // A fresh granule that reads zero (or poison); `bytes` is a multiple of
  // kGranularity. OUT_OF_MEMORY if no contiguous range is free.
  // Whether it is for network cards too is kept for whoever imports it.
  CUresult Allocate(uint64_t bytes, std::shared_ptr<Allocation>* allocation,
                    bool rdma_capable = false);

  // A new CLOEXEC descriptor that names the granule and keeps it alive.
  CUresult Export(const Allocation& allocation, Descriptor* descriptor);

  // The granule named by an exported descriptor, which stays the caller's.
  // INVALID_VALUE if it names none of this device.
  CUresult Import(int fd, std::shared_ptr<Allocation>* allocation);

  // The granule that starts at `start`, if it is still the one with that serial
  // number and somebody references it; else INVALID_VALUE.
  CUresult Attach(uint64_t start, uint64_t serial,
                  std::shared_ptr<Allocation>* allocation);

  // Overwrites a part of an allocation of this process with poison, if any.
  void Poison(ByteRange range) const;

  // Referenced by any process or exported descriptor.
  uint64_t UsedBytes() const;
  uint64_t TotalBytes() const { return control_->memory_bytes(); }

  // Enters this process into the device's client list, once.
  void ClaimSlot() EMUCUDA_EXCLUDES(mutex_);
  std::vector<ControlFile::Client> Clients() const {
    return control_->Clients();
  }

  int fd() const { return memory_.get(); }
  int control_fd() const { return control_->fd(); }

  // Held across fork, so that no child inherits a locked critical section.
  void LockForFork() EMUCUDA_ANNOTATE(acquire_capability(mutex_)) {
    mutex_.Lock();
  }
  void UnlockAfterFork() EMUCUDA_ANNOTATE(release_capability(mutex_)) {
    mutex_.Unlock();
  }

 private:
  friend class Allocation;

  PhysicalMemory(Descriptor memory, Descriptor probe,
                 std::unique_ptr<ControlFile> control,
                 std::optional<uint8_t> poison)
      : memory_(std::move(memory)),
        probe_(std::move(probe)),
        control_(std::move(control)),
        poison_(poison) {}

  // INVALID_VALUE, or the granule that `fd` names.
  CUresult Identify(int fd, ByteRange* granule) const;
  // INVALID_VALUE, or the referenced granule that starts at `start`.
  CUresult Look(uint64_t start, ByteRange* granule, uint64_t* serial) const;
  // Takes a free range with a write lock.
  CUresult Take(uint64_t bytes, ByteRange* granule) EMUCUDA_REQUIRES(mutex_);
  // Zeroes, records and publishes a range taken with a write lock.
  CUresult Publish(ByteRange granule, bool rdma_capable, uint64_t* serial)
      EMUCUDA_REQUIRES(mutex_);
  CUresult Reference(ByteRange granule) EMUCUDA_REQUIRES(mutex_);
  void Release(const Allocation& allocation) EMUCUDA_EXCLUDES(mutex_);

  const Descriptor memory_;  // its locks are this process's references
  const Descriptor probe_;   // holds no lock, hence sees everybody's
  const std::unique_ptr<ControlFile> control_;
  const std::optional<uint8_t> poison_;

  Mutex mutex_;
  std::map<uint64_t, int> references_ EMUCUDA_GUARDED_BY(mutex_);  // by start
  bool slot_claimed_ EMUCUDA_GUARDED_BY(mutex_) = false;
  // Allocated here, not imported.
  uint64_t own_bytes_ EMUCUDA_GUARDED_BY(mutex_) = 0;
};

// One reference of this process to a granule, dropped on destruction.
// Immutable, hence thread-safe.
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
  bool rdma_capable() const { return ControlFile::RdmaCapable(serial_); }

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

#endif  // TOOLS_EMUCUDA_MACHINE_PHYSICAL_MEMORY_H_
