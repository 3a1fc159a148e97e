#include "shim/weights/resident_memory.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "daemon/contract/abi/process_start.h"
#include "kernels/driver/rounding.h"
#include "shim/gate/gate.h"
#include "shim/host/private_futex.h"
#include "shim/host/pushed_context.h"
#include "shim/host/relaxed_capture.h"
#include "shim/link/seqpacket.h"
#include "shim/map/granules.h"

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

// Maps new memory at reserved addresses. After an error nothing is mapped.
CUresult MapNew(const EntryPoints& entry, CUdeviceptr base, uint64_t bytes,
                CUdevice device) {
  const driver::CUmemAllocationProp prop = ExportableMemoryOf(device);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = entry.cuMemCreate(&handle, bytes, &prop, 0);
  if (result != CUDA_SUCCESS) return result;
  return MapMemory(entry, handle, base, bytes, device);
}

// A part of a file, mapped here while this object lives.
class MappedCopy {
 public:
  MappedCopy(int fd, uint64_t offset, uint64_t bytes) : bytes_(bytes) {
    base_ = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd,
                 static_cast<off_t>(offset));
  }
  ~MappedCopy() {
    if (valid()) munmap(base_, bytes_);
  }
  MappedCopy(const MappedCopy&) = delete;
  MappedCopy& operator=(const MappedCopy&) = delete;
  bool valid() const { return base_ != MAP_FAILED; }
  const void* base() const { return base_; }

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
      place.number = ++last_number_;
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

// Waits for the context's work before it takes the mutex: the work may need a
// lock that a thread of the program holds while it waits for this mutex.
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
  if (place->next != 0) real.entry.cuMemRelease(place->next);
  if (place->former != 0) real.entry.cuMemRelease(place->former);
  real.entry.cuMemAddressFree(range.base, range.reserved_bytes);
  EndLoans([&](const Loan& loan) { return loan.number == place->number; });
  *place = places_[--count_];
  return CUDA_SUCCESS;
}

bool ResidentMemory::Pin(CUdeviceptr base) {
  const MutexLock lock(&mutex_);
  Place* const place = Find(base);
  if (place == nullptr || place->is_out || !HasOwn(*place)) return false;
  place->is_pinned = true;
  return true;
}

void ResidentMemory::PinAll() {
  const MutexLock lock(&mutex_);
  all_pinned_ = true;
}

bool ResidentMemory::Share(CUdeviceptr base, abi::IpcHandle* out) {
  const MutexLock lock(&mutex_);
  Place* const place = Find(base);
  if (place == nullptr) return false;
  if (!place->is_shared) {
    const ssize_t drawn = getrandom(place->check, sizeof(place->check), 0);
    place->is_shared = drawn == sizeof(place->check);
  }
  out->number = place->number;
  out->bytes = place->range.asked_bytes;
  memcpy(out->check, place->check, sizeof(out->check));
  return place->is_shared;
}

ResidentMemory::Place* ResidentMemory::FindShared(
    const abi::IpcHandle& handle) {
  for (size_t i = 0; i < count_; ++i) {
    Place& place = places_[i];
    if (place.number == handle.number && place.is_shared &&
        memcmp(place.check, handle.check, sizeof(place.check)) == 0) {
      return &place;
    }
  }
  return nullptr;
}

ResidentMemory::Loan* ResidentMemory::FindLoan(const abi::IpcHandle& handle,
                                               const Borrower& borrower) {
  Loan* const end = loans_ + loan_count_;
  Loan* const found = std::find_if(loans_, end, [&](const Loan& loan) {
    return loan.number == handle.number && loan.to == borrower;
  });
  return found == end ? nullptr : found;
}

abi::OpenResult ResidentMemory::Lend(const Driver& real,
                                     const abi::IpcHandle& handle,
                                     const Borrower& borrower, Lent* lent) {
  // The thread that answers borrowers must not wait for a whole move.
  if (is_moving()) return abi::OpenResult::kAway;
  const RelaxedCapture relaxed(real.entry);
  const MutexLock lock(&mutex_);
  Place* const place = FindShared(handle);
  if (place == nullptr) return abi::OpenResult::kUnknown;
  if (place->is_out) return abi::OpenResult::kAway;
  if (!HasOwn(*place)) {
    Recall();
    return abi::OpenResult::kAway;
  }
  Loan* const loan = FindLoan(handle, borrower);
  if (loan == nullptr && loan_count_ == kMostLoans) {
    return abi::OpenResult::kUnknown;
  }
  if (Export(real.entry, *place, &lent->memory) != CUDA_SUCCESS) {
    return loan == nullptr ? abi::OpenResult::kUnknown
                           : abi::OpenResult::kAway;  // it asks again
  }
  if (loan == nullptr) {
    loans_[loan_count_++] = {handle.number, borrower};
    ++place->loans;
  } else if (loan->rests) {
    loan->rests = false;
    --place->resting;
  }
  lent->bytes = place->range.reserved_bytes;
  lent->departures = place->departures;
  return abi::OpenResult::kOpen;
}

bool ResidentMemory::NoteRest(const abi::IpcHandle& handle,
                              const Borrower& borrower) {
  if (is_moving()) return false;
  const MutexLock lock(&mutex_);
  Place* const place = FindShared(handle);
  Loan* const loan = place == nullptr ? nullptr : FindLoan(handle, borrower);
  if (loan == nullptr) return false;
  if (!loan->rests) ++place->resting;
  loan->rests = true;
  return true;
}

void ResidentMemory::TakeBack(const abi::IpcHandle& handle,
                              const Borrower& borrower) {
  const MutexLock lock(&mutex_);
  EndLoans([&](const Loan& loan) {
    return loan.number == handle.number && loan.to == borrower;
  });
}

bool ResidentMemory::TakeBackFromEnded() {
  const MutexLock lock(&mutex_);
  // Keeps the result for the last borrower, since most loans of one process are
  // adjacent.
  Borrower last;
  bool has_ended = false;
  EndLoans([&](const Loan& loan) {
    if (!(loan.to == last)) {
      last = loan.to;
      has_ended = abi::HasEnded(last.pid, last.image);
    }
    return has_ended;
  });
  EndReaders([](const Borrower& reader) {
    return abi::HasEnded(reader.pid, reader.image);
  });
  return loan_count_ != 0 || reader_count_ != 0;
}

template <typename Ends>
void ResidentMemory::EndLoans(Ends ends) {
  size_t kept = 0;
  for (size_t i = 0; i < loan_count_; ++i) {
    const Loan loan = loans_[i];
    if (!ends(loan)) {
      loans_[kept++] = loan;
      continue;
    }
    for (size_t at = 0; at < count_; ++at) {
      Place& place = places_[at];
      if (place.number != loan.number) continue;
      --place.loans;
      if (loan.rests) --place.resting;
    }
  }
  loan_count_ = kept;
}

ResidentMemory::Sum ResidentMemory::sum() {
  Sum sum;
  const MutexLock lock(&mutex_);
  for (size_t i = 0; i < count_; ++i) {
    const Place& place = places_[i];
    const uint64_t bytes = place.range.reserved_bytes;
    if (place.frozen != 0) sum.frozen_bytes += bytes;
    if (place.is_out) {
      ++sum.out;
      sum.out_bytes += bytes;
      continue;
    }
    if (place.is_dropped) {
      ++sum.dropped;
      sum.dropped_bytes += bytes;
      continue;
    }
    ++sum.here;
    sum.here_bytes += bytes;
    if (Moves(place)) continue;
    ++sum.pinned;
    sum.pinned_bytes += bytes;
    const bool is_read = place.read_by != 0;
    sum.lent_bytes += is_read || place.loans != place.resting ? bytes : 0;
  }
  sum.readers = static_cast<uint32_t>(reader_count_);
  return sum;
}

// Waits for contexts on a separate thread, because cuCtxSynchronize has no time
// limit.
struct ResidentMemory::Rests {
  const EntryPoints* entry;
  pthread_t thread = {};
  bool runs = false;               // and is to be joined
  std::atomic<uint32_t> ended{0};  // a futex
  size_t count = 0;
  CUcontext contexts[kMostContexts] = {};
  size_t others = 0;  // the first ones, which may have ended
  CUresult result = CUDA_SUCCESS;

  // False if there are too many.
  bool Add(CUcontext context) {
    CUcontext* const end = contexts + count;
    if (std::find(contexts, end, context) != end) return true;
    if (count == kMostContexts) return false;
    contexts[count++] = context;
    return true;
  }
};

void* ResidentMemory::RestAll(void* argument) {
  auto* const rests = static_cast<Rests*>(argument);
  t_gate_visitor.place = GateVisitor::kExempt;
  const RelaxedCapture relaxed(*rests->entry);
  for (size_t i = 0; i < rests->count && rests->result == CUDA_SUCCESS; ++i) {
    const PushedContext current(*rests->entry, rests->contexts[i]);
    if (i < rests->others && HasEnded(current.result())) continue;
    rests->result = current.result();
    if (rests->result == CUDA_SUCCESS)
      rests->result = rests->entry->cuCtxSynchronize();
  }
  rests->ended.store(1, std::memory_order_release);
  WakeSleepers(rests->ended);
  return nullptr;
}

bool ResidentMemory::Rest(const Driver& real, const CUcontext* others,
                          size_t count, int timeout_ms, char* why,
                          size_t why_bytes) {
  rests_ = new (std::nothrow) Rests{&real.entry};
  if (rests_ == nullptr) {
    snprintf(why, why_bytes, "it has no host memory");
    return false;
  }
  bool fits = count <= kMostContexts;
  for (size_t i = 0; fits && i < count; ++i) fits = rests_->Add(others[i]);
  rests_->others = rests_->count;
  {
    const MutexLock lock(&mutex_);
    for (size_t i = 0; i < count_; ++i) {
      fits = fits && rests_->Add(places_[i].range.context);
    }
  }
  if (!fits) {
    snprintf(why, why_bytes, "it has memory in more than %zu contexts",
             kMostContexts);
    return false;
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
  if (HasEnded(result)) {
    snprintf(
        why, why_bytes,
        "the context in which its memory was made has ended: a green one?");
  } else if (result != CUDA_SUCCESS) {
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

// The caller closes `memory`.
CUresult ResidentMemory::Export(const EntryPoints& entry, const Place& place,
                                int* memory) {
  if (entry.cuMemRetainAllocationHandle == nullptr) {
    return driver::CUDA_ERROR_NOT_SUPPORTED;
  }
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = entry.cuMemRetainAllocationHandle(
      &handle, reinterpret_cast<void*>(place.range.base));
  if (result != CUDA_SUCCESS) return result;
  result = entry.cuMemExportToShareableHandle(
      memory, handle, driver::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  entry.cuMemRelease(handle);
  return result;
}

CUresult ResidentMemory::HandOver(const Driver& real, const Place& place,
                                  Carrier* carrier) {
  int memory = -1;
  const CUresult result = Export(real.entry, place, &memory);
  if (result != CUDA_SUCCESS) return result;
  const bool handed =
      carrier->Hand(place.number, place.range.reserved_bytes, memory);
  close(memory);
  return handed ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

class FINESERVE_ANNOTATE(scoped_lockable) ResidentMemory::Moving {
 public:
  explicit Moving(ResidentMemory* memory)
      FINESERVE_ANNOTATE(acquire_capability(memory->mutex_))
      : memory_(memory) {
    memory->mutex_.Lock();
    memory->is_moving_.store(true, std::memory_order_relaxed);
  }
  ~Moving() FINESERVE_ANNOTATE(release_capability()) {
    memory_->is_moving_.store(false, std::memory_order_relaxed);
    memory_->mutex_.Unlock();
  }
  Moving(const Moving&) = delete;
  Moving& operator=(const Moving&) = delete;

 private:
  ResidentMemory* const memory_;
};

// Moves the memory out. The allocations concerned cannot change in the
// meantime, since a borrower that would use one again also waits for the mutex.
CUresult ResidentMemory::Evict(const Driver& real, Copier* copier) {
  const RelaxedCapture relaxed(real.entry);
  const Moving moving(this);
  bool any = false;
  for (size_t i = 0; i < count_; ++i) {
    if (!Moves(places_[i])) continue;
    any = true;
    const CUresult result = HandOver(real, places_[i], copier);
    if (result != CUDA_SUCCESS) return result;
  }
  if (!any) return CUDA_SUCCESS;
  if (!copier->Finish()) return CUDA_ERROR_OPERATING_SYSTEM;
  for (size_t i = 0; i < count_; ++i) {
    Place& place = places_[i];
    if (Moves(place) &&
        !copier->Locate(place.number, &place.file, &place.offset)) {
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
  }
  // An allocation that cannot be unmapped stays on the GPU, with its contents.
  for (size_t i = 0; i < count_; ++i) {
    Place& place = places_[i];
    if (!Moves(place)) continue;
    place.is_out =
        real.entry.cuMemUnmap(place.range.base, place.range.reserved_bytes) ==
        CUDA_SUCCESS;
    if (place.is_out) ++place.departures;
  }
  return CUDA_SUCCESS;
}

CUresult ResidentMemory::ActivateWith(const Driver& real, const Source& source,
                                      OpenCall open, void* argument) {
  const RelaxedCapture relaxed(real.entry);
  const Moving moving(this);
  if (!HasRoom(real.entry)) return CUDA_ERROR_OUT_OF_MEMORY;
  bool any = false;
  for (size_t i = 0; i < count_; ++i) {
    if (!places_[i].is_out) continue;
    any = true;
    const CUresult result = BringBack(real, places_[i], source, open, argument);
    if (result == CUDA_SUCCESS) continue;
    UnmapAgain(real, i);
    return result;
  }
  if (any && source.filler != nullptr && !source.filler->Finish()) {
    UnmapAgain(real, count_);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  for (size_t i = 0; i < count_; ++i) places_[i].is_out = false;
  return CUDA_SUCCESS;
}

// False if there is too little free memory. A hopeless try would take memory
// that the daemon then misses when it checks whether there will be enough.
bool ResidentMemory::HasRoom(const EntryPoints& entry) {
  uint64_t wanted = 0;
  size_t free_bytes = 0, of_all = 0;
  const Place* first = nullptr;
  for (size_t i = 0; i < count_; ++i) {
    if (!places_[i].is_out) continue;
    if (first == nullptr) first = &places_[i];
    if (places_[i].device == first->device) {
      wanted += places_[i].range.reserved_bytes;
    }
  }
  if (first == nullptr) return true;
  const PushedContext context(entry, first->range.context);
  return context.result() != CUDA_SUCCESS ||
         entry.cuMemGetInfo_v2(&free_bytes, &of_all) != CUDA_SUCCESS ||
         free_bytes >= wanted;
}

// Maps one allocation again and fills it. After an error its addresses are
// empty.
CUresult ResidentMemory::BringBack(const Driver& real, const Place& place,
                                   const Source& source, OpenCall open,
                                   void* argument) {
  const EntryPoints& entry = real.entry;
  const Redirection& range = place.range;
  const PushedContext context(entry, range.context);
  CUresult result = context.result();
  if (result == CUDA_SUCCESS) {
    result = MapNew(entry, range.base, range.reserved_bytes, place.device);
  }
  if (result != CUDA_SUCCESS) return result;
  result = open(argument, range);
  if (result == CUDA_SUCCESS) {
    result = source.filler != nullptr ? HandOver(real, place, source.filler)
                                      : CopyBack(entry, place, source);
  }
  if (result != CUDA_SUCCESS) {
    entry.cuMemUnmap(range.base, range.reserved_bytes);
  }
  return result;
}

CUresult ResidentMemory::CopyBack(const EntryPoints& entry, const Place& place,
                                  const Source& source) {
  if (place.file >= source.file_count) return CUDA_ERROR_OPERATING_SYSTEM;
  const Redirection& range = place.range;
  const MappedCopy copy(source.files[place.file], place.offset,
                        range.reserved_bytes);
  if (!copy.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  const CUresult result =
      entry.cuMemcpyHtoD_v2(range.base, copy.base(), range.reserved_bytes);
  if (result != CUDA_SUCCESS) return result;
  // The copy may not have reached the device yet (cuda.h: pageable memory).
  return entry.cuCtxSynchronize();
}

// Unmaps what was brought back. If an allocation cannot be unmapped, the next
// activation finds its addresses in use and fails, since only its copy has the
// contents.
void ResidentMemory::UnmapAgain(const Driver& real, size_t before) {
  for (size_t i = 0; i < before; ++i) {
    const Place& place = places_[i];
    if (!place.is_out) continue;
    real.entry.cuMemUnmap(place.range.base, place.range.reserved_bytes);
  }
}

}  // namespace fineserve::shim
