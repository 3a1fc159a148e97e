#include "shim/view/engine_view.h"

#include <string.h>

#include <algorithm>
#include <new>

#include "daemon/contract/abi/block_range.h"
#include "shim/map/memory_account.h"
#include "shim/view/kv_error.h"
#include "shim/view/view_format.h"

namespace fineserve::shim {
namespace {

using abi::BlocksOfView;
using abi::LinkState;
using driver::CUDA_SUCCESS;
using driver::CUdevice;
using driver::CUresult;

int DriverFailed(const char* what, CUresult result) {
  return KvError(FS_DRIVER, "%s: CUDA error %d", what,
                 static_cast<int>(result));
}

int TooLarge(const ViewShape& shape) {
  return KvError(
      FS_NO_MEMORY,
      "there is too little host memory for the %lu blocks of the view",
      shape.blocks);
}

int NotGranted(Exchange outcome, const char* what, const Why& why) {
  const bool lost = outcome == Exchange::kLost;
  return KvError(lost ? FS_NO_DAEMON : FS_REFUSED, "%s %s: %s", what,
                 lost ? "failed" : "was refused", why);
}

}  // namespace

int EngineView::ReadPool(const Driver& real, fs_kv_pool* pool) {
  const Work work(this);
  if (const int failed = Join(real)) return failed;
  const SlabGeometry geometry = link_->geometry();
  pool->slab_count = geometry.slab_count;
  pool->slab_bytes = geometry.slab_bytes;
  pool->granule_bytes = geometry.granule_bytes;
  return FS_OK;
}

int EngineView::Register(const Driver& real, const fs_kv_format& format,
                         fs_kv_geometry* geometry) {
  const Work work(this);
  if (stage() != Stage::kNone) {
    return KvError(FS_STATE,
                   "this process already has a view; close it and free its "
                   "tensors first");
  }
  if (const int bad = CheckFormat(format)) return bad;
  if (const int failed = Join(real)) return failed;
  ViewGrant grant;
  Why why;
  const Exchange granted = link_->RegisterView(RequestFor(format), &grant, why);
  if (granted != Exchange::kOk) {
    return NotGranted(granted, "the view's registration", why);
  }
  ViewShape shape;
  if (const int failed = Begin(real, format, grant, &shape)) {
    Forget();
    link_->CloseView(grant.epoch);
    return failed;
  }
  format_ = format;
  format_.blocks = shape.blocks;
  geometry->slab_count = shape.slabs;
  geometry->blocks = shape.blocks;
  geometry->plane_bytes = shape.plane_bytes;
  geometry->floor_slabs = floor_slabs_;
  geometry->cap_slabs = std::min(grant.answer.cap_slabs, shape.slabs);
  is_rank_.store(format.flags == FS_KV_RANK, std::memory_order_relaxed);
  is_registered_.store(format.flags == FS_KV_REGISTERED,
                       std::memory_order_relaxed);
  SetStage(Stage::kRegistered);
  return FS_OK;
}

int EngineView::Join(const Driver& real) {
  CUdevice device = 0;
  driver::CUuuid uuid;
  if (!real.complete) {
    return KvError(FS_DRIVER, "this CUDA driver is too old for views");
  }
  if (real.entry.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      real.entry.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) {
    return KvError(FS_STATE, "this thread has no current CUDA context");
  }
  uint8_t gpu[16];
  memcpy(gpu, uuid.bytes, sizeof(gpu));
  const LinkState joined = link_->Join(gpu, /*reconnect=*/true);
  if (joined == LinkState::kConnected) return FS_OK;
  Why why;
  link_->CopyReason(why);
  return KvError(joined == LinkState::kRefused ? FS_REFUSED : FS_NO_DAEMON,
                 "no daemon serves this GPU: %s", why);
}

int EngineView::Shape(const Driver& real, const fs_kv_format& format,
                      const ViewGrant& grant, ViewShape* out) {
  driver::CUmemAllocationProp prop = PlainMemoryOf(0);
  CUresult result = real.entry.cuCtxGetDevice(&prop.location.id);
  size_t granularity = 0;
  if (result == CUDA_SUCCESS) {
    result = real.entry.cuMemGetAllocationGranularity(
        &granularity, &prop, driver::CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  }
  if (result != CUDA_SUCCESS) return DriverFailed("granularity", result);
  return ShapeFor(format, grant, granularity, out);
}

// Begins a view. After an error the caller must undo it (Forget).
int EngineView::Begin(const Driver& real, const fs_kv_format& format,
                      const ViewGrant& grant, ViewShape* shape) {
  const bool adopted = view_scoreboard_.Adopt(
      grant.scoreboard, grant.epoch, grant.engine_id, grant.answer.slab_count);
  if (const int bad = Shape(real, format, grant, shape)) return bad;
  const MutexLock lock(&mutex_);
  if (!mapping_.Open(*shape)) return TooLarge(*shape);
  returned_slabs_ = calls_to_activate_ = calls_serving_ = 0;
  swaps_.Reset();
  return OpenState(grant, *shape, adopted);
}

// Sets the view's holdings, want and timers to their state before activation.
int EngineView::OpenState(const ViewGrant& grant, const ViewShape& shape,
                          bool adopted) {
  if (!adopted || !state_.OpenLeases(grant, shape)) {
    return KvError(FS_REFUSED, "the daemon's slab table is not usable");
  }
  if (!state_.OpenBlocks(grant, shape)) return TooLarge(shape);
  floor_slabs_ = grant.answer.floor_slabs;
  has_stale_ = kept_ = false;
  swaps_.Forget();
  scoreboard_shown_ms_ = 0;
  return FS_OK;
}

// Resets everything. Requires that nothing is mapped.
void EngineView::Forget() {
  const MutexLock lock(&mutex_);
  SetStage(Stage::kNone);
  state_.Close();
  mapping_.Close();
  view_scoreboard_.Close();
}

MapResult EngineView::AddTensor(const Driver& real, uint64_t bytes,
                                Redirection* out) {
  const Work work(this);
  if (stage() != Stage::kRegistered) return {MapOutcome::kWrongSize};
  return mapping_.AddTensor(real.entry, bytes, out);
}

CUresult EngineView::FreeTensor(const Driver& real, const Redirection& tensor) {
  const Work work(this);
  CUresult result = CUDA_SUCCESS;
  if (stage() == Stage::kRegistered) {
    result = Synchronize(real.entry, tensor.context);
  } else if (stage() == Stage::kActive || stage() == Stage::kSuspended) {
    result = End(real);
  }
  if (result == CUDA_SUCCESS) {
    result = mapping_.RemoveTensor(real.entry, tensor.base);
  }
  if (result == CUDA_SUCCESS && stage() == Stage::kClosed && mapping_.empty()) {
    Forget();
  }
  return result;
}

int EngineView::CheckReady() {
  if (stage() != Stage::kRegistered) {
    return KvError(FS_STATE, stage() == Stage::kActive
                                 ? "the view is already active"
                             : stage() == Stage::kSuspended
                                 ? "the view is suspended: call fs_kv_resume()"
                                 : "no view is registered");
  }
  if (scoreboard_->plugin_stage() < FS_KV_POOL_CONSTRUCTED) {
    return KvError(
        FS_STATE,
        "restrict the engine's block pool to leased blocks, and call "
        "fs_kv_progress(FS_KV_POOL_CONSTRUCTED), before activation");
  }
  if (!mapping_.complete()) {
    return KvError(
        FS_STATE,
        "some of the view's %u tensors of %lu bytes are missing: allocate "
        "them between fs_kv_begin() and fs_kv_end()",
        mapping_.shape().tensors(), mapping_.shape().tensor_bytes());
  }
  return FS_OK;
}

// Activates all or nothing: an error unmaps the whole view, and the engine must
// not serve.
int EngineView::Activate(const Driver& real) {
  const Work work(this);
  if (const int early = CheckReady()) return early;
  const CUresult waited = Synchronize(real.entry, mapping_.context());
  mapping_.CountCalls(3);
  if (waited != CUDA_SUCCESS) return DriverFailed("cuCtxSynchronize", waited);
  const int failed = PutInPlace(real);
  if (failed != FS_OK) {
    // While something may still be mapped, the view is not closed at the
    // daemon, so that the daemon leases those slabs to no other engine.
    if (mapping_.UnmapAll(real.entry) == CUDA_SUCCESS) {
      link_->CloseView(mapping_.shape().epoch);
    }
    SetStage(Stage::kClosed);
    return failed;
  }
  Serve();
  return FS_OK;
}

// Starts to serve: from now on slabs are leased to the view.
void EngineView::Serve() {
  calls_to_activate_ = mapping_.calls();
  connection_ = link_->connections();
  want_sent_ = floor_slabs_;
  has_served_.store(false, std::memory_order_relaxed);
  SetStage(Stage::kActive);
  ShowMapped();
  ShowScoreboard(/*now_ms=*/0);
}

int EngineView::NotMapped(const Driver& real, CUresult result) {
  char account[400];
  if (result != driver::CUDA_ERROR_OUT_OF_MEMORY ||
      !DescribeMemory(real.entry, link_, account, sizeof(account))) {
    return DriverFailed("mapping the pool", result);
  }
  return KvError(
      FS_NO_ROOM,
      "mapping the pool: out of device memory: %s; give fineserved a "
      "smaller --pool, or run fewer engines",
      account);
}

int EngineView::PutInPlace(const Driver& real) {
  // Only the slab table is read.
  const ViewState* const state = &state_;
  const auto memory = [state](uint32_t v) { return state->leases().Memory(v); };
  const MapResult mapped = mapping_.Activate(real.entry, link_, memory);
  Why why;
  link_->CopyReason(why);
  switch (mapped.outcome) {
    case MapOutcome::kMapped:
      break;
    case MapOutcome::kRefused:
      return KvError(FS_REFUSED, "the daemon withheld the pool's granules: %s",
                     why);
    case MapOutcome::kNoDaemon:
      return KvError(FS_NO_DAEMON,
                     "the daemon was lost while the pool was being mapped: %s",
                     why);
    default:
      return NotMapped(real, mapped.result);
  }
  const Exchange activated = link_->ActivateView(
      mapping_.shape().epoch, mapping_.shape().slabs, floor_slabs_, why);
  if (activated == Exchange::kOk) return FS_OK;
  return NotGranted(activated, "the view's activation", why);
}

int EngineView::Close(const Driver& real) {
  const Work work(this);
  if (stage() == Stage::kNone || stage() == Stage::kClosed) {
    return KvError(FS_STATE, "there is no view to close");
  }
  const CUresult result = End(real);
  if (result != CUDA_SUCCESS) return DriverFailed("closing the view", result);
  if (mapping_.empty()) Forget();
  return FS_OK;
}

// Ends the view. Changes nothing unless the context could be synchronised. If
// something may still be mapped afterwards, the leases are kept for the life of
// this process.
CUresult EngineView::End(const Driver& real) {
  if (!mapping_.empty()) {
    const CUresult waited = Synchronize(real.entry, mapping_.context());
    if (waited != CUDA_SUCCESS) return waited;
  }
  const CUresult unmapped = mapping_.UnmapAll(real.entry);
  {
    // Allocate and Free see the end when they take the lock, if not before.
    const MutexLock lock(&mutex_);
    SetStage(Stage::kClosed);
  }
  if (unmapped == CUDA_SUCCESS) link_->CloseView(mapping_.shape().epoch);
  return unmapped;
}

int EngineView::SlabBlocks(uint32_t view_index, uint64_t* first,
                           uint64_t* end) {
  const Work work(this);
  if (stage() == Stage::kNone) {
    return KvError(FS_STATE, "no view is registered");
  }
  const ViewShape& shape = mapping_.shape();
  if (view_index > shape.slabs) {
    return KvError(FS_INVALID, "view_index is %u, not 0 to %u", view_index,
                   shape.slabs);
  }
  const abi::BlockRange range =
      BlocksOfView(view_index, shape.plane_bytes, shape.page_bytes);
  *first = range.first;
  *end = range.end;
  return FS_OK;
}

int EngineView::ReadRank(fs_kv_rank* rank) {
  if (stage() == Stage::kNone) {
    return KvError(FS_STATE, "no view is registered");
  }
  rank->pid = static_cast<uint32_t>(getpid());
  link_->CopyIdentity(rank->gpu_uuid, rank->engine_name);
  return FS_OK;
}

int EngineView::ReadStats(fs_kv_stats* stats) {
  const Work work(this);
  if (stage() == Stage::kNone) {
    return KvError(FS_STATE, "no view is registered");
  }
  const MutexLock lock(&mutex_);
  if (stage() == Stage::kSuspended) {
    *stats = {};
    stats->struct_bytes = sizeof(*stats);
  } else {
    state_.Show(stats);
  }
  if (!state_.has_steps()) stats->used_blocks = view_scoreboard_.SumUsed();
  stats->returned_slabs = returned_slabs_;
  stats->driver_calls_to_activate = calls_to_activate_;
  stats->driver_calls_serving =
      IsActive() ? mapping_.calls() - calls_to_activate_ : calls_serving_;
  return FS_OK;
}

}  // namespace fineserve::shim
