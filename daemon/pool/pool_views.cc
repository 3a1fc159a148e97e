// The part of PoolState that registers and ends views.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/pool/beyond.h"
#include "daemon/pool/pool_state.h"
#include "kernels/driver/rounding.h"

namespace fineserve::slab {
namespace {

using abi::SlabState;
using abi::ViewState;

// Returns the number of slabs that hold `blocks` and `bytes`, whichever slabs
// they are.
uint64_t SlabsFor(uint64_t blocks, uint64_t bytes, const SlabLayout& layout,
                  const PoolGeometry& geometry) {
  return std::max(DivideUp(blocks, layout.LeastBlocks()),
                  DivideUp(bytes, geometry.slab_bytes()));
}

}  // namespace

bool PoolState::HasView(EngineId engine) const {
  const auto it = engines_.find(engine);
  return it != engines_.end() && it->second.view.has_value();
}

std::vector<EngineId> PoolState::Groups() const {
  std::vector<EngineId> groups;
  for (const auto& [id, engine] : engines_) {
    if (engine.view && engine.view->group &&
        engine.view->state == ViewState::kActive) {
      groups.push_back(id);
    }
  }
  return groups;
}

const PoolState::View* PoolState::FindView(EngineId engine, pid_t pid) const {
  return HasView(engine) && engines_.at(engine).view->pid == pid
             ? &*engines_.at(engine).view
             : nullptr;
}

PoolState::View* PoolState::FindView(EngineId engine, pid_t pid) {
  return const_cast<View*>(std::as_const(*this).FindView(engine, pid));
}

PoolState::View* PoolState::FindPool(EngineId engine, pid_t pid) {
  if (!HasView(engine)) return nullptr;
  View& view = *engines_.at(engine).view;
  const pid_t runs = view.group ? view.runs_pool : view.pid;
  return view.state == ViewState::kActive && runs == pid ? &view : nullptr;
}

// Leaves out the floor of the engine's own view: a process whose answer was
// lost registers again, and the new view replaces the old one.
uint32_t PoolState::LeftForFloors(EngineId engine,
                                  uint32_t* quarantined) const {
  const uint32_t pool = std::min(present_slabs(), wanted_slabs_);
  return Beyond(Uncommitted(pool, quarantined, engine),
                slabs_.promised_count());
}

uint32_t PoolState::LackFor(EngineId engine, const ViewSpec& spec,
                            const ShareLimits& limits) const {
  const absl::StatusOr<View> view = MakeView(0, spec, limits);
  uint32_t quarantined = 0;
  if (!view.ok()) return 0;
  return Beyond(view->floor, LeftForFloors(engine, &quarantined));
}

absl::Status PoolState::CheckFloor(EngineId engine, const View& view,
                                   uint64_t floor_blocks) const {
  const uint32_t pool = std::min(present_slabs(), wanted_slabs_);
  uint32_t quarantined = 0;
  const uint32_t left = LeftForFloors(engine, &quarantined);
  const uint32_t sure = left - std::min(left, quarantined);
  if (view.floor <= sure) return absl::OkStatus();
  const std::string text = absl::StrCat(
      "its floor of ", view.floor, " slabs (", floor_blocks,
      " blocks) does not fit: of the pool's ", pool, " slabs, ", pool - left,
      " are other engines' floors or leased whole",
      quarantined > 0 ? absl::StrCat(" and ", quarantined,
                                     " wait for the end of a dead engine")
                      : "",
      "; lower the longest request (vLLM: --max-model-len) or enlarge the "
      "pool");
  if (view.floor <= left) return absl::UnavailableError(text);
  return absl::ResourceExhaustedError(text);
}

absl::StatusOr<PoolState::View> PoolState::MakeView(
    pid_t pid, const ViewSpec& spec, const ShareLimits& limits) const {
  absl::StatusOr<SlabLayout> layout =
      SlabLayout::Create(geometry_, spec.format);
  if (!layout.ok()) return layout.status();
  // A view without slabs could not serve a request.
  const uint64_t floor = std::max<uint64_t>(
      1, SlabsFor(spec.floor_blocks, limits.floor_bytes, *layout, geometry_));
  uint64_t cap = slabs_.slab_count();
  if (spec.cap_blocks > 0) {
    cap = std::min(cap, SlabsFor(spec.cap_blocks, 0, *layout, geometry_));
  }
  if (limits.cap_bytes > 0) {
    cap = std::min(cap, limits.cap_bytes / geometry_.slab_bytes());
  }
  return View{pid,
              spec.mode,
              *layout,
              slabs_.slab_count(),
              static_cast<uint32_t>(std::min<uint64_t>(floor, UINT32_MAX)),
              static_cast<uint32_t>(std::max(cap, floor)),
              spec.group,
              spec.shape};
}

absl::Status PoolState::RegisterView(EngineId engine, pid_t pid,
                                     const ViewSpec& spec,
                                     const ShareLimits& limits) {
  const View* suspended = FindView(engine, pid);
  if (suspended != nullptr && suspended->state == ViewState::kActive) {
    suspended = nullptr;
  }
  if (HasView(engine) && suspended == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("pid ", engines_.at(engine).view->pid,
                     " already has the view of engine ", Number(engine),
                     "; give this process another engine name "
                     "($FINESERVE_ENGINE, fsctl run --name)"));
  }
  if (slabs_.HeldBy(engine).in_view > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "engine ", Number(engine),
        " still holds the slabs of a view whose process has died; stop its "
        "other processes, or use another engine name"));
  }
  absl::StatusOr<View> view = MakeView(pid, spec, limits);
  if (!view.ok()) return view.status();
  view->registered = spec.registered;
  const uint32_t sure = std::min(present_slabs(), wanted_slabs_);
  if (spec.registered && sure < slabs_.slab_count()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "other devices get the addresses of its KV cache, and ",
        slabs_.slab_count() - sure, " of the pool's ", slabs_.slab_count(),
        " slabs have no memory; start fineserved with a fixed --pool"));
  }
  absl::Status fits = CheckLimit(engine, *view);
  fits.Update(CheckFloor(engine, *view, spec.floor_blocks));
  if (!fits.ok()) return fits;
  engines_[engine].view = *std::move(view);
  effects_.records.insert(engine);
  return absl::OkStatus();
}

absl::Status PoolState::ActivateView(EngineId engine, pid_t pid, uint32_t slabs,
                                     uint32_t wanted, uint64_t now_ns) {
  View* view = FindView(engine, pid);
  if (view != nullptr && view->state == ViewState::kActive &&
      view->slabs == std::min(slabs, slabs_.slab_count())) {
    return absl::OkStatus();  // the answer was lost
  }
  if (view == nullptr || view->state != ViewState::kRegistered) {
    return absl::FailedPreconditionError(
        view == nullptr || view->state == ViewState::kSuspended
            ? "this process has not registered a view"
            : "the view is already active");
  }
  if (slabs < view->floor) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its tensors hold ", slabs, " slabs, fewer than its floor of ",
        view->floor, "; give it more blocks (vLLM: --kv-cache-memory-bytes)"));
  }
  view->slabs = std::min(slabs, slabs_.slab_count());
  view->cap = std::min(view->cap, view->slabs);
  view->wanted = wanted;
  view->asked_ns = now_ns;
  view->state = ViewState::kActive;
  effects_.records.insert(engine);
  return absl::OkStatus();
}

absl::Status PoolState::RunPool(EngineId engine, pid_t pid) {
  if (!HasView(engine)) {
    return absl::FailedPreconditionError("its engine has no view here");
  }
  View& view = *engines_[engine].view;
  if (!view.group || view.state != ViewState::kActive) {
    return absl::FailedPreconditionError(
        view.group ? "its engine's view is not active"
                   : "its engine's view was not registered for several GPUs");
  }
  if (view.runs_pool != 0 && view.runs_pool != pid) {
    return absl::FailedPreconditionError(
        absl::StrCat("pid ", view.runs_pool, " runs the block pool of engine ",
                     Number(engine),
                     "; give this process another engine name "
                     "($FINESERVE_ENGINE, fsctl run --name)"));
  }
  const uint32_t left = slabs_.HeldBy(engine).in_view;
  if (view.runs_pool == 0 && left > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the process that ran the block pool of engine ", Number(engine),
        " has ended and left ", left,
        " slabs, which steps of its other processes may still write; restart "
        "the engine as a whole"));
  }
  view.runs_pool = pid;
  effects_.records.insert(engine);
  return absl::OkStatus();
}

bool PoolState::Want(EngineId engine, pid_t pid, uint32_t wanted,
                     uint64_t now_ns) {
  View* view = FindPool(engine, pid);
  if (view == nullptr) return false;
  view->wanted = wanted;
  view->most = UINT32_MAX;
  view->asked_ns = now_ns;
  effects_.records.insert(engine);
  return true;
}

absl::Status PoolState::ReturnSlab(EngineId engine, pid_t pid, SlabId slab,
                                   LeaseId lease) {
  if (FindPool(engine, pid) == nullptr) {
    return absl::NotFoundError("this process has no active view");
  }
  absl::Status s = slabs_.ReturnSlab(engine, slab, lease);
  if (!s.ok()) return s;
  ++counters_.slabs_returned;
  Fill({slab});
  effects_.records.insert(engine);
  return s;
}

void PoolState::EndLeases(EngineId engine) {
  std::vector<SlabId> freed;
  for (const auto& [slab, lease] : slabs_.InView(engine)) {
    if (slabs_.ReturnSlab(engine, slab, lease).ok()) freed.push_back(slab);
  }
  Fill(freed);
  effects_.records.insert(engine);
}

absl::Status PoolState::CloseView(EngineId engine, pid_t pid) {
  if (!HasView(engine, pid)) {
    return absl::NotFoundError("this process has no view");
  }
  EndLeases(engine);
  engines_[engine].view.reset();
  return absl::OkStatus();
}

absl::Status PoolState::SuspendView(EngineId engine, pid_t pid) {
  View* view = FindView(engine, pid);
  if (view == nullptr) {
    return absl::NotFoundError("this process has no view");
  }
  EndLeases(engine);
  view->state = ViewState::kSuspended;
  view->wanted = view->target = 0;
  return absl::OkStatus();
}

bool PoolState::MayMap(const View& view, EngineId engine, SlabId slab) const {
  if (Number(slab) >= slabs_.slab_count()) return false;
  if (view.state == ViewState::kSuspended) return false;
  const abi::SlabWord word = slabs_.word(slab);
  if (word.state == SlabState::kAbsent) return false;
  return view.mode == abi::ViewMode::kView || word.engine == Number(engine);
}

absl::StatusOr<std::vector<uint32_t>> PoolState::ViewGranules(
    EngineId engine, pid_t pid, uint32_t first, uint32_t count) const {
  std::vector<uint32_t> granules;
  const View* view = FindView(engine, pid);
  for (uint32_t i = first; view != nullptr && granules.size() < count; ++i) {
    if (!MayMap(*view, engine, SlabId{i / geometry_.granules_per_slab})) break;
    granules.push_back(i);
  }
  if (!granules.empty()) return granules;
  return absl::NotFoundError(
      absl::StrCat("engine ", Number(engine), " may not map granule ", first));
}

absl::StatusOr<std::vector<uint32_t>> PoolState::GranulesOf(
    EngineId engine, LeaseId lease, uint32_t first, uint32_t count) const {
  std::vector<uint32_t> granules;
  const std::vector<SlabId> held = slabs_.SlabsOf(engine, lease);
  const uint32_t per_slab = geometry_.granules_per_slab;
  for (uint32_t i = first;
       granules.size() < count && i / per_slab < held.size(); ++i) {
    granules.push_back(Number(held[i / per_slab]) * per_slab + i % per_slab);
  }
  if (!granules.empty()) return granules;
  return absl::NotFoundError(absl::StrCat("engine ", Number(engine),
                                          " has no granule ", first,
                                          " in lease ", Number(lease)));
}

}  // namespace fineserve::slab
