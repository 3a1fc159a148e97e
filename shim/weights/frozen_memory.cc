// The part of ResidentMemory for parameters. A process may drop its copies of
// them and use another process's.

#include <algorithm>
#include <utility>

#include "shim/host/original.h"
#include "shim/host/pushed_context.h"
#include "shim/host/relaxed_capture.h"
#include "shim/map/granules.h"
#include "shim/weights/resident_memory.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUmemGenericAllocationHandle;
using driver::CUresult;
using driver::EntryPoints;

// Copies on a separate stream, because the default stream would wait for the
// program's work.
CUresult CopyAndWait(const EntryPoints& entry, CUdeviceptr to, CUdeviceptr from,
                     uint64_t bytes) {
  driver::CUstream stream = nullptr;
  CUresult result =
      entry.cuStreamCreate(&stream, driver::CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return result;
  result = CallOptional(entry.cuMemcpyDtoDAsync_v2, to, from, bytes, stream);
  if (result == CUDA_SUCCESS) result = entry.cuStreamSynchronize(stream);
  entry.cuStreamDestroy_v2(stream);
  return result;
}

}  // namespace

// --- What the program says ---

bool ResidentMemory::IsCovered(const Place& place, const Part* parts,
                               size_t count) const {
  CUdeviceptr at = place.range.base;
  const CUdeviceptr end = at + place.range.asked_bytes;
  for (bool goes_on = true; goes_on && at < end;) {
    goes_on = false;
    for (size_t i = 0; i < count; ++i) {
      const Part& part = parts[i];
      if (at < part.address || at - part.address >= part.bytes) continue;
      at = part.address + part.bytes;
      goes_on = true;
    }
  }
  return at >= end;
}

bool ResidentMemory::Freeze(const Part* parts, size_t count) {
  const MutexLock lock(&mutex_);
  if (drops_ || reader_count_ != 0) return false;
  for (size_t i = 0; i < count_; ++i) places_[i].frozen = 0;
  uint32_t last = 0;
  for (size_t p = 0; p < count; ++p) {
    for (size_t i = 0; i < count_; ++i) {
      Place& place = places_[i];
      const bool begins_here =
          parts[p].address - place.range.base < place.range.asked_bytes;
      if (!begins_here || place.frozen != 0) continue;
      if (IsCovered(place, parts, count)) place.frozen = ++last;
    }
  }
  return true;
}

void ResidentMemory::SetThawing(bool thaws) {
  const MutexLock lock(&mutex_);
  thaws_ = thaws;
  if (thaws && drops_) Recall();
}

bool ResidentMemory::IsApart() {
  const MutexLock lock(&mutex_);
  return !drops_ && reader_count_ == 0;
}

void ResidentMemory::Thaw() {
  const MutexLock lock(&mutex_);
  for (size_t i = 0; i < count_; ++i) places_[i].frozen = 0;
  thaws_ = false;
}

ResidentMemory::Place* ResidentMemory::Frozen(uint32_t number) {
  Place* const end = places_ + count_;
  Place* const found = std::find_if(
      places_, end, [&](const Place& p) { return p.frozen == number; });
  return number == 0 || found == end ? nullptr : found;
}

uint32_t ResidentMemory::FrozenCount() const {
  return static_cast<uint32_t>(std::count_if(
      places_, places_ + count_, [](const Place& p) { return p.frozen != 0; }));
}

uint32_t ResidentMemory::CountFrozen() {
  const MutexLock lock(&mutex_);
  return FrozenCount();
}

// --- The process that is read ---

abi::ReadResult ResidentMemory::MayRead() {
  if (thaws_ || FrozenCount() == 0) return abi::ReadResult::kUnnamed;
  const bool any_is_out =
      std::any_of(places_, places_ + count_,
                  [](const Place& p) { return p.frozen != 0 && p.is_out; });
  return any_is_out ? abi::ReadResult::kAway : abi::ReadResult::kLent;
}

// Returns the reader's bit, and records the reader if it is new. 0 if there are
// too many readers.
uint32_t ResidentMemory::ReaderBit(const Borrower& reader,
                                   const abi::ShareAddress& at) {
  Reader* unused = nullptr;
  for (Reader& one : readers_) {
    if (one.process == reader) return 1u << (&one - readers_);
    if (one.process.pid == 0) unused = &one;
  }
  if (unused == nullptr) return 0;
  *unused = {reader, at};
  ++reader_count_;
  return 1u << (unused - readers_);
}

uint32_t ResidentMemory::LendParameters(const Driver& real, const Borrower& to,
                                        const abi::ReadRequest& request,
                                        abi::ReadAnswer* answer,
                                        int (&memory)[abi::kLentPerAnswer]) {
  // The thread that answers other processes must not wait for a whole move.
  answer->result = abi::ReadResult::kAway;
  if (is_moving()) return 0;
  const RelaxedCapture relaxed(real.entry);
  const MutexLock lock(&mutex_);
  answer->result = MayRead();
  if (answer->result != abi::ReadResult::kLent) return 0;
  answer->total = FrozenCount();
  uint32_t lent = 0;
  for (; answer->count < std::min(request.count, abi::kLentPerAnswer);
       ++answer->count) {
    Place* const place = Frozen(request.wanted[answer->count]);
    if (place == nullptr || !HasOwn(*place)) continue;
    const uint32_t reader = ReaderBit(to, request.reader);
    if (reader == 0 ||
        Export(real.entry, *place, &memory[lent]) != CUDA_SUCCESS) {
      answer->result =
          reader == 0 ? abi::ReadResult::kReads : abi::ReadResult::kAway;
      return lent;
    }
    ++lent;
    place->read_by |= reader;
    answer->bytes[answer->count] = place->range.reserved_bytes;
  }
  return lent;
}

void ResidentMemory::EndReading(const Borrower& reader) {
  const MutexLock lock(&mutex_);
  EndReaders([&](const Borrower& other) { return other == reader; });
}

size_t ResidentMemory::Readers(abi::ShareAddress (&out)[kMostReaders]) {
  const MutexLock lock(&mutex_);
  size_t count = 0;
  for (const Reader& reader : readers_) {
    if (reader.process.pid != 0) out[count++] = reader.address;
  }
  return count;
}

// --- The process that reads ---

const char* ResidentMemory::BeginDrop(const Driver& real) {
  const MutexLock lock(&mutex_);
  if (FrozenCount() == 0 || thaws_) {
    return "its engine has not said which memory holds parameters alone "
           "(fs_weights_freeze)";
  }
  if (drops_ && is_recalled()) return "it restores its parameters soon";
  if (real.entry.cuMemRetainAllocationHandle == nullptr) {
    return "its driver is too old";
  }
  for (size_t i = 0; i < count_; ++i) {
    const Place& place = places_[i];
    if (place.frozen == 0) continue;
    if (place.is_out) return "its parameters are on the host";
    if (place.is_pinned || place.loans != 0) {
      return "another process or device has its parameters open";
    }
  }
  if (!drops_) is_recalled_.store(false, std::memory_order_relaxed);
  drops_ = true;
  return nullptr;
}

uint32_t ResidentMemory::Take(uint32_t after, uint64_t* bytes) {
  const MutexLock lock(&mutex_);
  Place* next = nullptr;
  for (size_t i = 0; i < count_; ++i) {
    Place& place = places_[i];
    if (place.frozen <= after || !HasOwn(place) || place.read_by != 0) continue;
    if (next == nullptr || place.frozen < next->frozen) next = &place;
  }
  if (next == nullptr) return 0;
  next->is_taken = true;
  *bytes = next->range.reserved_bytes;
  return next->frozen;
}

void ResidentMemory::Untake(uint32_t frozen) {
  const MutexLock lock(&mutex_);
  Place* const place = Frozen(frozen);
  if (place != nullptr) place->is_taken = false;
}

const char* ResidentMemory::Pair(const Driver& real, uint32_t frozen,
                                 int memory, Carrier* comparer) {
  const EntryPoints& entry = real.entry;
  const RelaxedCapture relaxed(entry);
  const MutexLock lock(&mutex_);
  Place* const place = Frozen(frozen);
  if (place == nullptr) return "it has freed some of its parameters";
  const PushedContext context(entry, place->range.context);
  if (context.result() != CUDA_SUCCESS ||
      ImportGranule(entry, memory, &place->next) != CUDA_SUCCESS) {
    place->next = 0;
    return "it cannot open the other engine's memory: that GPU must be visible "
           "to it, too (CUDA_VISIBLE_DEVICES)";
  }
  driver::CUmemAllocationProp prop = {};
  int can = 0;
  if (CallOptional(entry.cuMemGetAllocationPropertiesFromHandle, &prop,
                   place->next) != CUDA_SUCCESS ||
      prop.location.id == place->device) {
    return "the other engine is not on another GPU";
  }
  if (CallOptional(entry.cuDeviceCanAccessPeer, &can, place->device,
                   prop.location.id) != CUDA_SUCCESS ||
      can == 0) {
    return "its GPU has no peer access to the other engine's";
  }
  if (HandOver(real, *place, comparer) != CUDA_SUCCESS) return "";
  return comparer->Hand(place->number, place->range.reserved_bytes, memory)
             ? nullptr
             : "";
}

CUresult ResidentMemory::MakeOwn(const Driver& real, Place* place) {
  const EntryPoints& entry = real.entry;
  const driver::CUmemAllocationProp prop = ExportableMemoryOf(place->device);
  const PushedContext context(entry, place->range.context);
  CUresult result = context.result();
  if (result != CUDA_SUCCESS) return result;
  result =
      entry.cuMemCreate(&place->next, place->range.reserved_bytes, &prop, 0);
  if (result != CUDA_SUCCESS) place->next = 0;
  return result;
}

// Copies the memory while the program still reads the same bytes from the other
// process.
CUresult ResidentMemory::FillOwn(const Driver& real, const Place& place) {
  const EntryPoints& entry = real.entry;
  const uint64_t bytes = place.range.reserved_bytes;
  const PushedContext context(entry, place.range.context);
  CUdeviceptr scratch = 0;
  CUresult result = context.result();
  if (result == CUDA_SUCCESS) {
    result = entry.cuMemAddressReserve(&scratch, bytes, 0, 0, 0);
  }
  if (result != CUDA_SUCCESS) return result;
  result = entry.cuMemMap(scratch, bytes, 0, place.next, 0);
  if (result == CUDA_SUCCESS) {
    result = PermitAccess(entry, scratch, bytes, place.device);
    if (result == CUDA_SUCCESS) {
      result = CopyAndWait(entry, scratch, place.range.base, bytes);
    }
    const CUresult unmapped = entry.cuMemUnmap(scratch, bytes);
    if (result == CUDA_SUCCESS) result = unmapped;
  }
  entry.cuMemAddressFree(scratch, bytes);
  return result;
}

CUresult ResidentMemory::PrepareRestore(const Driver& real) {
  const RelaxedCapture relaxed(real.entry);
  const MutexLock lock(&mutex_);
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count_ && result == CUDA_SUCCESS; ++i) {
    if (places_[i].is_dropped) result = MakeOwn(real, &places_[i]);
  }
  // All the memory is made before any is copied, since there may not be enough.
  for (size_t i = 0; i < count_ && result == CUDA_SUCCESS; ++i) {
    if (places_[i].is_dropped) result = FillOwn(real, places_[i]);
  }
  return result;
}

void ResidentMemory::Release(const Driver& real,
                             CUmemGenericAllocationHandle Place::*handle) {
  for (size_t i = 0; i < count_; ++i) {
    CUmemGenericAllocationHandle& held = places_[i].*handle;
    if (held != 0) real.entry.cuMemRelease(held);
    held = 0;
  }
}

void ResidentMemory::LetGo(const Driver& real) {
  const RelaxedCapture relaxed(real.entry);
  const MutexLock lock(&mutex_);
  Release(real, &Place::next);
  Release(real, &Place::former);
  drops_ = false;
  for (size_t i = 0; i < count_; ++i) {
    places_[i].is_taken = false;
    drops_ = drops_ || places_[i].is_dropped;
  }
}

CUresult ResidentMemory::HoldFormer(const Driver& real) {
  const RelaxedCapture relaxed(real.entry);
  const MutexLock lock(&mutex_);
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count_ && result == CUDA_SUCCESS; ++i) {
    Place& place = places_[i];
    if (place.next == 0) continue;
    const PushedContext context(real.entry, place.range.context);
    result = real.entry.cuMemRetainAllocationHandle(
        &place.former, reinterpret_cast<void*>(place.range.base));
    if (result != CUDA_SUCCESS) place.former = 0;
  }
  return result;
}

ResidentMemory::Swapped ResidentMemory::SwapWith(const Driver& real,
                                                 OpenCall open,
                                                 void* argument) {
  const RelaxedCapture relaxed(real.entry);
  const MutexLock lock(&mutex_);
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count_ && result == CUDA_SUCCESS; ++i) {
    if (places_[i].next != 0)
      result = SwapOne(real, &places_[i], open, argument);
  }
  const bool done = result == CUDA_SUCCESS;
  const bool is_sound = done || SwapBack(real);
  for (size_t i = 0; i < count_ && done; ++i) {
    Place& place = places_[i];
    if (place.former != 0) place.is_dropped = !place.is_dropped;
  }
  return done ? Swapped::kDone : is_sound ? Swapped::kUndone : Swapped::kLost;
}

// Maps the next memory of one place. After an error its addresses are empty, or
// as they were.
CUresult ResidentMemory::SwapOne(const Driver& real, Place* place,
                                 OpenCall open, void* argument) {
  const EntryPoints& entry = real.entry;
  const Redirection& range = place->range;
  const PushedContext context(entry, range.context);
  CUresult result = context.result();
  if (result == CUDA_SUCCESS) {
    result = entry.cuMemUnmap(range.base, range.reserved_bytes);
  }
  if (result != CUDA_SUCCESS) return result;
  const bool restores = place->is_dropped;
  result = MapMemory(entry, std::exchange(place->next, 0), range.base,
                     range.reserved_bytes, place->device,
                     restores ? driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                              : driver::CU_MEM_ACCESS_FLAGS_PROT_READ);
  if (result == CUDA_SUCCESS && restores) result = open(argument, range);
  return result;
}

// Maps the former memory again. False if an address stays empty. A place that
// was not swapped yet still has its next memory.
bool ResidentMemory::SwapBack(const Driver& real) {
  const EntryPoints& entry = real.entry;
  bool all = true;
  for (size_t i = 0; i < count_; ++i) {
    Place& place = places_[i];
    if (place.former == 0 || place.next != 0) continue;
    const Redirection& range = place.range;
    const PushedContext context(entry, range.context);
    entry.cuMemUnmap(range.base, range.reserved_bytes);
    const bool reads = place.is_dropped;
    all = MapMemory(entry, std::exchange(place.former, 0), range.base,
                    range.reserved_bytes, place.device,
                    reads ? driver::CU_MEM_ACCESS_FLAGS_PROT_READ
                          : driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ==
              CUDA_SUCCESS &&
          all;
  }
  return all;
}

}  // namespace fineserve::shim
