#ifndef TOOLS_LAB_DEVICE_LINGER_LINGER_H_
#define TOOLS_LAB_DEVICE_LINGER_LINGER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/lab/device/linger/linger_journal.h"
#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/device_list.h"
#include "tools/lab/device/machine/driver_lock.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/virtual_memory/address_space.h"
#include "tools/lab/device/virtual_memory/device_work.h"

namespace fineserve::emucuda {

// Lets device work outlive the process, as NVIDIA's deferred teardown does.
// While this is on, a helper process shares our descriptions of the device
// files, so that our memory and our place in NVML's list stay taken when we
// die. Queued writes are in a journal; the helper performs those that are left,
// and exits as soon as there is nothing to do. Thread-safe.
//
// Fills of one row, kernels that only fill, and copies within a device linger,
// at most kLingerEntries contiguous pieces at a time; other work dies with the
// process. The helper
// starts its work only when forked children of the process are dead, too.
class Linger {
 public:
  // The journal entries of one operation, which owns them and drops them when
  // it ends.
  class Record;

  // How long a dead process's driver takes until queued writes are done, and
  // then to free the process's memory, during which it holds the lock.
  struct Times {
    unsigned linger_ms = 0;
    unsigned teardown_us_per_gib = 0;
  };
  // Sets the times. The first call with a time other than 0 starts the helper;
  // later calls change the times, and 0 turns one off. Returns false and sets
  // `complaint` if the helper cannot be started.
  bool Set(const Times& times, const DeviceList& devices,
           const DriverLock& lock, std::string* complaint);

  // Both functions return null if lingering is off or the journal is full.
  std::shared_ptr<Record> QueueFill(const AddressSpace& space, int device,
                                    CUdeviceptr to, Pattern pattern,
                                    uint64_t bytes);
  std::shared_ptr<Record> QueueCopy(const AddressSpace& space, int device,
                                    CUdeviceptr to, CUdeviceptr from,
                                    uint64_t bytes);

 private:
  bool Start(const DeviceList& devices, const DriverLock& lock,
             std::string* complaint) EMUCUDA_REQUIRES(mutex_);
  bool on() const;
  LingerEntry* TakeEntry() EMUCUDA_REQUIRES(mutex_);
  // Adds a piece to `record`. Returns false if the journal is full.
  bool Add(const LingerEntry& piece, Record* record) EMUCUDA_REQUIRES(mutex_);

  Mutex mutex_;
  // Set once: stored with release in Start, loaded with acquire in on().
  std::atomic<LingerJournal*> journal_{nullptr};
  Descriptor pipe_ EMUCUDA_GUARDED_BY(mutex_);  // its closing wakes the helper
  uint64_t sequence_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  uint32_t next_ EMUCUDA_GUARDED_BY(mutex_) = 0;  // the search starts here
};

class Linger::Record {
 public:
  Record() = default;
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

 private:
  friend class Linger;
  std::vector<LingerEntry*> entries_;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_LINGER_LINGER_H_
