#include "shim/weights/resident_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "kernels/driver/rounding.h"
#include "shim/host/private_futex.h"
#include "shim/host/pushed_context.h"
#include "shim/host/relaxed_capture.h"
#include "shim/link/seqpacket.h"
#include "shim/map/granules.h"
#include "shim/weights/gate.h"

namespace fineserve::shim {
namespace {

using driver::CUcontext;
using driver::CUDA_ERROR_OPERATING_SYSTEM;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_SUCCESS;
using driver::CUdevice;
using driver::CUdeviceptr;
using driver::CUmemGenericAllocationHandle;
using driver::CUresult;
using driver::EntryPoints;

driver::CUmemAllocationProp ExportableMemoryOf(CUdevice device) {
  driver::CUmemAllocationProp prop = PlainMemoryOf(device);
  prop.requestedHandleTypes = driver::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

// Puts new memory at reserved addresses. After an error nothing is mapped.
CUresult MapNew(const EntryPoints& entry, CUdeviceptr base, uint64_t bytes,
                CUdevice device) {
  const driver::CUmemAllocationProp prop = ExportableMemoryOf(device);
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = entry.cuMemCreate(&handle, bytes, &prop, 0);
  if (result != CUDA_SUCCESS) return result;
  result = entry.cuMemMap(base, bytes, 0, handle, 0);
  entry.cuMemRelease(handle);  // the mapping keeps the memory
  if (result != CUDA_SUCCESS) return result;
  result = PermitAccess(entry, base, bytes, device);
  if (result != CUDA_SUCCESS) entry.cuMemUnmap(base, bytes);
  return result;
}

// A file's bytes, mapped here while this object lives.
class MappedCopy {
 public:
  MappedCopy(int fd, uint64_t bytes) : bytes_(bytes) {
    base_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  ~MappedCopy() {
    if (valid()) munmap(base_, bytes_);
  }
  MappedCopy(const MappedCopy&) = delete;
  MappedCopy& operator=(const MappedCopy&) = delete;
  bool valid() const { return base_ != MAP_FAILED; }
  char* at(uint64_t offset) const { return static_cast<char*>(base_) + offset; }

 private:
  const uint64_t bytes_;
  void* base_;
};

}  // namespace

bool ResidentMemory::Allocate(const Driver& real, uint64_t bytes,
                              Redirection* out) {
  const EntryPoints& entry = real.entry;
  const RelaxedCapture relaxed(entry);
  Place place;
  Redirection& range = place.range;
  size_t granularity = 0;
  if (entry.cuCtxGetDevice(&place.device) != CUDA_SUCCESS ||
      entry.cuCtxGetCurrent(&range.context) != CUDA_SUCCESS) {
    return false;
  }
  const driver::CUmemAllocationProp prop = ExportableMemoryOf(place.device);
  if (entry.cuMemGetAllocationGranularity(
          &granularity, &prop, driver::CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
      CUDA_SUCCESS) {
    return false;
  }
  range.asked_bytes = bytes;
  range.reserved_bytes = RoundUp(bytes, granularity);
  range.is_resident = true;
  if (entry.cuMemAddressReserve(&range.base, range.reserved_bytes, 0, 0, 0) !=
      CUDA_SUCCESS) {
    return false;
  }
  if (MapNew(entry, range.base, range.reserved_bytes, place.device) !=
      CUDA_SUCCESS) {
    entry.cuMemAddressFree(range.base, range.reserved_bytes);
    return false;
  }
  {
    const MutexLock lock(&mutex_);
    if (count_ < kCapacity) {
      places_[count_++] = place;
      in_use_.store(true, std::memory_order_relaxed);
      *out = range;
      return true;
    }
  }
  entry.cuMemUnmap(range.base, range.reserved_bytes);
  entry.cuMemAddressFree(range.base, range.reserved_bytes);
  return false;
}

ResidentMemory::Place* ResidentMemory::Find(CUdeviceptr base) {
  for (size_t i = 0; i < count_; ++i) {
    if (places_[i].range.base == base) return &places_[i];
  }
  return nullptr;
}

// Waits before it takes the mutex: the context's work may need a lock of the
// program's that a thread holds which waits here.
CUresult ResidentMemory::Free(const Driver& real, const Redirection& range,
                              bool waits) {
  if (waits) {
    const CUresult rests = Synchronize(real.entry, range.context);
    if (rests != CUDA_SUCCESS) return rests;
  }
  const RelaxedCapture relaxed(real.entry);
  const MutexLock lock(&mutex_);
  Place* const place = Find(range.base);
  if (place == nullptr) return driver::CUDA_ERROR_INVALID_VALUE;
  if (!place->is_out) {
    const CUresult result =
        real.entry.cuMemUnmap(range.base, range.reserved_bytes);
    if (result != CUDA_SUCCESS) return result;
  }
  real.entry.cuMemAddressFree(range.base, range.reserved_bytes);
  *place = places_[--count_];
  return CUDA_SUCCESS;
}

bool ResidentMemory::Pin(CUdeviceptr base) {
  const MutexLock lock(&mutex_);
  Place* const place = Find(base);
  if (place == nullptr || place->is_out) return false;
  place->is_pinned = true;
  return true;
}

ResidentMemory::Sum ResidentMemory::sum() {
  Sum sum;
  const MutexLock lock(&mutex_);
  for (size_t i = 0; i < count_; ++i) {
    const Place& place = places_[i];
    const uint64_t bytes = place.range.reserved_bytes;
    if (place.is_out) {
      ++sum.out;
      sum.out_bytes += bytes;
      continue;
    }
    ++sum.here;
    sum.here_bytes += bytes;
    sum.pinned += place.is_pinned;
    sum.pinned_bytes += place.is_pinned ? bytes : 0;
  }
  return sum;
}

// cuCtxSynchronize has no time limit, so a thread of its own waits in it.
struct ResidentMemory::Rests {
  const EntryPoints* entry;
  pthread_t thread = {};
  bool runs = false;               // and is to be joined
  std::atomic<uint32_t> ended{0};  // a futex
  size_t count = 0;
  CUcontext contexts[64] = {};  // an engine has one on each of its devices
  CUresult result = CUDA_SUCCESS;
};

void* ResidentMemory::RestAll(void* argument) {
  auto* const rests = static_cast<Rests*>(argument);
  t_gate_visitor.exempt = true;
  const RelaxedCapture relaxed(*rests->entry);
  for (size_t i = 0; i < rests->count; ++i) {
    rests->result = Synchronize(*rests->entry, rests->contexts[i]);
    if (rests->result != CUDA_SUCCESS) break;
  }
  rests->ended.store(1, std::memory_order_release);
  WakeSleepers(rests->ended);
  return nullptr;
}

bool ResidentMemory::Rest(const Driver& real, int timeout_ms, char* why,
                          size_t why_bytes) {
  rests_ = new (std::nothrow) Rests{&real.entry};
  if (rests_ == nullptr) {
    snprintf(why, why_bytes, "it has no host memory");
    return false;
  }
  {
    const MutexLock lock(&mutex_);
    for (size_t i = 0; i < count_; ++i) {
      CUcontext* const end = rests_->contexts + rests_->count;
      CUcontext* at = rests_->contexts;
      while (at != end && *at != places_[i].range.context) ++at;
      if (at != end) continue;
      if (rests_->count == sizeof(rests_->contexts) / sizeof(*end)) {
        snprintf(why, why_bytes, "it has memory in more than 64 contexts");
        return false;
      }
      rests_->contexts[rests_->count++] = places_[i].range.context;
    }
  }
  rests_->runs =
      pthread_create(&rests_->thread, nullptr, &RestAll, rests_) == 0;
  if (!rests_->runs) {
    snprintf(why, why_bytes, "it cannot start a thread");
    return false;
  }
  const uint64_t until_ms = NowMs() + static_cast<uint64_t>(timeout_ms);
  while (rests_->ended.load(std::memory_order_acquire) == 0 &&
         NowMs() < until_ms) {
    SleepWhileEqual(rests_->ended, 0, until_ms);
  }
  if (rests_->ended.load(std::memory_order_acquire) == 0) {
    snprintf(why, why_bytes, "its work on the GPU did not end within %d ms",
             timeout_ms);
    return false;
  }
  pthread_join(rests_->thread, nullptr);
  rests_->runs = false;
  const CUresult result = rests_->result;
  if (result != CUDA_SUCCESS) {
    snprintf(why, why_bytes, "cuCtxSynchronize failed with CUDA error %d",
             static_cast<int>(result));
  }
  return result == CUDA_SUCCESS;
}

bool ResidentMemory::EndRest() {
  if (rests_ == nullptr) return true;
  if (rests_->runs) {
    if (rests_->ended.load(std::memory_order_acquire) == 0) return false;
    pthread_join(rests_->thread, nullptr);
  }
  delete rests_;
  rests_ = nullptr;
  return true;
}

CUresult ResidentMemory::Evict(const Driver& real, int fd) {
  const EntryPoints& entry = real.entry;
  const RelaxedCapture relaxed(entry);
  const MutexLock lock(&mutex_);
  uint64_t bytes = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (!places_[i].moves()) continue;
    places_[i].offset = bytes;
    bytes += places_[i].range.reserved_bytes;
  }
  if (bytes == 0) return CUDA_SUCCESS;
  // The memory is reserved: a host that has none left says so here, and not by
  // a signal in the middle of the copy.
  if (posix_fallocate(fd, 0, static_cast<off_t>(bytes)) != 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const MappedCopy copy(fd, bytes);
  if (!copy.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  for (size_t i = 0; i < count_; ++i) {
    const Place& place = places_[i];
    if (!place.moves()) continue;
    const PushedContext context(entry, place.range.context);
    const CUresult result =
        context.result() != CUDA_SUCCESS
            ? context.result()
            : entry.cuMemcpyDtoH_v2(copy.at(place.offset), place.range.base,
                                    place.range.reserved_bytes);
    if (result != CUDA_SUCCESS) return result;  // nothing is unmapped
  }
  // One that cannot be unmapped stays here, with its contents.
  for (size_t i = 0; i < count_; ++i) {
    Place& place = places_[i];
    if (!place.moves()) continue;
    place.is_out = entry.cuMemUnmap(place.range.base,
                                    place.range.reserved_bytes) == CUDA_SUCCESS;
  }
  return CUDA_SUCCESS;
}

CUresult ResidentMemory::ActivateWith(const Driver& real, int fd, OpenCall open,
                                      void* argument) {
  const RelaxedCapture relaxed(real.entry);
  const MutexLock lock(&mutex_);
  uint64_t bytes = 0;
  for (size_t i = 0; i < count_; ++i) {
    const Place& place = places_[i];
    if (!place.is_out) continue;
    const uint64_t end = place.offset + place.range.reserved_bytes;
    if (end > bytes) bytes = end;
  }
  if (bytes == 0) return CUDA_SUCCESS;
  const MappedCopy copy(fd, bytes);
  if (!copy.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  const CUresult result = BringBack(real, copy.at(0), open, argument);
  if (result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < count_; ++i) places_[i].is_out = false;
  return CUDA_SUCCESS;
}

CUresult ResidentMemory::BringBack(const Driver& real, const char* copy,
                                   OpenCall open, void* argument) {
  const EntryPoints& entry = real.entry;
  for (size_t i = 0; i < count_; ++i) {
    const Place& place = places_[i];
    if (!place.is_out) continue;
    const Redirection& range = place.range;
    const PushedContext context(entry, range.context);
    CUresult result = context.result();
    if (result == CUDA_SUCCESS) {
      result = MapNew(entry, range.base, range.reserved_bytes, place.device);
    }
    if (result != CUDA_SUCCESS) {
      UnmapAgain(real, i);
      return result;
    }
    result = open(argument, range);
    if (result == CUDA_SUCCESS) {
      result = entry.cuMemcpyHtoD_v2(range.base, copy + place.offset,
                                     range.reserved_bytes);
    }
    // The copy may not have reached the device yet (cuda.h: pageable memory).
    if (result == CUDA_SUCCESS) result = entry.cuCtxSynchronize();
    if (result != CUDA_SUCCESS) {
      UnmapAgain(real, i + 1);
      return result;
    }
  }
  return CUDA_SUCCESS;
}

// If one cannot be unmapped, the next activation finds its addresses in use,
// and fails: its contents are in the copy alone.
void ResidentMemory::UnmapAgain(const Driver& real, size_t before) {
  for (size_t i = 0; i < before; ++i) {
    const Place& place = places_[i];
    if (!place.is_out) continue;
    real.entry.cuMemUnmap(place.range.base, place.range.reserved_bytes);
  }
}

}  // namespace fineserve::shim
