#include "daemon/server/view_service.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/log/log.h"
#include "kernels/driver/rounding.h"

namespace fineserve::server {

using abi::SlabState;
using abi::ViewState;
using slab::EngineId;
using slab::Number;
using slab::SlabId;

namespace {

// The number of slabs that hold `blocks`, wherever they lie, and `bytes`.
uint64_t SlabsFor(uint64_t blocks, uint64_t bytes,
                  const slab::SlabLayout& layout,
                  const slab::PoolGeometry& geometry) {
  return std::max(DivideUp(blocks, layout.LeastBlocks()),
                  DivideUp(bytes, geometry.slab_bytes()));
}

}  // namespace

ViewService::ViewService(slab::SlabManager* slabs, slab::TableWriter* table,
                         const Clock* clock, const slab::PoolGeometry& geometry,
                         uint64_t epoch)
    : slabs_(slabs),
      table_(table),
      clock_(clock),
      geometry_(geometry),
      epoch_(epoch) {}

uint32_t ViewService::Floors() const {
  uint32_t sum = 0;
  for (const auto& [id, view] : views_) sum += view.floor;
  return sum;
}

absl::Status ViewService::Register(EngineId engine, pid_t pid, uint32_t slot,
                                   const ViewSpec& spec,
                                   const ShareLimits& limits) {
  if (const auto it = views_.find(engine); it != views_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("pid ", it->second.pid, " already has the view of engine ",
                     Number(engine),
                     "; give this process another engine name "
                     "($FINESERVE_ENGINE, fsctl run --name)"));
  }
  if (slabs_->HeldBy(engine).in_view > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "engine ", Number(engine),
        " still holds the slabs of a view whose process has died; stop its "
        "other processes, or use another engine name"));
  }
  absl::StatusOr<slab::SlabLayout> layout =
      slab::SlabLayout::Create(geometry_, spec.format);
  if (!layout.ok()) return layout.status();
  const uint32_t pool = slabs_->slab_count() - slabs_->absent_count();
  // A view without slabs could not serve a request.
  const uint64_t floor = std::max<uint64_t>(
      1, SlabsFor(spec.floor_blocks, limits.floor_bytes, *layout, geometry_));
  const uint32_t others = Floors();
  if (floor > pool - std::min(pool, others)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "its floor of ", floor, " slabs (", spec.floor_blocks,
        " blocks) does not fit: the floors of other engines take ", others,
        " of the pool's ", pool,
        " slabs; lower the longest request (vLLM: --max-model-len) or enlarge "
        "the pool"));
  }
  uint64_t cap = slabs_->slab_count();
  if (spec.cap_blocks > 0) {
    cap = std::min(cap, SlabsFor(spec.cap_blocks, 0, *layout, geometry_));
  }
  if (limits.cap_bytes > 0) {
    cap = std::min(cap, limits.cap_bytes / geometry_.slab_bytes());
  }
  absl::StatusOr<ViewScoreboardMemfd> scoreboard =
      ViewScoreboardMemfd::Create(epoch_, engine, pid, slabs_->slab_count());
  if (!scoreboard.ok()) return scoreboard.status();
  views_.emplace(
      engine, View{pid, slot, spec.mode, ViewState::kRegistered, *layout,
                   *std::move(scoreboard), slabs_->slab_count(),
                   static_cast<uint32_t>(floor),
                   static_cast<uint32_t>(std::max(cap, floor)), 0, 0, false});
  return absl::OkStatus();
}

const ViewService::View* ViewService::Find(EngineId engine, pid_t pid) const {
  const auto it = views_.find(engine);
  return it == views_.end() || it->second.pid != pid ? nullptr : &it->second;
}

ViewService::View* ViewService::Find(EngineId engine, pid_t pid) {
  return const_cast<View*>(std::as_const(*this).Find(engine, pid));
}

absl::Status ViewService::Activate(EngineId engine, pid_t pid, uint32_t slabs,
                                   uint32_t wanted) {
  View* view = Find(engine, pid);
  if (view == nullptr || view->state != ViewState::kRegistered) {
    return absl::FailedPreconditionError(
        view == nullptr ? "this process has not registered a view"
                        : "the view is already active");
  }
  if (slabs < view->floor) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its tensors hold ", slabs, " slabs, fewer than its floor of ",
        view->floor, "; give it more blocks (vLLM: --kv-cache-memory-bytes)"));
  }
  view->slabs = std::min(slabs, slabs_->slab_count());
  view->cap = std::min(view->cap, view->slabs);
  view->wanted = wanted;
  view->state = ViewState::kActive;
  return absl::OkStatus();
}

bool ViewService::IsActive(EngineId engine, pid_t pid) const {
  const View* view = Find(engine, pid);
  return view != nullptr && view->state == ViewState::kActive;
}

bool ViewService::Want(EngineId engine, pid_t pid, uint32_t wanted) {
  if (!IsActive(engine, pid)) return false;
  Find(engine, pid)->wanted = wanted;
  return true;
}

bool ViewService::MayMap(EngineId engine, pid_t pid, SlabId slab) const {
  const View* view = Find(engine, pid);
  if (view == nullptr || Number(slab) >= slabs_->slab_count()) return false;
  const abi::SlabWord word = slabs_->word(slab);
  if (word.state == SlabState::kAbsent) return false;
  return view->mode == abi::ViewMode::kView || word.engine == Number(engine);
}

void ViewService::Forget(EngineId engine) { views_.erase(engine); }

// Leases the free slabs, except `reserved` of them, to views below their
// targets.
void ViewService::Grant(uint32_t reserved, const std::vector<uint32_t>& targets,
                        Round* round) {
  std::vector<bool> blocked(round->views.size(), false);
  while (slabs_->free_count() > reserved) {
    const size_t i = slab::NextToGrant(round->claims, targets, blocked);
    if (i == round->views.size()) return;
    View& view = round->views[i]->second;
    if (!slabs_->LeaseForView(round->views[i]->first, SlabId{view.slabs})
             .has_value()) {
      blocked[i] = true;  // its tensors have no place for any free slab
      continue;
    }
    slab::Count(table_->counters().leases_granted);
    ++round->claims[i].held;
    view.touched = true;
  }
}

// Asks back what the views below their targets need, and what is missing from
// `reserved` free slabs.
void ViewService::AskBack(uint32_t reserved,
                          const std::vector<uint32_t>& targets,
                          const Round& round) {
  std::vector<slab::Need> needs;
  std::vector<uint32_t> spare(round.claims.size(), 0);
  std::map<uint32_t, size_t> claim_of;
  for (size_t i = 0; i < round.claims.size(); ++i) {
    const uint32_t held = round.claims[i].held;
    const View& view = round.views[i]->second;
    claim_of[Number(round.views[i]->first)] = i;
    if (held > targets[i]) spare[i] = held - targets[i];
    if (held < targets[i]) {
      needs.push_back({SlabId{view.slabs}, targets[i] - held});
    }
  }
  std::vector<uint32_t> late(round.claims.size(), 0);
  const uint32_t free = slabs_->free_count();
  if (reserved > free) {
    needs.push_back({SlabId{slabs_->slab_count()}, reserved - free});
  }
  if (needs.empty()) return;
  std::vector<SlabId> coming;
  std::vector<slab::Candidate> candidates;
  for (uint32_t i = 0; i < slabs_->slab_count(); ++i) {
    const abi::SlabWord word = slabs_->word(SlabId{i});
    const auto claim = claim_of.find(word.engine);
    if (word.state == SlabState::kReturning && IsLate(SlabId{i})) {
      if (claim != claim_of.end()) ++late[claim->second];
    } else if (word.state == SlabState::kZeroing ||
               word.state == SlabState::kReturning) {
      coming.push_back(SlabId{i});
    }
    if (word.state != SlabState::kPartial || claim == claim_of.end()) continue;
    const View& view = round.views[claim->second]->second;
    candidates.push_back(
        {SlabId{i}, view.scoreboard.UsedBlocks(SlabId{i}), claim->second});
  }
  // An engine whose asked-back slabs are late is above its target for now: it
  // can spare other slabs instead, but never below its floor.
  for (size_t i = 0; i < round.claims.size(); ++i) {
    const slab::Claim& claim = round.claims[i];
    const uint32_t most = claim.held - std::min(claim.held, claim.floor);
    spare[i] = std::min(spare[i] + late[i], most);
  }
  for (SlabId slab : slab::ChooseAskBacks(std::move(needs), std::move(coming),
                                          std::move(candidates), spare)) {
    views_.at(EngineId{slabs_->word(slab).engine}).touched = true;
    slabs_->AskBack(slab);
    asked_at_ns_[slab] = clock_->NowNs();
    slab::Count(table_->counters().slabs_asked_back);
  }
}

void ViewService::ForgetReturned() {
  for (auto it = asked_at_ns_.begin(); it != asked_at_ns_.end();) {
    const bool returning =
        slabs_->word(it->first).state == SlabState::kReturning;
    it = returning ? std::next(it) : asked_at_ns_.erase(it);
  }
}

bool ViewService::IsLate(SlabId slab) const {
  const auto it = asked_at_ns_.find(slab);
  return it != asked_at_ns_.end() &&
         clock_->NowNs() - it->second >= kPatienceNs;
}

std::vector<EngineId> ViewService::Balance(uint32_t reserved) {
  ForgetReturned();
  Round round;
  uint32_t all = slabs_->free_count() + slabs_->zeroing_count();
  for (auto it = views_.begin(); it != views_.end(); ++it) {
    View& view = it->second;
    view.touched = false;
    if (view.state != ViewState::kActive) continue;
    const slab::SlabManager::Holding held = slabs_->HeldBy(it->first);
    round.views.push_back(it);
    round.claims.push_back(
        {view.floor, view.cap, view.wanted, held.in_view - held.returning});
    all += held.in_view;
  }
  if (round.views.empty()) return {};
  const std::vector<uint32_t> targets =
      slab::FairTargets(all - std::min(all, reserved), round.claims);
  Grant(reserved, targets, &round);
  AskBack(reserved, targets, round);
  std::vector<EngineId> touched;
  for (size_t i = 0; i < round.views.size(); ++i) {
    View& view = round.views[i]->second;
    view.touched = view.touched || view.target != targets[i];
    view.target = targets[i];
    if (view.touched) touched.push_back(round.views[i]->first);
  }
  return touched;
}

std::map<EngineId, ViewService::Prospect> ViewService::Prospects(
    const std::map<EngineId, uint64_t>& promised_tokens) const {
  std::map<EngineId, Prospect> prospects;
  std::vector<slab::Claim> claims;
  uint32_t all = slabs_->free_count() + slabs_->zeroing_count();
  for (const auto& [id, view] : views_) {
    if (view.state != ViewState::kActive) continue;
    const uint64_t slab_tokens =
        view.layout.LeastBlocks() * view.layout.format().block_tokens;
    prospects[id] = {
        0, view.cap, slab_tokens,
        view.scoreboard.UsedBlocks(view.slabs * view.layout.LeastBlocks()) *
            view.layout.format().block_tokens};
    const auto promised = promised_tokens.find(id);
    const uint64_t needed = promised == promised_tokens.end()
                                ? 0
                                : DivideUp(promised->second, slab_tokens);
    claims.push_back({view.floor, view.cap,
                      static_cast<uint32_t>(std::max<uint64_t>(
                          view.wanted, std::min<uint64_t>(needed, view.cap))),
                      0});
    all += slabs_->HeldBy(id).in_view;
  }
  size_t i = 0;
  for (auto& [id, prospect] : prospects) {
    const uint32_t wanted = std::exchange(claims[i].wanted, claims[i].cap);
    prospect.slabs = slab::FairTargets(all, claims)[i];
    claims[i++].wanted = wanted;
  }
  return prospects;
}

void ViewService::TellAll() {
  for (const auto& [id, view] : views_) {
    if (view.state == ViewState::kActive) table_->Announce(view.slot);
  }
}

uint32_t ViewService::Reclaimable() const {
  uint32_t sum = 0;
  for (const auto& [id, view] : views_) {
    const slab::SlabManager::Holding held = slabs_->HeldBy(id);
    sum += held.returning;
    const uint32_t kept = held.in_view - held.returning;
    if (kept > view.floor) sum += kept - view.floor;
  }
  return sum;
}

abi::ViewRecord ViewService::Record(EngineId engine) const {
  abi::ViewRecord record = {};
  const auto it = views_.find(engine);
  if (it == views_.end()) return record;
  const View& view = it->second;
  const slab::SlabManager::Holding held = slabs_->HeldBy(engine);
  record.mode = view.mode;
  record.state = view.state;
  record.pid = static_cast<uint32_t>(view.pid);
  record.planes = view.layout.format().planes;
  record.page_bytes = view.layout.format().page_bytes;
  record.block_tokens = view.layout.format().block_tokens;
  record.granules_per_plane = view.layout.granules_per_plane();
  record.slabs = view.slabs;
  record.floor = view.floor;
  record.cap = view.cap;
  record.target = view.target;
  record.wanted = view.wanted;
  record.leased = held.in_view;
  record.returning = held.returning;
  return record;
}

const slab::SlabLayout& ViewService::Layout(EngineId engine) const {
  return views_.at(engine).layout;
}

int ViewService::ScoreboardDescriptor(EngineId engine) const {
  return views_.at(engine).scoreboard.descriptor();
}

}  // namespace fineserve::server
