#include "shim/redirect/peer_access.h"

#include "shim/host/original.h"
#include "shim/host/relaxed_capture.h"

namespace fineserve::shim {
namespace {

using driver::CU_MEM_ACCESS_FLAGS_PROT_NONE;
using driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
using driver::CUcontext;
using driver::CUDA_SUCCESS;
using driver::CUdevice;
using driver::CUmemAccess_flags;
using driver::CUmemAccessDesc;
using driver::CUmemoryPool;
using driver::CUresult;

CUmemAccessDesc AccessOf(CUdevice device, CUmemAccess_flags flags) {
  return {{driver::CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
}

CUmemAccess_flags PoolAccess(const Driver& real, CUmemoryPool pool,
                             CUdevice device) {
  driver::CUmemLocation where = {driver::CU_MEM_LOCATION_TYPE_DEVICE, device};
  auto flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  const CUresult known =
      CallOptional(real.entry.cuMemPoolGetAccess, &flags, pool, &where);
  return known == CUDA_SUCCESS ? flags : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

}  // namespace

CUresult PeerAccess::Open(const Driver& real, const Redirection& range) {
  const uint64_t peers = range.pool == nullptr ? DevicesOf(range.context) : 0;
  if (peers == 0 && range.pool == nullptr) return CUDA_SUCCESS;
  const RelaxedCapture relaxed(real.entry);
  CUdevice own = 0;
  int count = 0;
  CUresult result = real.entry.cuCtxGetDevice(&own);
  if (result == CUDA_SUCCESS) result = real.entry.cuDeviceGetCount(&count);
  for (CUdevice d = 0; result == CUDA_SUCCESS && d < count; ++d) {
    if (d == own || d >= kMostDevices) continue;
    const auto flags = range.pool != nullptr ? PoolAccess(real, range.pool, d)
                       : (peers >> d & 1) != 0
                           ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                           : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
    const CUmemAccessDesc access = AccessOf(d, flags);
    result =
        real.entry.cuMemSetAccess(range.base, range.reserved_bytes, &access, 1);
  }
  return result;
}

// Sets the access to all ranges concerned. An error is ignored, since a range
// that was freed in the meantime is gone.
template <typename Concerns>
void PeerAccess::SetRanges(const Driver& real, const CUmemAccessDesc& access,
                           Concerns concerns) {
  const RelaxedCapture relaxed(real.entry);
  Redirection range;
  for (driver::CUdeviceptr at = 0;
       ranges_->FirstOverlap(at, UINT64_MAX - at, &range);
       at = range.base + range.reserved_bytes) {
    if (range.is_view || !concerns(range)) continue;
    real.entry.cuMemSetAccess(range.base, range.reserved_bytes, &access, 1);
  }
}

// Notes the access before it applies it, so that a range which is mapped in
// between is already in the table or finds the note (Open).
void PeerAccess::SetContext(const Driver& real, CUcontext peer, bool opens) {
  CUdevice device = 0;
  if (real.entry.cuCtxGetDevice(&device) != CUDA_SUCCESS) return;
  Set(peer, device, opens);
  const auto flags = opens ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                           : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  SetRanges(real, AccessOf(device, flags), [&](const Redirection& r) {
    return r.context == peer && r.pool == nullptr;
  });
}

void PeerAccess::Enable(const Driver& real, CUcontext peer) {
  SetContext(real, peer, true);
}

void PeerAccess::Disable(const Driver& real, CUcontext peer) {
  SetContext(real, peer, false);
}

void PeerAccess::SetPool(const Driver& real, CUmemoryPool pool,
                         const CUmemAccessDesc* access, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    SetRanges(real, access[i],
              [&](const Redirection& r) { return r.pool == pool; });
  }
}

void PeerAccess::Forget(CUcontext context) {
  const MutexLock lock(&mutex_);
  for (Entry& entry : entries_) {
    if (entry.context == context) entry = {};
  }
}

uint64_t PeerAccess::DevicesOf(CUcontext context) {
  const MutexLock lock(&mutex_);
  for (const Entry& entry : entries_) {
    if (entry.context == context) return entry.devices;
  }
  return 0;
}

void PeerAccess::Set(CUcontext context, CUdevice device, bool open) {
  if (device < 0 || device >= kMostDevices) return;
  in_use_.store(true, std::memory_order_relaxed);
  const uint64_t bit = uint64_t{1} << device;
  const MutexLock lock(&mutex_);
  Entry* place = nullptr;
  for (Entry& entry : entries_) {
    if (entry.context == context) place = &entry;
    if (place == nullptr && entry.context == nullptr) place = &entry;
    if (entry.context == context) break;
  }
  if (place == nullptr) return;  // the table is full: it stays closed
  place->context = context;
  place->devices = open ? place->devices | bit : place->devices & ~bit;
  if (place->devices == 0) *place = {};
}

}  // namespace fineserve::shim
