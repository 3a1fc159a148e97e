#ifndef TOOLS_LAB_DEVICE_MACHINE_CONTROL_FILE_H_
#define TOOLS_LAB_DEVICE_MACHINE_CONTROL_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/machine/state_folder.h"

namespace fineserve::emucuda {

// gpuN.control: what all processes must agree on about one device.
//
//   offset   bytes  what
//        0       8  magic "EMUCUDA4"; zero until the device is sized
//        8       8  memory bytes
//       64       1  lock byte of the critical section
//       65       1  read-locked by every process that has the device open
//       72       8  how many granules were ever allocated
//       80     8×8  bad pages: one more than the number of 2 MiB of memory
//                    whose reads fail, or zero
//     4096  1024×24  client slots: pid (4) as its own pid namespace has it, pid
//                    of the MPS server that it works through or zero (4),
//                    bytes of the device that the client has allocated (8),
//                    inode of the pid namespace (8); OFD write lock = taken
//    32768    8 each  directory, one entry per 2 MiB of memory, about the
//                    granule that starts there: its length in units of 2 MiB
//                    (low 24 bits) and its serial number (high 40), which is
//                    odd for memory that was created for network cards;
//                    meaningful while that memory is referenced
//
// Processes write only inside the critical section. ReadGranule needs no
// section: the allocator wrote the entry before any process could read it. A
// process that dies at any instruction leaves complete records or records that
// no process reads.
//
// Thread-safe, except that CriticalSection excludes other processes but not
// other threads: callers must hold a mutex. They must also hold it across fork,
// because a child could otherwise keep the section locked.
class ControlFile {
 public:
  // Opens the control file and the device's memory. Sizes the device on first
  // use: its memory becomes `wanted_bytes` long. Unless `is_persistent`, the
  // first process that opens the device while no other process has it open gets
  // new memory, and memory exported before then no longer belongs to the
  // device.
  static std::unique_ptr<ControlFile> Open(const StateFolder& folder,
                                           int device, bool is_persistent,
                                           uint64_t wanted_bytes,
                                           Descriptor* memory);

  uint64_t memory_bytes() const { return memory_bytes_; }
  // Returns the size of the file of a device's memory. The file is larger than
  // the memory so that a granule can be one range of the file, where a real
  // device would take pages from anywhere.
  static uint64_t FileBytes(uint64_t memory_bytes);
  uint64_t file_bytes() const { return FileBytes(memory_bytes_); }
  int fd() const { return file_.get(); }

  // Keeps this process in the critical section for the object's lifetime; the
  // kernel ends the section when the process dies.
  class CriticalSection {
   public:
    explicit CriticalSection(const ControlFile& file);
    ~CriticalSection();
    CriticalSection(const CriticalSection&) = delete;
    CriticalSection& operator=(const CriticalSection&) = delete;

   private:
    const int fd_;
  };

  // A granule as the directory describes it. No two granules of a device share
  // a serial.
  struct Granule {
    uint64_t bytes = 0;  // 0 if there is none
    uint64_t serial = 0;
  };

  // The caller is in the critical section. Returns false on failure.
  bool WriteGranule(uint64_t offset, uint64_t bytes, uint64_t* serial);
  Granule ReadGranule(uint64_t offset) const;

  // Enters this process, which works through an MPS server if `mps_server` is
  // not 0, into the client list. The entry lasts until the process releases its
  // slot, or until the last descriptor of this file's description is closed.
  // Returns false if all slots are taken.
  bool ClaimSlot(uint32_t mps_server);
  void ReleaseSlot();

  // Records how much this process has allocated, if it has a slot.
  void WriteUsed(uint64_t bytes) const;

  // Makes reads of these 2 MiB of memory fail from now on. The caller is in the
  // critical section. Returns false if there are too many bad pages.
  bool AddBadPage(uint64_t page);
  // Returns the bad pages' numbers. Needs no critical section.
  std::vector<uint64_t> BadPages() const;

  struct Client {
    uint32_t pid;         // in its own pid namespace
    uint32_t mps_server;  // its pid, or 0
    uint64_t bytes;
    uint64_t pid_namespace;  // inode
  };
  // Returns a client's last recorded allocation in bytes, through any
  // descriptor of the file.
  static uint64_t BytesOf(int fd, uint32_t pid);
  // Returns the clients whose slots other descriptions have taken. A client may
  // already be dead while a forked child keeps its slot.
  std::vector<Client> Clients() const;

 private:
  ControlFile(Descriptor file, uint64_t memory_bytes)
      : file_(std::move(file)), memory_bytes_(memory_bytes) {}

  const Descriptor file_;
  const uint64_t memory_bytes_;
  int slot_ = -1;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_CONTROL_FILE_H_
