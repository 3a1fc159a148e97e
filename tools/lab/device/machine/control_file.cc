#include "tools/lab/device/machine/control_file.h"

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/machine/range_locks.h"

namespace fineserve::emucuda {
namespace {

constexpr uint64_t kMagic = 0x3441445543554d45ull;  // "EMUCUDA4"
constexpr ByteRange kSectionLock = {64, 65};
constexpr ByteRange kOpenLock = {65, 66};
constexpr uint64_t kFirstSlot = 4096;
constexpr int kSlots = 1024;
constexpr uint64_t kSerialCounter = 72;
constexpr uint64_t kBadPages = 80;
using BadPageList = std::array<uint64_t, 8>;
constexpr uint64_t kFirstGranule = 32768;
// Enough bits for the 16 TiB that a device may have.
constexpr int kUnitBits = 24;

struct Header {
  uint64_t magic;
  uint64_t memory_bytes;
};
static_assert(sizeof(Header) == 16);

struct Slot {
  uint32_t pid;
  uint32_t mps_server;
  uint64_t bytes;
  uint64_t pid_namespace;
};
static_assert(sizeof(Slot) == 24);
static_assert(kFirstSlot + kSlots * sizeof(Slot) <= kFirstGranule);

ByteRange SlotRange(int slot) {
  const uint64_t start =
      kFirstSlot + static_cast<uint64_t>(slot) * sizeof(Slot);
  return {start, start + sizeof(Slot)};
}

template <typename T>
bool WriteAt(int fd, uint64_t offset, const T& record) {
  return pwrite(fd, &record, sizeof(record), static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(sizeof(record));
}

template <typename T>
bool ReadAt(int fd, uint64_t offset, T* record) {
  return pread(fd, record, sizeof(*record), static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(sizeof(*record));
}

uint64_t OwnPidNamespace() {
  struct stat status = {};
  stat("/proc/self/ns/pid", &status);
  return status.st_ino;
}

uint64_t GranuleRecord(uint64_t offset) {
  return kFirstGranule + offset / kGranularity * sizeof(uint64_t);
}

// Returns the device's size, which is `wanted_bytes` of the first process that
// opens it. Returns 0 on failure.
uint64_t AgreeOnSize(int control_fd, int memory_fd, uint64_t wanted_bytes) {
  Header header;
  const bool sized = ReadAt(control_fd, 0, &header) && header.magic == kMagic;
  if (!sized) header = {kMagic, wanted_bytes};
  const uint64_t file_bytes = ControlFile::FileBytes(header.memory_bytes);
  if (ftruncate(memory_fd, static_cast<off_t>(file_bytes)) != 0) return 0;
  return sized || WriteAt(control_fd, 0, header) ? header.memory_bytes : 0;
}

// Opens the device's memory for a process that is in the critical section. If
// the memory was replaced, older descriptors still name the former file.
Descriptor OpenMemory(const StateFolder& folder, int device, int control_fd,
                      bool is_persistent) {
  const bool alone = TryWriteLock(control_fd, kOpenLock);
  if (alone && !is_persistent) folder.Remove(device, "memory");
  if (!TryReadLock(control_fd, kOpenLock)) return Descriptor();
  return folder.OpenFile(device, "memory");
}

}  // namespace

std::unique_ptr<ControlFile> ControlFile::Open(const StateFolder& folder,
                                               int device, bool is_persistent,
                                               uint64_t wanted_bytes,
                                               Descriptor* memory) {
  Descriptor file = folder.OpenFile(device, "control");
  if (!file.valid() || !WriteLock(file.get(), kSectionLock)) return nullptr;
  *memory = OpenMemory(folder, device, file.get(), is_persistent);
  const uint64_t bytes =
      memory->valid() ? AgreeOnSize(file.get(), memory->get(), wanted_bytes)
                      : 0;
  Unlock(file.get(), kSectionLock);
  if (bytes == 0) return nullptr;
  return std::unique_ptr<ControlFile>(new ControlFile(std::move(file), bytes));
}

uint64_t ControlFile::FileBytes(uint64_t memory_bytes) {
  constexpr uint64_t kTimes = 4;
  constexpr uint64_t kMost = uint64_t{8} << 40;  // for file systems' sake
  return std::max(memory_bytes, std::min(kTimes * memory_bytes, kMost));
}

ControlFile::CriticalSection::CriticalSection(const ControlFile& file)
    : fd_(file.file_.get()) {
  WriteLock(fd_, kSectionLock);
}

ControlFile::CriticalSection::~CriticalSection() { Unlock(fd_, kSectionLock); }

bool ControlFile::WriteGranule(uint64_t offset, uint64_t bytes,
                               uint64_t* serial) {
  uint64_t count = 0;
  if (!ReadAt(file_.get(), kSerialCounter, &count)) count = 0;
  *serial = ++count;
  const uint64_t entry = bytes / kGranularity | *serial << kUnitBits;
  return WriteAt(file_.get(), kSerialCounter, count) &&
         WriteAt(file_.get(), GranuleRecord(offset), entry);
}

ControlFile::Granule ControlFile::ReadGranule(uint64_t offset) const {
  uint64_t entry;
  if (!ReadAt(file_.get(), GranuleRecord(offset), &entry)) return {};
  const uint64_t units = entry & ((uint64_t{1} << kUnitBits) - 1);
  return {units * kGranularity, entry >> kUnitBits};
}

bool ControlFile::AddBadPage(uint64_t page) {
  BadPageList list = {};
  ReadAt(file_.get(), kBadPages, &list);
  const auto vacant = std::find(list.begin(), list.end(), 0);
  if (vacant == list.end()) return false;
  *vacant = page + 1;
  return WriteAt(file_.get(), kBadPages, list);
}

std::vector<uint64_t> ControlFile::BadPages() const {
  BadPageList list = {};
  std::vector<uint64_t> pages;
  if (!ReadAt(file_.get(), kBadPages, &list)) return pages;
  for (const uint64_t place : list) {
    if (place != 0) pages.push_back(place - 1);
  }
  return pages;
}

bool ControlFile::ClaimSlot(uint32_t mps_server) {
  // In the section, so that no reader sees a taken slot that still shows its
  // last owner's pid.
  const CriticalSection section(*this);
  const Slot mine = {static_cast<uint32_t>(getpid()), mps_server, 0,
                     OwnPidNamespace()};
  for (int slot = 0; slot < kSlots; ++slot) {
    if (!TryWriteLock(file_.get(), SlotRange(slot))) continue;
    slot_ = slot;
    return WriteAt(file_.get(), SlotRange(slot).start, mine);
  }
  return false;
}

void ControlFile::ReleaseSlot() {
  if (slot_ < 0) return;
  Unlock(file_.get(), SlotRange(slot_));
  slot_ = -1;
}

void ControlFile::WriteUsed(uint64_t bytes) const {
  if (slot_ < 0) return;
  WriteAt(file_.get(), SlotRange(slot_).start + offsetof(Slot, bytes), bytes);
}

uint64_t ControlFile::BytesOf(int fd, uint32_t pid) {
  uint64_t bytes = 0;
  for (int i = 0; i < kSlots; ++i) {
    Slot slot;
    if (ReadAt(fd, SlotRange(i).start, &slot) && slot.pid == pid) {
      bytes += slot.bytes;
    }
  }
  return bytes;
}

std::vector<ControlFile::Client> ControlFile::Clients() const {
  const CriticalSection section(*this);
  std::vector<Client> clients;
  for (int i = 0; i < kSlots; ++i) {
    Slot slot;
    if (!FindConflict(file_.get(), SlotRange(i))) continue;
    if (ReadAt(file_.get(), SlotRange(i).start, &slot) && slot.pid != 0) {
      clients.push_back(
          {slot.pid, slot.mps_server, slot.bytes, slot.pid_namespace});
    }
  }
  return clients;
}

}  // namespace fineserve::emucuda
