#include "tools/emucuda/device_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace fineserve::emucuda {
namespace {

// Frees the pages behind a range; it then reads zero.
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

// A second description of an open file. Opening through /proc works even when
// the state folder was moved or deleted.
Descriptor Reopen(int fd) {
  char path[32];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  return Descriptor(open(path, O_RDWR | O_CLOEXEC));
}

}  // namespace

std::unique_ptr<DeviceMemory> DeviceMemory::Open(const StateFolder& folder,
                                                 int device,
                                                 uint64_t wanted_bytes) {
  Descriptor memory = folder.OpenFile(device, "memory");
  if (!memory.valid()) return nullptr;
  Descriptor probe = Reopen(memory.get());
  if (!probe.valid()) return nullptr;
  auto control = ControlFile::Open(folder, device, memory.get(), wanted_bytes);
  if (control == nullptr) return nullptr;
  return std::unique_ptr<DeviceMemory>(new DeviceMemory(
      std::move(memory), std::move(probe), std::move(control)));
}

CUresult DeviceMemory::Allocate(uint64_t bytes,
                                std::shared_ptr<Allocation>* allocation) {
  ByteRange granule;
  {
    const MutexLock lock(mutex_);
    const ControlFile::CriticalSection section(*control_);
    if (const CUresult result = Take(bytes, &granule)) return result;
    if (const CUresult result = Publish(granule)) {
      Unlock(memory_.get(), granule);
      return result;
    }
    references_[granule.start] = 1;
  }
  allocation->reset(new Allocation(*this, granule));
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::Take(uint64_t bytes, ByteRange* granule) {
  const auto start = FindUnlocked(probe_.get(), TotalBytes(), bytes);
  if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
  *granule = {*start, *start + bytes};
  // Only a releaser's short write lock (Release) can be in the way.
  return TryWriteLock(memory_.get(), *granule) ? CUDA_SUCCESS
                                               : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult DeviceMemory::Publish(ByteRange granule) {
  const bool published =
      PunchHole(memory_.get(), granule) &&
      control_->WriteGranule(granule.start, granule.bytes()) &&
      TryReadLock(memory_.get(), granule);
  return published ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult DeviceMemory::Reference(ByteRange granule) {
  int& count = references_[granule.start];
  if (count == 0 && !TryReadLock(memory_.get(), granule)) {
    references_.erase(granule.start);
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++count;
  return CUDA_SUCCESS;
}

void DeviceMemory::Release(ByteRange granule) {
  const MutexLock lock(mutex_);
  const auto found = references_.find(granule.start);
  if (--found->second > 0) return;
  references_.erase(found);
  // The last reference of all processes gives the pages back at once; if
  // somebody else still reads, or two leave together, the next owner's
  // allocation does.
  if (TryWriteLock(memory_.get(), granule)) PunchHole(memory_.get(), granule);
  Unlock(memory_.get(), granule);
}

CUresult DeviceMemory::Export(const Allocation& allocation,
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

CUresult DeviceMemory::Identify(int fd, ByteRange* granule) const {
  if (!SameFile(fd, memory_.get())) return CUDA_ERROR_INVALID_VALUE;
  const off_t position = lseek(fd, 0, SEEK_CUR);
  if (position < 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t start = static_cast<uint64_t>(position);
  if (start % kGranularity != 0 || start >= TotalBytes()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t bytes = control_->ReadGranule(start);
  if (bytes == 0 || bytes > TotalBytes() - start) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *granule = {start, start + bytes};
  // Somebody must hold it, or its directory entry is history: the descriptor
  // itself does, unless it is a plain open of our file.
  return FindConflict(probe_.get(), *granule) ? CUDA_SUCCESS
                                              : CUDA_ERROR_INVALID_VALUE;
}

CUresult DeviceMemory::Import(int fd, std::shared_ptr<Allocation>* allocation) {
  ByteRange granule;
  if (const CUresult result = Identify(fd, &granule)) return result;
  {
    const MutexLock lock(mutex_);
    if (const CUresult result = Reference(granule)) return result;
  }
  allocation->reset(new Allocation(*this, granule));
  return CUDA_SUCCESS;
}

uint64_t DeviceMemory::UsedBytes() const {
  return LockedBytes(probe_.get(), TotalBytes());
}

void DeviceMemory::ClaimSlot() {
  const MutexLock lock(mutex_);
  // A full list costs visibility only: memory stays held by its locks.
  if (!slot_claimed_) control_->ClaimSlot();
  slot_claimed_ = true;
}

}  // namespace fineserve::emucuda
