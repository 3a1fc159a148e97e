#include "shim/redirect/releaser.h"

#include <time.h>

#include "shim/host/pushed_context.h"
#include "shim/host/relaxed_capture.h"
#include "shim/map/whole_mapping.h"
#include "shim/redirect/captures.h"
#include "shim/redirect/decision_records.h"

namespace fineserve::shim {
namespace {

using abi::Hook;
using abi::Verdict;
using driver::CUcontext;
using driver::CUDA_ERROR_INVALID_VALUE;
using driver::CUDA_SUCCESS;
using driver::CUdeviceptr;
using driver::CUevent;
using driver::CUresult;
using driver::CUstream;

// Heuristic: how long an allocation waits, if the pool is exhausted, for frees
// that this process has made in stream order.
constexpr int kDeferredWaitMs = 1'000;

// Returns the context of `stream`: an event can be recorded only on streams of
// the context in which it was created, and a program may free in the order of
// any stream. Null, which means the current context, if the driver lacks this
// query.
CUcontext ContextOf(const driver::EntryPoints& entry, CUstream stream) {
  CUcontext owner = nullptr;
  const CUresult known = CallOptional(entry.cuStreamGetCtx, stream, &owner);
  return known == CUDA_SUCCESS ? owner : nullptr;
}

void SleepMs(int ms) {
  const timespec pause = {0, ms * 1'000'000L};
  nanosleep(&pause, nullptr);
}

}  // namespace

// True for memory of another process, which must be closed, not freed.
bool Releaser::IsOpened(CUdeviceptr address) {
  Redirection range;
  return ranges_->Find(address, &range) && range.is_opened;
}

CUresult Releaser::Free(const Driver& real, CUdeviceptr address) {
  CollectPassed(real);
  if (IsOpened(address)) return CUDA_ERROR_INVALID_VALUE;
  Redirection range;
  switch (ranges_->Take(address, &range)) {
    case RangeTable::Found::kBase:
      return Release(real, Hook::kMemFree, range);
    case RangeTable::Found::kInside:
      return CUDA_ERROR_INVALID_VALUE;
    case RangeTable::Found::kNothing:
      break;
  }
  return real.entry.cuMemFree_v2(address);
}

CUresult Releaser::FreeInStreamOrder(const Driver& real, Hook hook,
                                     CUdeviceptr address, CUstream stream,
                                     const Original& original) {
  CollectPassed(real);
  // A graph may free only memory that it allocated.
  if (IsCapturing(real.entry, stream) || IsOpened(address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Redirection range;
  switch (ranges_->Take(address, &range)) {
    case RangeTable::Found::kBase:
      return Defer(real, hook, range, stream);
    case RangeTable::Found::kInside:
      return CUDA_ERROR_INVALID_VALUE;
    case RangeTable::Found::kNothing:
      break;
  }
  return original(real.entry);
}

CUresult Releaser::Discard(const Driver& real, const Redirection& range) {
  return Unmap(real, range, /*waits=*/false);
}

CUresult Releaser::Unmap(const Driver& real, const Redirection& range,
                         bool waits) {
  if (range.is_view) return view_->FreeTensor(real, range);
  if (range.is_resident) return resident_->Free(real, range, waits);
  if (range.is_opened) return opened_->Drop(real, range);
  WholeMapping whole(real.entry, link_);
  return waits ? whole.Unmap(range) : whole.Discard(range);
}

// Shows the end of a free. Frees of memory that is not KV are not recorded,
// since they are not decisions of the shim.
void Releaser::NoteEnd(Hook hook, const Redirection& range, CUresult result) {
  if (range.is_resident) return scoreboard_->ShowResident(resident_->sum());
  if (range.is_opened) return;
  RecordFree(hook, range, Verdict::kReleased, result, scoreboard_);
  if (result == CUDA_SUCCESS) scoreboard_->CountReleased(range.asked_bytes);
}

CUresult Releaser::Release(const Driver& real, Hook hook,
                           const Redirection& range) {
  const CUresult result = Unmap(real, range, /*waits=*/true);
  NoteEnd(hook, range, result);
  // After an error the range still belongs to the program, and is still leased.
  if (result != CUDA_SUCCESS) ranges_->Insert(range);
  return result;
}

CUresult Releaser::Defer(const Driver& real, Hook hook,
                         const Redirection& range, CUstream stream) {
  const PushedContext current(real.entry, ContextOf(real.entry, stream));
  CUevent passed = nullptr;
  CUresult result =
      real.entry.cuEventCreate(&passed, driver::CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = real.entry.cuEventRecord(passed, stream);
  if (result != CUDA_SUCCESS) {
    if (passed != nullptr) real.entry.cuEventDestroy_v2(passed);
    ranges_->Insert(range);  // nothing was freed
    return result;
  }
  CUcontext context = nullptr;
  real.entry.cuCtxGetCurrent(&context);
  if (!deferred_.Add(range, passed, context)) {
    real.entry.cuEventDestroy_v2(passed);
    return Release(real, hook, range);  // waits for the context instead
  }
  RecordFree(hook, range, Verdict::kDeferred, CUDA_SUCCESS, scoreboard_);
  CollectPassed(real);
  return CUDA_SUCCESS;
}

CUresult Releaser::DestroyContext(const Driver& real, Hook hook,
                                  CUcontext context, const Original& original) {
  deferred_.Hold(context);
  const CUresult result = original(real.entry);
  if (result == CUDA_SUCCESS) {
    EndContext(real, hook, context);
  } else {
    deferred_.Unhold(context);
  }
  return result;
}

// Ends the memory of the device's primary context. Others may hold references
// to the context, so it is known only after the call whether the context has
// ended.
CUresult Releaser::EndPrimary(const Driver& real, Hook hook,
                              driver::CUdevice device,
                              const Original& original) {
  const CUcontext context = PrimaryContext(real.entry, device).get();
  deferred_.Hold(context);
  const CUresult result = original(real.entry);
  if (context != nullptr && !PrimaryContext::IsActive(real.entry, device)) {
    EndContext(real, hook, context);
  } else {
    deferred_.Unhold(context);
  }
  return result;
}

// Ends the memory of a context whose work the driver has already waited for.
void Releaser::EndContext(const Driver& real, Hook hook, CUcontext context) {
  Redirection range;
  while (deferred_.TakeHeld(context, &range)) Drop(real, hook, range);
  while (ranges_->TakeFrom(context, &range)) Drop(real, hook, range);
  peers_->Forget(context);
}

// Ends a range. One that cannot be unmapped stays leased.
bool Releaser::Drop(const Driver& real, Hook hook, const Redirection& range) {
  const CUresult result = Unmap(real, range, /*waits=*/false);
  NoteEnd(hook, range, result);
  return result == CUDA_SUCCESS;
}

bool Releaser::CollectPassed(const Driver& real) {
  link_->TellEnds();
  if (deferred_.empty()) return false;
  const RelaxedCapture relaxed(real.entry);
  bool any = false;
  Redirection range;
  while (deferred_.TakePassed(real.entry, &range)) {
    any = Drop(real, Hook::kMemFreeAsync, range) || any;
  }
  return any;
}

bool Releaser::WaitForPassed(const Driver& real) {
  for (int ms = 0; ms < kDeferredWaitMs && !deferred_.empty(); ++ms) {
    if (CollectPassed(real)) return true;
    SleepMs(1);
  }
  return false;
}

}  // namespace fineserve::shim
