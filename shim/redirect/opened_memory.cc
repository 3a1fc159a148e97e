#include "shim/redirect/opened_memory.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/abi/process_start.h"
#include "daemon/abi/transport.h"
#include "kernels/driver/descriptor.h"
#include "shim/host/relaxed_capture.h"
#include "shim/host/warn.h"
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

// Heuristics: an exporter whose memory is being moved answers after that; one
// whose memory is on the host needs the GPU's room first.
constexpr uint64_t kOpenMs = 120'000;
constexpr int kCloseMs = 2'000;
// One that was silent once is not waited for again for some time.
constexpr int kBriefMs = 10;
constexpr uint64_t kImpatientMs = 10'000;
constexpr timespec kAwayPause = {0, 20'000'000};  // between questions

abi::IpcHandle Decode(const driver::CUipcMemHandle& handle) {
  abi::IpcHandle decoded;
  static_assert(sizeof(decoded) == sizeof(handle));
  memcpy(&decoded, &handle, sizeof(decoded));
  return decoded;
}

bool IsOwn(const abi::IpcHandle& handle) {
  return handle.pid == static_cast<uint32_t>(getpid()) &&
         abi::IsSameImage(handle.image, abi::ProcessImage(getpid()));
}

// A connection to the process that made the handle, or -1.
int ConnectToExporter(const abi::IpcHandle& handle, int timeout_ms) {
  const int fd = ConnectToName(handle.socket, timeout_ms);
  if (fd < 0) return -1;
  ucred peer;
  if (PeerOf(fd, &peer) && static_cast<uint32_t>(peer.pid) == handle.pid &&
      abi::IsSameImage(handle.image, abi::ProcessImage(peer.pid))) {
    return fd;
  }
  close(fd);
  return -1;
}

// Sends a request on a connection of its own. False without its answer.
template <typename Request, typename Answer>
bool Ask(const abi::IpcHandle& handle, int timeout_ms, abi::Received* received,
         Answer* answer) {
  const driver::Descriptor socket(ConnectToExporter(handle, timeout_ms));
  auto request = abi::MakeMessage<Request>(1);
  request.handle = handle;
  return socket.valid() && abi::Send(socket.get(), request) == 0 &&
         WaitReadable(socket.get(), timeout_ms) == 0 &&
         received->ReceiveFrom(socket.get()) == 0 && received->As(answer);
}

// The memory behind a handle. Unless it is kOpen, this process may have it lent
// all the same: the answer may be lost.
OpenResult Borrow(const abi::IpcHandle& handle, abi::Received* received,
                  uint64_t* bytes) {
  const uint64_t until_ms = NowMs() + kOpenMs;
  for (;;) {
    abi::OpenAnswer answer;
    if (!Ask<abi::OpenRequest>(handle, kOpenMs, received, &answer)) {
      return OpenResult::kUnknown;
    }
    *bytes = answer.bytes;
    if (answer.result == OpenResult::kOpen) {
      return received->descriptor_count() == 1 ? OpenResult::kOpen
                                               : OpenResult::kUnknown;
    }
    if (answer.result != OpenResult::kAway || NowMs() >= until_ms) {
      return answer.result;
    }
    nanosleep(&kAwayPause, nullptr);
  }
}

}  // namespace

bool OpenedMemory::IsOurs(const driver::CUipcMemHandle& handle) {
  return Decode(handle).magic == abi::IpcHandle::kMagic;
}

OpenedMemory::Opened* OpenedMemory::Find(const abi::IpcHandle& handle,
                                         CUcontext context) {
  for (size_t i = 0; i < count_; ++i) {
    Opened& opened = opened_[i];
    if (memcmp(&opened.handle, &handle, sizeof(handle)) == 0 &&
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

// As a driver, it opens nothing of this process's own.
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
  const MutexLock lock(&mutex_);
  Opened* const opened = Find(decoded, context);
  if (opened == nullptr) return OpenNew(real, decoded, context, out);
  ++opened->count;
  *out = opened->range.base;
  return CUDA_SUCCESS;
}

CUresult OpenedMemory::OpenNew(const Driver& real, const abi::IpcHandle& handle,
                               CUcontext context, CUdeviceptr* out) {
  if (count_ == kCapacity) return CUDA_ERROR_OUT_OF_MEMORY;
  abi::Received received;
  Redirection range;
  const OpenResult borrowed = Borrow(handle, &received, &range.reserved_bytes);
  if (borrowed != OpenResult::kOpen) GiveBackUnlessOpen(handle);
  switch (borrowed) {
    case OpenResult::kOpen:
      break;
    case OpenResult::kAway:
      Warn(
          "cuIpcOpenMemHandle failed: the memory of pid %u is on the host, "
          "and did not come back within %lu s (free some of the GPU)",
          handle.pid, kOpenMs / 1000);
      return CUDA_ERROR_OUT_OF_MEMORY;
    case OpenResult::kUnknown:
      if (!refusal_warned_.exchange(true, std::memory_order_relaxed)) {
        Warn(
            "cuIpcOpenMemHandle refused: pid %u has no such memory for this "
            "process, or has ended (open a handle while its memory is there, "
            "as the same user)",
            handle.pid);
      }
      return CUDA_ERROR_INVALID_VALUE;
  }
  range.asked_bytes = handle.bytes;
  range.context = context;
  range.is_opened = true;
  const driver::Descriptor memory(received.TakeDescriptor(0));
  const CUresult result = Place(real, &range, memory.get());
  if (result != CUDA_SUCCESS) {
    GiveBackUnlessOpen(handle);
    return result;
  }
  opened_[count_++] = {range, handle, 1};
  in_use_.store(true, std::memory_order_relaxed);
  *out = range.base;
  return CUDA_SUCCESS;
}

// After an error nothing is mapped or reserved.
CUresult OpenedMemory::Place(const Driver& real, Redirection* range,
                             int memory) {
  const EntryPoints& entry = real.entry;
  const uint64_t bytes = range->reserved_bytes;
  CUdevice device = 0;
  driver::CUmemGenericAllocationHandle handle = 0;
  CUresult result = entry.cuCtxGetDevice(&device);
  if (result == CUDA_SUCCESS) result = ImportGranule(entry, memory, &handle);
  if (result != CUDA_SUCCESS) return result;
  result = entry.cuMemAddressReserve(&range->base, bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) {
    entry.cuMemRelease(handle);
    return result;
  }
  result = MapMemory(entry, handle, range->base, bytes, device);
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

// Each close waits for the work first, and not under the mutex: which of them
// is the last is known under it alone, and the work may need a lock of the
// program's that a thread holds which waits here.
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

// It is unmapped before its exporter may move it.
CUresult OpenedMemory::End(const Driver& real, Opened* opened) {
  const Redirection& range = opened->range;
  const CUresult result =
      real.entry.cuMemUnmap(range.base, range.reserved_bytes);
  if (result != CUDA_SUCCESS) return result;
  real.entry.cuMemAddressFree(range.base, range.reserved_bytes);
  const abi::IpcHandle handle = opened->handle;
  *opened = opened_[--count_];
  GiveBackUnlessOpen(handle);
  return CUDA_SUCCESS;
}

// A process has one loan of an allocation, whatever contexts it is open in.
// Without an answer the exporter reads the request when it can.
void OpenedMemory::GiveBackUnlessOpen(const abi::IpcHandle& handle) {
  if (Find(handle, nullptr) != nullptr) return;
  const int timeout_ms = NowMs() < impatient_until_ms_ ? kBriefMs : kCloseMs;
  abi::Received received;
  abi::CloseDone done;
  if (!Ask<abi::CloseRequest>(handle, timeout_ms, &received, &done)) {
    impatient_until_ms_ = NowMs() + kImpatientMs;
  }
}

}  // namespace fineserve::shim
