#include "shim/redirect/opened_memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/contract/abi/process_start.h"
#include "daemon/contract/abi/transport.h"
#include "kernels/driver/descriptor.h"
#include "shim/host/pushed_context.h"
#include "shim/host/relaxed_capture.h"
#include "shim/host/warn.h"
#include "shim/link/process_exchange.h"
#include "shim/link/seqpacket.h"
#include "shim/map/granules.h"

namespace fineserve::shim {
namespace {

using abi::OpenResult;
using driver::CUcontext;
using driver::CUDA_ERROR_INVALID_VALUE;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_SUCCESS;
using driver::CUdevice;
using driver::CUdeviceptr;
using driver::CUresult;
using driver::EntryPoints;

// Heuristics: memory that is on the host first needs room on the GPU; an
// exporter's program may have closed the socket, which is then made again.
constexpr uint64_t kOpenMs = 120'000;
constexpr uint64_t kUnreachedMs = 2'000;
constexpr int kExporterMs = 2'000;
// After an exporter has been silent, exporters get only this long to answer,
// for some time.
constexpr int kBriefMs = 10;
constexpr uint64_t kImpatientMs = 10'000;
constexpr timespec kAwayPause = {0, 20'000'000};  // between questions

abi::IpcHandle Decode(const driver::CUipcMemHandle& handle) {
  abi::IpcHandle decoded;
  static_assert(sizeof(decoded) == sizeof(handle));
  memcpy(&decoded, &handle, sizeof(decoded));
  return decoded;
}

abi::ShareAddress AddressOf(const abi::IpcHandle& handle) {
  abi::ShareAddress address = {handle.image, handle.pid, 0, {}};
  memcpy(address.socket, handle.socket, sizeof(address.socket));
  return address;
}

bool IsOwn(const abi::IpcHandle& handle) {
  return handle.pid == static_cast<uint32_t>(getpid()) &&
         abi::IsSameImage(handle.image, abi::ProcessImage(getpid()));
}

// Sends a request to the process that made the handle.
template <typename Request, typename Answer>
Asked Ask(const Request& request, int timeout_ms, abi::Received* received,
          Answer* answer) {
  return AskProcess(AddressOf(request.handle), request, timeout_ms, received,
                    answer);
}

template <typename Request>
Request About(const abi::IpcHandle& handle) {
  auto request = abi::MakeMessage<Request>(1);
  request.handle = handle;
  return request;
}

bool HasEnded(const abi::IpcHandle& handle) {
  return abi::HasEnded(static_cast<pid_t>(handle.pid), handle.image);
}

}  // namespace

bool OpenedMemory::IsOurs(const driver::CUipcMemHandle& handle) {
  return Decode(handle).magic == abi::IpcHandle::kMagic;
}

OpenedMemory::Opened* OpenedMemory::Find(const abi::IpcHandle& handle,
                                         CUcontext context) {
  for (size_t i = 0; i < count_; ++i) {
    Opened& opened = opened_[i];
    if (opened.count != 0 &&
        memcmp(&opened.handle, &handle, sizeof(handle)) == 0 &&
        (context == nullptr || opened.range.context == context)) {
      return &opened;
    }
  }
  return nullptr;
}

OpenedMemory::Opened* OpenedMemory::At(CUdeviceptr base) {
  for (size_t i = 0; i < count_; ++i) {
    if (opened_[i].range.base == base) return &opened_[i];
  }
  return nullptr;
}

// Opens a handle. Like a driver, it opens no memory of this process itself.
CUresult OpenedMemory::Open(const Driver& real,
                            const driver::CUipcMemHandle& handle,
                            unsigned flags, CUdeviceptr* out) {
  const abi::IpcHandle decoded = Decode(handle);
  if (out == nullptr || flags != driver::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUcontext context = nullptr;
  const CUresult known = real.entry.cuCtxGetCurrent(&context);
  if (known != CUDA_SUCCESS) return known;
  if (context == nullptr || IsOwn(decoded)) {
    return driver::CUDA_ERROR_INVALID_CONTEXT;
  }
  const RelaxedCapture relaxed(real.entry);
  const uint64_t began_ms = NowMs();
  for (;; nanosleep(&kAwayPause, nullptr)) {
    const MutexLock lock(&mutex_);
    if (Opened* const opened = Find(decoded, context); opened != nullptr) {
      ++opened->count;
      *out = opened->range.base;
      return CUDA_SUCCESS;
    }
    CUresult result = CUDA_SUCCESS;
    const Tried tried = TryToOpen(real, decoded, context, &result, out);
    if (tried == Tried::kDone) return result;
    const uint64_t waited_ms = NowMs() - began_ms;
    if (tried == Tried::kAway && waited_ms < kOpenMs) continue;
    if (tried == Tried::kUnreached && waited_ms < kUnreachedMs) continue;
    GiveBackUnlessOpen(decoded);
    return Refuse(decoded, tried);
  }
}

CUresult OpenedMemory::Refuse(const abi::IpcHandle& handle, Tried tried) {
  if (tried == Tried::kAway) {
    Warn(
        "cuIpcOpenMemHandle failed: the memory of pid %u is on the host, "
        "and did not come back within %lu s (free some of the GPU)",
        handle.pid, kOpenMs / 1000);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!refusal_warned_.exchange(true, std::memory_order_relaxed)) {
    Warn(
        "cuIpcOpenMemHandle refused: pid %u has no such memory for this "
        "process, or has ended (open a handle while its memory is there, "
        "as the same user)",
        handle.pid);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// Tries to open the memory once. Even if that fails, the memory may have been
// lent to this process, since the answer may be lost.
OpenedMemory::Tried OpenedMemory::TryToOpen(const Driver& real,
                                            const abi::IpcHandle& handle,
                                            CUcontext context, CUresult* result,
                                            CUdeviceptr* out) {
  *result = CUDA_ERROR_OUT_OF_MEMORY;
  GiveBackClosed();
  if (count_ == kCapacity) return Tried::kDone;
  abi::Received received;
  abi::OpenAnswer answer;
  const Asked asked =
      Ask(About<abi::OpenRequest>(handle), kExporterMs, &received, &answer);
  if (asked != Asked::kAnswered) {
    if (HasEnded(handle)) return Tried::kUnknown;
    return asked == Asked::kSilent ? Tried::kAway : Tried::kUnreached;
  }
  if (answer.result == OpenResult::kAway) return Tried::kAway;
  if (answer.result != OpenResult::kOpen || received.descriptor_count() != 1) {
    return Tried::kUnknown;
  }
  Opened opened = {{}, handle, 1, answer.departures};
  Redirection& range = opened.range;
  range.reserved_bytes = answer.bytes;
  range.asked_bytes = handle.bytes;
  range.context = context;
  range.is_opened = true;
  const driver::Descriptor memory(received.TakeDescriptor(0));
  *result = Place(real, &range, memory.get());
  if (*result != CUDA_SUCCESS) {
    GiveBackUnlessOpen(handle);
    return Tried::kDone;
  }
  opened_[count_++] = opened;
  in_use_.store(true, std::memory_order_relaxed);
  *out = range.base;
  return Tried::kDone;
}

// Maps the memory at reserved addresses, for the current device. After an error
// nothing is mapped.
CUresult OpenedMemory::MapAt(const Driver& real, const Redirection& range,
                             int memory) {
  CUdevice device = 0;
  driver::CUmemGenericAllocationHandle handle = 0;
  CUresult result = real.entry.cuCtxGetDevice(&device);
  if (result == CUDA_SUCCESS) {
    result = ImportGranule(real.entry, memory, &handle);
  }
  return result != CUDA_SUCCESS ? result
                                : MapMemory(real.entry, handle, range.base,
                                            range.reserved_bytes, device);
}

// Reserves addresses and maps the memory there. After an error nothing is
// mapped or reserved.
CUresult OpenedMemory::Place(const Driver& real, Redirection* range,
                             int memory) {
  const EntryPoints& entry = real.entry;
  const uint64_t bytes = range->reserved_bytes;
  CUresult result = entry.cuMemAddressReserve(&range->base, bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  result = MapAt(real, *range, memory);
  if (result == CUDA_SUCCESS) {
    result = ranges_->Insert(*range) ? peers_->Open(real, *range)
                                     : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) return CUDA_SUCCESS;
    Redirection taken;
    ranges_->Take(range->base, &taken);
    entry.cuMemUnmap(range->base, bytes);
  }
  entry.cuMemAddressFree(range->base, bytes);
  return result;
}

// Every close waits for the context's work before it takes the mutex. Only
// under the mutex is it known which close is the last, but the work may need a
// lock that a thread of the program holds while it waits for this mutex.
CUresult OpenedMemory::Close(const Driver& real, CUdeviceptr address,
                             const Original& original) {
  Redirection range;
  if (!ranges_->Find(address, &range) || !range.is_opened) {
    return original(real.entry);
  }
  const CUresult rests = Synchronize(real.entry, range.context);
  if (rests != CUDA_SUCCESS) return rests;
  const RelaxedCapture relaxed(real.entry);
  const MutexLock lock(&mutex_);
  Opened* const opened = At(address);
  if (opened == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (opened->count > 1) {
    --opened->count;
    return CUDA_SUCCESS;
  }
  Redirection taken;
  ranges_->Take(address, &taken);
  const CUresult result = End(real, opened);
  if (result != CUDA_SUCCESS) ranges_->Insert(taken);
  return result;
}

CUresult OpenedMemory::Drop(const Driver& real, const Redirection& range) {
  const RelaxedCapture relaxed(real.entry);
  const MutexLock lock(&mutex_);
  Opened* const opened = At(range.base);
  return opened == nullptr ? CUDA_ERROR_INVALID_VALUE : End(real, opened);
}

// Unmaps the memory and then gives it back, because its exporter may move it
// afterwards.
CUresult OpenedMemory::End(const Driver& real, Opened* opened) {
  const Redirection& range = opened->range;
  const CUresult result = UnmapOne(real, opened);
  if (result != CUDA_SUCCESS) return result;
  real.entry.cuMemAddressFree(range.base, range.reserved_bytes);
  *opened = {{}, opened->handle};
  GiveBackClosed();
  return CUDA_SUCCESS;
}

// Gives back memory that was closed. The exporter may have no room for a
// request now, for example if it is stopped.
void OpenedMemory::GiveBackClosed() {
  for (size_t i = 0; i < count_;) {
    if (opened_[i].count != 0) {
      ++i;
    } else if (GiveBackUnlessOpen(opened_[i].handle)) {
      opened_[i] = opened_[--count_];
    } else {
      return;  // the next call tries again
    }
  }
}

// Gives the memory back unless it is still open: a process has one loan of an
// allocation, regardless of the number of contexts in which it is open. False
// if its exporter cannot be reached now; a silent exporter reads the request
// later.
bool OpenedMemory::GiveBackUnlessOpen(const abi::IpcHandle& handle) {
  if (Find(handle, nullptr) != nullptr) return true;
  abi::Received received;
  abi::CloseDone done;
  const Asked asked =
      Ask(About<abi::CloseRequest>(handle), PatienceMs(), &received, &done);
  NoteAnswer(asked == Asked::kAnswered);
  return asked != Asked::kUnsent || HasEnded(handle);
}

int OpenedMemory::PatienceMs() const {
  return NowMs() < impatient_until_ms_ ? kBriefMs : kExporterMs;
}

void OpenedMemory::NoteAnswer(bool came) {
  if (!came) impatient_until_ms_ = NowMs() + kImpatientMs;
}

// --- Leaving the GPU with its exporters, and coming back ---

size_t OpenedMemory::Contexts(CUcontext* out, size_t most) {
  const MutexLock lock(&mutex_);
  size_t count = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (opened_[i].count == 0) continue;
    const CUcontext context = opened_[i].range.context;
    if (std::find(out, out + count, context) != out + count) continue;
    if (count == most) return most + 1;
    out[count++] = context;
  }
  return count;
}

// Tells the exporters. One that does not answer may have read the request, or
// may read it later, and then releases its memory.
void OpenedMemory::Rest(const char (&engine_name)[abi::kNameBytes]) {
  const MutexLock lock(&mutex_);
  GiveBackClosed();
  for (size_t i = 0; i < count_; ++i) {
    Opened& opened = opened_[i];
    if (opened.count == 0) continue;
    auto request = About<abi::RestRequest>(opened.handle);
    abi::CopyText(request.engine_name, engine_name);
    abi::Received received;
    abi::RestAnswer answer;
    const Asked asked = Ask(request, PatienceMs(), &received, &answer);
    NoteAnswer(asked != Asked::kSilent);
    opened.rests =
        opened.rests ||
        (asked == Asked::kAnswered ? answer.result == abi::RestResult::kRests
                                   : asked != Asked::kUnsent);
  }
}

CUresult OpenedMemory::UnmapOne(const Driver& real, Opened* opened) {
  if (!opened->is_mapped) return CUDA_SUCCESS;
  const CUresult result =
      real.entry.cuMemUnmap(opened->range.base, opened->range.reserved_bytes);
  opened->is_mapped = result != CUDA_SUCCESS;
  return result;
}

// Unmaps the resting memory. A range that cannot be unmapped keeps its memory
// on the GPU.
void OpenedMemory::Unmap(const Driver& real) {
  const RelaxedCapture relaxed(real.entry);
  const MutexLock lock(&mutex_);
  for (size_t i = 0; i < count_; ++i) {
    if (opened_[i].rests) UnmapOne(real, &opened_[i]);
  }
}

OpenedMemory::Back OpenedMemory::Return(const Driver& real, bool may_be_old,
                                        char* why, size_t why_bytes) {
  const RelaxedCapture relaxed(real.entry);
  const MutexLock lock(&mutex_);
  for (size_t i = 0; i < count_; ++i) {
    if (!opened_[i].rests) continue;
    const Back back = ReturnOne(real, &opened_[i], may_be_old, why, why_bytes);
    if (back != Back::kHere) return back;
  }
  return Back::kHere;
}

// Asks for the memory again. Once the exporter has answered, its memory stays
// until this process rests again.
OpenedMemory::Back OpenedMemory::ReturnOne(const Driver& real, Opened* opened,
                                           bool may_be_old, char* why,
                                           size_t why_bytes) {
  const abi::IpcHandle& handle = opened->handle;
  abi::Received received;
  abi::OpenAnswer answer;
  const Asked asked =
      Ask(About<abi::OpenRequest>(handle), kExporterMs, &received, &answer);
  const bool is_gone = asked == Asked::kAnswered
                           ? answer.result == OpenResult::kUnknown
                           : HasEnded(handle);
  if (is_gone) {
    opened->rests = may_be_old || !opened->is_mapped;
    if (!opened->rests) return Back::kHere;
    snprintf(why, why_bytes,
             "memory of pid %u that it has open was on the host, and is gone",
             handle.pid);
    return Back::kLost;
  }
  if (asked != Asked::kAnswered || answer.result != OpenResult::kOpen ||
      received.descriptor_count() != 1) {
    snprintf(why, why_bytes,
             asked == Asked::kAnswered
                 ? "memory of pid %u that it has open is on the host"
                 : "pid %u, whose memory it has open, does not answer",
             handle.pid);
    return Back::kAway;
  }
  const driver::Descriptor memory(received.TakeDescriptor(0));
  if (!opened->is_mapped || opened->departures != answer.departures) {
    const CUresult result = Remap(real, opened, memory.get());
    if (result != CUDA_SUCCESS) {
      snprintf(why, why_bytes,
               "memory of pid %u that it has open cannot be mapped: CUDA error "
               "%d",
               handle.pid, static_cast<int>(result));
      return Back::kAway;
    }
  }
  opened->departures = answer.departures;
  opened->rests = false;
  return Back::kHere;
}

// Replaces the mapping by one of `memory`. After an error either nothing or the
// former memory is mapped.
CUresult OpenedMemory::Remap(const Driver& real, Opened* opened, int memory) {
  const Redirection& range = opened->range;
  const PushedContext context(real.entry, range.context);
  CUresult result = context.result();
  if (result == CUDA_SUCCESS) result = UnmapOne(real, opened);
  if (result == CUDA_SUCCESS) result = MapAt(real, range, memory);
  if (result != CUDA_SUCCESS) return result;
  opened->is_mapped = true;
  result = peers_->Open(real, range);
  if (result != CUDA_SUCCESS) UnmapOne(real, opened);
  return result;
}

}  // namespace fineserve::shim
