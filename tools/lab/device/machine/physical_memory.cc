#include "tools/lab/device/machine/physical_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace fineserve::emucuda {
namespace {

constexpr size_t kPoisonBytes = size_t{1} << 20;

// Frees the pages of a range, which then reads zero.
bool PunchHole(int fd, ByteRange range) {
  return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                   static_cast<off_t>(range.start),
                   static_cast<off_t>(range.bytes())) == 0;
}

bool SameFile(int a, int b) {
  struct stat first, second;
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// Opens a second description of an open file. Through /proc this works even if
// the state folder was moved or deleted.
Descriptor Reopen(int fd) {
  char path[32];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  return Descriptor(open(path, O_RDWR | O_CLOEXEC));
}

}  // namespace

std::unique_ptr<PhysicalMemory> PhysicalMemory::Open(
    const StateFolder& folder, int device, uint64_t wanted_bytes,
    std::optional<uint8_t> poison, uint32_t mps_server, bool is_persistent) {
  Descriptor memory;
  auto control =
      ControlFile::Open(folder, device, is_persistent, wanted_bytes, &memory);
  if (control == nullptr) return nullptr;
  Descriptor probe = Reopen(memory.get());
  if (!probe.valid()) return nullptr;
  return std::unique_ptr<PhysicalMemory>(
      new PhysicalMemory(folder, device, std::move(memory), std::move(probe),
                         std::move(control), poison, mps_server));
}

CUresult PhysicalMemory::Allocate(uint64_t bytes,
                                  std::shared_ptr<Allocation>* allocation) {
  if (const CUresult result = AllocateZeroed(bytes, allocation)) {
    return result;
  }
  Poison((*allocation)->granule_);
  return CUDA_SUCCESS;
}

CUresult PhysicalMemory::AllocateZeroed(
    uint64_t bytes, std::shared_ptr<Allocation>* allocation) {
  ByteRange granule;
  uint64_t serial = 0;
  {
    const MutexLock lock(mutex_);
    const ControlFile::CriticalSection section(*control_);
    if (const CUresult result = Take(bytes, &granule)) return result;
    if (const CUresult result = Publish(granule, &serial)) {
      Unlock(memory_.get(), granule);
      return result;
    }
    references_[granule.start] = 1;
    own_bytes_ += granule.bytes();
    control_->WriteUsed(own_bytes_);
  }
  allocation->reset(
      new Allocation(*this, granule, serial, Allocation::Origin::kOwn));
  return CUDA_SUCCESS;
}

bool PhysicalMemory::Spoil(uint64_t offset) {
  const MutexLock lock(mutex_);
  const ControlFile::CriticalSection section(*control_);
  return control_->AddBadPage(offset / kGranularity);
}

bool PhysicalMemory::MeetsBadPage(ByteRange range) const {
  const std::vector<uint64_t> bad = control_->BadPages();
  const bool meets = std::any_of(bad.begin(), bad.end(), [&](uint64_t page) {
    return range.start < (page + 1) * kGranularity &&
           page * kGranularity < range.end;
  });
  if (!meets) return false;
  // NVML counts its bytes.
  const Descriptor errors = folder_.OpenFile(device_, "errors");
  return fcntl(errors.get(), F_SETFL, O_APPEND) == 0 &&
         write(errors.get(), "x", 1) == 1;
}

void PhysicalMemory::RetireBadPages() {
  for (const uint64_t page : control_->BadPages()) {
    const ByteRange range = {page * kGranularity, (page + 1) * kGranularity};
    if (!FindConflict(probe_.get(), range)) TryReadLock(memory_.get(), range);
  }
}

// Counts memory in use only where the count can matter, because counting is
// slow with thousands of granules.
std::optional<uint64_t> PhysicalMemory::FindFree(uint64_t bytes) const {
  const uint64_t total = TotalBytes(), all = control_->file_bytes();
  if (all == total || !FindConflict(probe_.get(), {total, all})) {
    const auto start = FindUnlocked(probe_.get(), total, bytes);
    if (start) return start;
  }
  if (UsedBytes() + bytes > total) return std::nullopt;
  return FindUnlocked(probe_.get(), all, bytes);
}

CUresult PhysicalMemory::Take(uint64_t bytes, ByteRange* granule) {
  RetireBadPages();
  const auto start = FindFree(bytes);
  if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
  *granule = {*start, *start + bytes};
  // Only the brief write lock in Release can prevent this.
  return TryWriteLock(memory_.get(), *granule) ? CUDA_SUCCESS
                                               : CUDA_ERROR_OUT_OF_MEMORY;
}

void PhysicalMemory::Poison(ByteRange range) const {
  if (!poison_) return;
  const std::vector<uint8_t> bytes(kPoisonBytes, *poison_);
  while (range.start < range.end) {
    const size_t piece = std::min<uint64_t>(bytes.size(), range.bytes());
    const ssize_t done = pwrite(memory_.get(), bytes.data(), piece,
                                static_cast<off_t>(range.start));
    if (done <= 0) return;  // the file system is full: the rest reads zero
    range.start += static_cast<uint64_t>(done);
  }
}

CUresult PhysicalMemory::Publish(ByteRange granule, uint64_t* serial) {
  const bool published =
      PunchHole(memory_.get(), granule) &&
      control_->WriteGranule(granule.start, granule.bytes(), serial) &&
      TryReadLock(memory_.get(), granule);
  return published ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult PhysicalMemory::Reference(ByteRange granule) {
  int& count = references_[granule.start];
  if (count == 0 && !TryReadLock(memory_.get(), granule)) {
    references_.erase(granule.start);
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++count;
  return CUDA_SUCCESS;
}

void PhysicalMemory::Release(const Allocation& allocation) {
  const ByteRange granule = allocation.granule_;
  const MutexLock lock(mutex_);
  if (allocation.origin_ == Allocation::Origin::kOwn) {
    own_bytes_ -= granule.bytes();
    control_->WriteUsed(own_bytes_);
  }
  const auto found = references_.find(granule.start);
  if (--found->second > 0) return;
  references_.erase(found);
  // If this was the last reference of any process, the pages return to the host
  // now. If another process still holds a reference, or two processes release
  // theirs at once, the next allocation of the range frees the pages.
  if (TryWriteLock(memory_.get(), granule)) PunchHole(memory_.get(), granule);
  Unlock(memory_.get(), granule);
}

CUresult PhysicalMemory::Export(const Allocation& allocation,
                                Descriptor* descriptor) {
  Descriptor fresh = Reopen(memory_.get());
  if (!fresh.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  const off_t start = static_cast<off_t>(allocation.offset());
  if (lseek(fresh.get(), start, SEEK_SET) != start ||
      !TryReadLock(fresh.get(), allocation.granule_)) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *descriptor = std::move(fresh);
  return CUDA_SUCCESS;
}

CUresult PhysicalMemory::Identify(int fd, ByteRange* granule) const {
  if (!SameFile(fd, memory_.get())) return CUDA_ERROR_INVALID_VALUE;
  const off_t position = lseek(fd, 0, SEEK_CUR);
  if (position < 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t serial;
  return Look(static_cast<uint64_t>(position), granule, &serial);
}

CUresult PhysicalMemory::Look(uint64_t start, ByteRange* granule,
                              uint64_t* serial) const {
  const uint64_t all = control_->file_bytes();
  if (start % kGranularity != 0 || start >= all) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const ControlFile::Granule found = control_->ReadGranule(start);
  if (found.bytes == 0 || found.bytes > all - start) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *granule = {start, start + found.bytes};
  *serial = found.serial;
  // If no description holds the granule, its directory entry is stale. An
  // exported descriptor holds its granule; a plain open of the memory file does
  // not.
  return FindConflict(probe_.get(), *granule) ? CUDA_SUCCESS
                                              : CUDA_ERROR_INVALID_VALUE;
}

CUresult PhysicalMemory::Import(int fd,
                                std::shared_ptr<Allocation>* allocation) {
  ByteRange granule;
  if (const CUresult result = Identify(fd, &granule)) return result;
  {
    const MutexLock lock(mutex_);
    if (const CUresult result = Reference(granule)) return result;
  }
  const uint64_t serial = control_->ReadGranule(granule.start).serial;
  allocation->reset(
      new Allocation(*this, granule, serial, Allocation::Origin::kImported));
  return CUDA_SUCCESS;
}

CUresult PhysicalMemory::Attach(uint64_t start, uint64_t serial,
                                std::shared_ptr<Allocation>* allocation) {
  ByteRange granule;
  uint64_t found;
  if (const CUresult result = Look(start, &granule, &found)) return result;
  {
    const MutexLock lock(mutex_);
    if (const CUresult result = Reference(granule)) return result;
  }
  allocation->reset(
      new Allocation(*this, granule, serial, Allocation::Origin::kImported));
  // The last holder may have released the granule just before this process took
  // its reference. From then on, the granule cannot change.
  if (control_->ReadGranule(start).serial == serial) return CUDA_SUCCESS;
  allocation->reset();
  return CUDA_ERROR_INVALID_VALUE;
}

uint64_t PhysicalMemory::UsedBytes() const {
  return LockedBytes(probe_.get(), control_->file_bytes());
}

CUresult PhysicalMemory::OpenContext(uint64_t bytes,
                                     std::shared_ptr<const void>* upkeep) {
  std::shared_ptr<Allocation> memory;
  if (bytes > 0) {
    if (const CUresult result = AllocateZeroed(bytes, &memory)) {
      return result;
    }
  }
  EnterClientList();
  *upkeep = std::shared_ptr<const void>(
      this, [this, memory = std::move(memory)](const void*) mutable {
        memory.reset();
        LeaveClientList();
      });
  return CUDA_SUCCESS;
}

// If the list is full, this process is only invisible: locks hold its memory.
void PhysicalMemory::EnterClientList() {
  const MutexLock lock(mutex_);
  if (contexts_++ == 0 && control_->ClaimSlot(mps_server_)) {
    control_->WriteUsed(own_bytes_);
  }
}

void PhysicalMemory::LeaveClientList() {
  const MutexLock lock(mutex_);
  if (--contexts_ == 0) control_->ReleaseSlot();
}

}  // namespace fineserve::emucuda
