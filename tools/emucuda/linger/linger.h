#ifndef TOOLS_EMUCUDA_LINGER_LINGER_H_
#define TOOLS_EMUCUDA_LINGER_LINGER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/emucuda/linger/linger_journal.h"
#include "tools/emucuda/machine/annotated_mutex.h"
#include "tools/emucuda/machine/device_list.h"
#include "tools/emucuda/machine/driver_types.h"
#include "tools/emucuda/memory/address_space.h"
#include "tools/emucuda/memory/device_work.h"

namespace fineserve::emucuda {

// Device work that outlives the process, as under NVIDIA's deferred teardown.
// While it is on, a helper process shares this process's descriptions of the
// device files, so that memory and the place in NVML's list stay taken when the
// process dies; queued writes are in a journal, and the helper does those that
// were not done. It exits as soon as there is nothing to do. Thread-safe.
//
// What lingers: fills of one row and copies within a device, at most
// kLingerEntries contiguous pieces at a time; other work dies with the process.
// A forked child of the process delays the helper's start until it is dead too.
class Linger {
 public:
  // Entries of one operation; the operation owns it and drops it when done.
  class Record;

  // Starts the helper at its first call with milliseconds > 0; later calls
  // change the time, 0 = not at all. False, with a complaint, if the helper
  // cannot be started.
  bool Set(unsigned milliseconds, const DeviceList& devices,
           std::string* complaint);

  // Null if lingering is off or the journal is full.
  std::shared_ptr<Record> QueueFill(const AddressSpace& space, int device,
                                    CUdeviceptr to, Pattern pattern,
                                    uint64_t bytes);
  std::shared_ptr<Record> QueueCopy(const AddressSpace& space, int device,
                                    CUdeviceptr to, CUdeviceptr from,
                                    uint64_t bytes);

 private:
  bool Start(const DeviceList& devices, std::string* complaint)
      EMUCUDA_REQUIRES(mutex_);
  bool on() const;
  LingerEntry* TakeEntry() EMUCUDA_REQUIRES(mutex_);
  // Adds a piece to `record`; false if the journal is full.
  bool Add(const LingerEntry& piece, Record* record) EMUCUDA_REQUIRES(mutex_);

  Mutex mutex_;
  // Set once, by Start; release there, acquire in on().
  std::atomic<LingerJournal*> journal_{nullptr};
  Descriptor pipe_ EMUCUDA_GUARDED_BY(mutex_);  // its closing wakes the helper
  uint64_t sequence_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  uint32_t next_ EMUCUDA_GUARDED_BY(mutex_) = 0;  // where to look for room
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

#endif  // TOOLS_EMUCUDA_LINGER_LINGER_H_
