// The part of EngineView that takes an active view down and rebuilds it.

#include "shim/host/pushed_context.h"
#include "shim/view/engine_view.h"
#include "shim/view/kv_error.h"
#include "shim/view/view_format.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_SUCCESS;
using driver::CUresult;

// True if tensors of one shape can also serve as tensors of the other.
bool SameShape(const ViewShape& a, const ViewShape& b) {
  return a.plane_bytes == b.plane_bytes && a.granule_bytes == b.granule_bytes &&
         a.granules_per_plane == b.granules_per_plane &&
         a.granules_per_slab == b.granules_per_slab && a.slabs == b.slabs &&
         a.blocks == b.blocks && a.granularity == b.granularity;
}

}  // namespace

// Stops serving: after this, no call hands out a block.
int EngineView::StopServing() {
  const MutexLock lock(&mutex_);
  if (!IsActive()) {
    return KvError(FS_STATE, stage() == Stage::kSuspended
                                 ? "the view is already suspended"
                                 : "there is no active view");
  }
  if (state_.has_steps() && (state_.in_flight() || state_.used_blocks() > 0)) {
    return KvError(FS_STATE,
                   "%lu blocks are allocated or a step is in flight: free the "
                   "blocks and end the steps first",
                   state_.used_blocks());
  }
  if (mapping_.has_broken()) {
    return KvError(FS_STATE,
                   "a slab could not be unmapped before, so this view cannot "
                   "be suspended: restart the engine");
  }
  SetStage(Stage::kSuspended);
  return FS_OK;
}

int EngineView::Suspend(const Driver& real) {
  const Work work(this);
  if (const int early = StopServing()) return early;
  const CUresult waited = Synchronize(real.entry, mapping_.context());
  if (waited != CUDA_SUCCESS) {
    SetStage(Stage::kActive);
    return KvError(FS_DRIVER, "cuCtxSynchronize: CUDA error %d",
                   static_cast<int>(waited));
  }
  const uint64_t epoch = mapping_.shape().epoch;
  if (mapping_.UnmapAll(real.entry) != CUDA_SUCCESS) {
    // The leases are kept for the life of this process.
    SetStage(Stage::kClosed);
    return KvError(FS_DRIVER, "a KV tensor could not be unmapped");
  }
  mapping_.ReleaseScratch(real.entry);
  view_scoreboard_.Close();
  {
    const MutexLock lock(&mutex_);
    state_.Close();
  }
  link_->SuspendView(epoch);
  return FS_OK;
}

bool EngineView::IsInFormerPool() {
  const Work work(this);
  link_->Look();
  return IsActive() && link_->state() == abi::LinkState::kConnected &&
         !link_->IsJoinedTo(mapping_.shape().epoch);
}

int EngineView::Resume(const Driver& real) {
  const Work work(this);
  if (stage() != Stage::kSuspended) {
    return KvError(FS_STATE, "no view is suspended");
  }
  const PushedContext context(real.entry, mapping_.context());
  // The daemon may have gone since, and may have a successor.
  link_->Look();
  if (const int failed = Join(real)) return failed;
  ViewGrant grant;
  Why why;
  const Exchange granted =
      link_->RegisterView(RequestFor(format_), &grant, why);
  if (granted != Exchange::kOk) {
    // The daemon may have registered the view nevertheless, and would keep its
    // floor.
    link_->SuspendView(grant.epoch);
    return KvError(granted == Exchange::kLost ? FS_NO_DAEMON : FS_REFUSED,
                   "the view cannot be taken up again: %s", why);
  }
  const int failed = Rebuild(real, grant);
  if (failed == FS_OK) {
    Serve();
    return FS_OK;
  }
  TakeDown(real);
  if (stage() == Stage::kSuspended) link_->SuspendView(grant.epoch);
  return failed;
}

// Builds the view again. After an error the caller takes the view down.
int EngineView::Rebuild(const Driver& real, const ViewGrant& grant) {
  const bool adopted = view_scoreboard_.Adopt(
      grant.scoreboard, grant.epoch, grant.engine_id, grant.answer.slab_count);
  ViewShape shape;
  if (const int bad = Shape(real, format_, grant, &shape)) return bad;
  if (!SameShape(shape, mapping_.shape())) {
    return KvError(FS_INVALID,
                   "the daemon's pool has another size than the one that this "
                   "view was made for: restart the engine");
  }
  {
    const MutexLock lock(&mutex_);
    if (const int bad = OpenState(grant, shape, adopted)) return bad;
  }
  const CUresult mapped = mapping_.MapAgain(real.entry, grant.epoch);
  if (mapped != CUDA_SUCCESS) return NotMapped(real, mapped);
  return PutInPlace(real);
}

// Undoes what Rebuild did. If any memory of the pool may still be mapped, the
// view is closed, and the daemon leases its slabs to no other engine.
void EngineView::TakeDown(const Driver& real) {
  view_scoreboard_.Close();
  {
    const MutexLock lock(&mutex_);
    state_.Close();
  }
  if (mapping_.UnmapAll(real.entry) == CUDA_SUCCESS) {
    mapping_.ReleaseScratch(real.entry);
  } else {
    SetStage(Stage::kClosed);
  }
}

}  // namespace fineserve::shim
