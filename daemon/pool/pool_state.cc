#include "daemon/pool/pool_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/contract/abi/process_start.h"
#include "daemon/contract/abi/transport.h"
#include "daemon/contract/abi/view_messages.h"
#include "daemon/pool/beyond.h"

namespace fineserve::slab {

using abi::EngineState;

namespace {

// The pool is tight if at most 1/kTightParts of its slabs are left. Heuristic.
constexpr uint32_t kTightParts = 16;

}  // namespace

PoolState::PoolState(const PoolGeometry& geometry, SlabManager slabs,
                     uint32_t wanted_slabs)
    : geometry_(geometry),
      slabs_(std::move(slabs)),
      wanted_slabs_(wanted_slabs),
      moved_ns_(geometry.slab_count, 0) {
  for (uint32_t slot = 0; slot < abi::kEngineCapacity; ++slot) {
    free_slots_.insert(slot);
  }
}

PoolState::PoolState(const PoolGeometry& geometry, uint32_t present)
    : PoolState(geometry, SlabManager(geometry.slab_count, present), present) {
  for (uint32_t i = 0; i < present; ++i) effects_.fill.push_back(SlabId{i});
}

Effects PoolState::TakeEffects() {
  effects_.changes = slabs_.TakeChanges();
  return std::exchange(effects_, {});
}

// --- Engines ---

absl::optional<EngineId> PoolState::Find(const std::string& name,
                                         uid_t uid) const {
  for (const auto& [id, engine] : engines_) {
    if (engine.state == EngineState::kAlive && engine.name == name &&
        engine.uid == uid) {
      return id;
    }
  }
  return absl::nullopt;
}

absl::StatusOr<EngineId> PoolState::FindOrMake(const std::string& name,
                                               uid_t uid, uint64_t now_ns) {
  if (const auto found = Find(name, uid)) return *found;
  // The next daemon needs a slot to note that this one has ended.
  if (free_slots_.size() <= 1) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "this daemon already serves ",
        abi::kEngineCapacity - free_slots_.size(), " engines, its maximum"));
  }
  return Make(name, uid, now_ns);
}

EngineId PoolState::Make(const std::string& name, uid_t uid, uint64_t now_ns) {
  const uint32_t slot = *free_slots_.begin();
  free_slots_.erase(free_slots_.begin());
  const EngineId id{++last_engine_};
  Engine& engine = engines_[id];
  engine.slot = slot;
  engine.name = name;
  engine.uid = uid;
  engine.state = EngineState::kAlive;
  engine.since_ns = now_ns;
  return id;
}

absl::StatusOr<EngineId> PoolState::Join(const std::string& name, uid_t uid,
                                         pid_t pid, uint64_t now_ns,
                                         uint64_t image) {
  absl::StatusOr<EngineId> id = FindOrMake(name, uid, now_ns);
  if (!id.ok()) return id;
  Engine& engine = engines_[*id];
  if (engine.members.size() >= abi::kMemberCapacity &&
      engine.members.count(pid) == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("engine ", Number(*id), " (", name, ") already has ",
                     abi::kMemberCapacity, " members, the maximum"));
  }
  engine.members[pid] = image;
  effects_.records.insert(*id);
  Note(*id, absl::StrCat("pid ", pid, " joined"));
  return id;
}

void PoolState::Exited(pid_t pid, uint64_t now_ns) {
  lists_.SawExit();
  for (auto it = engines_.begin(); it != engines_.end();) {
    const EngineId id = it->first;
    Engine& engine = it->second;
    ++it;  // Bury may erase it
    if (engine.members.erase(pid) == 0) continue;
    engine.exited.insert(pid);
    lists_.Hurry();  // its pid may run another program, which is listed again
    // No process is left that can return the view's slabs. The engine keeps
    // them until its last member has exited, because other members may map
    // them.
    if (HasView(id, pid)) engine.view.reset();
    if (HasView(id) && engine.view->runs_pool == pid) {
      engine.view->runs_pool = 0;
    }
    effects_.records.insert(id);
    Note(id, absl::StrCat("pid ", pid, " exited"));
    if (engine.members.empty()) {
      Bury(id, now_ns);
      continue;
    }
    // Only the exited process could know of these leases.
    for (LeaseId lease : slabs_.UnseenOf(id, pid)) {
      Return(id, lease).IgnoreError();
    }
  }
}

void PoolState::Bury(EngineId id, uint64_t now_ns) {
  const uint32_t held = slabs_.Quarantine(id);
  if (held == 0) return Remove(id);
  Engine& engine = engines_[id];
  engine.state = EngineState::kQuarantined;
  engine.since_ns = now_ns;
  engine.has_erred = memory_errors_.MayKill(now_ns);
  ++counters_.engines_died;
  counters_.slabs_quarantined += held;
  Note(id, absl::StrCat(held, " slabs are quarantined"));
}

void PoolState::Note(EngineId id, const std::string& text) {
  effects_.notes.push_back(absl::StrCat("engine ", Number(id), " (",
                                        engines_.at(id).name, "): ", text));
}

void PoolState::Remove(EngineId id) {
  const uint32_t slot = engines_[id].slot;
  effects_.records.erase(id);
  effects_.views.erase(id);
  effects_.vacant.push_back(slot);
  free_slots_.insert(slot);
  engines_.erase(id);
}

bool PoolState::quarantining() const {
  return std::any_of(engines_.begin(), engines_.end(), [](const auto& entry) {
    return entry.second.state == EngineState::kQuarantined;
  });
}

bool PoolState::Awaits(pid_t pid) const {
  return std::any_of(engines_.begin(), engines_.end(), [&](const auto& entry) {
    return entry.second.exited.count(pid) != 0;
  });
}

bool PoolState::awaiting() const {
  return quarantining() ||
         std::any_of(engines_.begin(), engines_.end(), [](const auto& entry) {
           return !entry.second.exited.empty();
         });
}

bool PoolState::Listed(const std::vector<pid_t>& pids, pid_t self) {
  lists_.Answered();
  const std::set<pid_t> listed(pids.begin(), pids.end());
  if (listed.count(self) == 0) return false;
  if (!lists_.TakeCounts()) return true;
  for (auto& [id, engine] : engines_) {
    const size_t gone = std::erase_if(
        engine.exited, [&](pid_t pid) { return listed.count(pid) == 0; });
    if (gone > 0) effects_.records.insert(id);
  }
  for (auto it = engines_.begin(); it != engines_.end();) {
    const EngineId id = it->first;
    const Engine& engine = it->second;
    ++it;
    const bool lingers = !engine.exited.empty() || engine.has_unknown;
    if (engine.state != EngineState::kQuarantined || lingers) continue;
    const std::vector<SlabId> released = slabs_.Release(id);
    Note(id, absl::StrCat(released.size(), " slabs leave quarantine"));
    if (engine.has_erred) {
      Replace(released);
    } else {
      Fill(released);
    }
    Remove(id);
  }
  return true;
}

std::vector<pid_t> PoolState::AwaitedPids() const {
  std::vector<pid_t> pids;
  for (const auto& [id, engine] : engines_) {
    pids.insert(pids.end(), engine.exited.begin(), engine.exited.end());
  }
  return pids;
}

bool PoolState::HasErred(uint64_t errors, uint64_t now_ns) {
  if (!memory_errors_.HasRisen(errors, now_ns)) return false;
  for (auto& [id, engine] : engines_) {
    if (engine.state == EngineState::kQuarantined) engine.has_erred = true;
  }
  return true;
}

std::vector<EngineId> PoolState::Engines() const {
  std::vector<EngineId> all;
  for (const auto& [id, engine] : engines_) all.push_back(id);
  return all;
}

std::string PoolState::NameOf(EngineId engine) const {
  const auto it = engines_.find(engine);
  return it == engines_.end() ? "" : it->second.name;
}

std::string PoolState::DescribeHolders() const {
  std::vector<std::string> holders;
  for (const auto& [id, holding] : slabs_.Holdings()) {
    const Engine& engine = engines_.at(id);
    const bool dead = engine.state == EngineState::kQuarantined;
    holders.push_back(absl::StrCat("engine ", Number(id), " (", engine.name,
                                   dead ? ", dead" : "", ") ", holding.slabs,
                                   " slabs"));
  }
  return holders.empty() ? "none" : absl::StrJoin(holders, ", ");
}

abi::EngineRecord PoolState::Record(EngineId id) const {
  abi::EngineRecord record = {};
  const auto it = engines_.find(id);
  if (it == engines_.end()) return record;
  const Engine& engine = it->second;
  const SlabManager::Holding held = slabs_.HeldBy(id);
  record.id = Number(id);
  record.state = engine.state;
  record.uid = engine.uid;
  record.slabs_held = held.slabs;
  record.limit = engine.limit;
  record.since_ns = engine.since_ns;
  for (const auto& [pid, image] : engine.members) {
    record.member_pids[record.member_count] = static_cast<uint32_t>(pid);
    const uint32_t place = abi::kMemberCapacity - 1 - record.member_count;
    if (place >= engine.members.size()) record.member_starts[place] = image;
    record.member_starts[record.member_count++] = abi::StartOf(image);
  }
  for (pid_t pid : engine.exited) {
    if (record.exited_count == abi::kMemberCapacity) break;
    record.exited_pids[record.exited_count++] = static_cast<uint32_t>(pid);
  }
  if (engine.exited.size() > abi::kMemberCapacity || engine.has_unknown) {
    record.exited_count = abi::kMemberCapacity + 1;
  }
  abi::CopyText(record.name, engine.name.c_str());
  if (!engine.view) return record;
  const View& view = *engine.view;
  const Format& format = view.layout.format();
  record.view = {view.mode,
                 view.state,
                 static_cast<uint32_t>(view.pid),
                 format.planes,
                 format.page_bytes,
                 format.block_tokens,
                 view.layout.granules_per_plane(),
                 view.slabs,
                 view.floor,
                 view.cap,
                 view.target,
                 view.wanted,
                 held.in_view,
                 held.returning,
                 view.offer,
                 static_cast<uint32_t>(view.runs_pool),
                 (view.group ? abi::kViewOfGroup : 0) |
                     (view.registered ? abi::kViewIsRegistered : 0),
                 view.shape};
  return record;
}

// --- Whole slabs ---

// Returns how many of the `pool` slabs are neither leased whole, nor held by a
// dead engine, nor waiting for a fill, nor needed for the floors of views.
// Views and requests share these slabs. If the caller passes `quarantined`,
// slabs that quarantines may still free are counted there. The floor of engine
// `except` is not counted.
uint32_t PoolState::Uncommitted(uint32_t pool, uint32_t* quarantined,
                                EngineId except) const {
  uint32_t taken = static_cast<uint32_t>(unfilled_.size());
  uint32_t dead = 0;
  for (const auto& [id, engine] : engines_) {
    const SlabManager::Holding held = slabs_.HeldBy(id);
    const bool serves = engine.view.has_value();
    if (engine.state == EngineState::kQuarantined) {
      dead += held.slabs;
    } else {
      taken += held.slabs - (serves ? held.in_view : 0);
    }
    if (serves && id != except &&
        engine.view->state != abi::ViewState::kSuspended) {
      taken += engine.view->floor;
    }
  }
  if (quarantined != nullptr) {
    *quarantined = dead;
  } else {
    taken += dead;
  }
  return pool - std::min(pool, taken);
}

uint32_t PoolState::LackForWhole(EngineId engine, uint32_t count,
                                 const Asker& asker) const {
  if (asker.request != 0 && slabs_.FindUnseen(engine, asker)) return 0;
  if (count > Beyond(WholeRoom(engine), slabs_.PromisedTo(engine))) return 0;
  const uint32_t pool = std::min(present_slabs(), wanted_slabs_);
  return Beyond(count,
                Beyond(Uncommitted(pool, nullptr), slabs_.promised_count()));
}

void PoolState::Lease(EngineId engine, uint32_t count, uint64_t ticket,
                      uint64_t now_ns, const Asker& asker) {
  if (GrantAgain(engine, count, ticket, asker)) return;
  const uint32_t pool = std::min(present_slabs(), wanted_slabs_);
  const SlabManager::Request request = {engine, count, ticket, now_ns, asker};
  const uint32_t most = Beyond(WholeRoom(engine), slabs_.PromisedTo(engine));
  if (count > most) {
    return Refuse(request, most, /*late=*/false, engines_.at(engine).limit);
  }
  const auto available = slabs_.Lease(request, Uncommitted(pool, nullptr));
  if (available) return Refuse(request, *available, /*late=*/false);
  GrantWaiting();
}

// Grants the request's former lease again. Ends a lease that is incomplete
// because a daemon died while it published the lease.
bool PoolState::GrantAgain(EngineId engine, uint32_t count, uint64_t ticket,
                           const Asker& asker) {
  if (asker.request == 0) return false;
  absl::optional<Grant> former = slabs_.FindUnseen(engine, asker);
  if (!former) return false;
  if (former->slabs.size() != count) {
    Return(engine, former->lease).IgnoreError();
    return false;
  }
  former->ticket = ticket;
  effects_.grants.push_back(*std::move(former));
  return true;
}

void PoolState::Seen(EngineId engine, LeaseId lease) {
  slabs_.Seen(engine, lease);
}

absl::Status PoolState::GiveUp(EngineId engine, const Asker& asker) {
  const absl::optional<Grant> lost = slabs_.FindUnseen(engine, asker);
  if (asker.request != 0 && lost) return Return(engine, lost->lease);
  return absl::NotFoundError(absl::StrCat(
      "no lease answers request ", asker.request, " of pid ", asker.pid));
}

void PoolState::Refuse(const SlabManager::Request& request, uint32_t available,
                       bool late, uint32_t limit) {
  ++counters_.leases_denied;
  effects_.refusals.push_back(
      {request.ticket, request.engine, request.count, available, late, limit});
}

void PoolState::GrantWaiting() {
  for (Grant& grant : slabs_.TakeGrants()) {
    ++counters_.leases_granted;
    effects_.records.insert(grant.engine);
    effects_.grants.push_back(std::move(grant));
  }
}

absl::Status PoolState::Return(EngineId engine, LeaseId lease) {
  absl::StatusOr<std::vector<SlabId>> slabs = slabs_.Return(engine, lease);
  if (!slabs.ok()) return slabs.status();
  Fill(*slabs);
  effects_.records.insert(engine);
  return absl::OkStatus();
}

// --- Memory ---

void PoolState::Fill(const std::vector<SlabId>& slabs) {
  effects_.fill.insert(effects_.fill.end(), slabs.begin(), slabs.end());
}

// Discards the slabs. Grow makes them again if the GPU has the memory.
void PoolState::Replace(const std::vector<SlabId>& slabs) {
  for (SlabId slab : slabs) {
    slabs_.Discard(slab);
    effects_.drop.push_back(slab);
    ++counters_.slabs_withdrawn;
  }
}

void PoolState::Zeroed(SlabId slab) {
  ++counters_.slabs_zeroed;
  slabs_.Zeroed(slab);
  GrantWaiting();
}

void PoolState::NotZeroed(SlabId slab) { unfilled_.insert(slab); }

void PoolState::Made(SlabId slab) {
  making_.erase(slab);
  slabs_.Add(slab);
  ++counters_.slabs_added;
  Fill({slab});
  // Ranks of engines that span GPUs map it before it is leased.
  for (const auto& [id, engine] : engines_) {
    if (engine.view && engine.view->group) Touch(id);
  }
}

void PoolState::NotMade(SlabId slab) {
  making_.erase(slab);
  wanted_slabs_ = present_slabs();
}

// --- Limits ---

absl::Status PoolState::SetLimit(EngineId id, uint32_t slabs) {
  const auto found = engines_.find(id);
  if (found == engines_.end() ||
      found->second.state != abi::EngineState::kAlive) {
    return absl::NotFoundError(
        absl::StrCat("there is no living engine ", Number(id)));
  }
  Engine& engine = found->second;
  const uint32_t floor = engine.view ? engine.view->floor : 0;
  if (slabs != 0 && slabs < floor) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine ", engine.name, " has a floor of ", floor,
        " slabs, which are its own at all times; its limit can be ", floor,
        " slabs at least, not ", slabs));
  }
  engine.limit = slabs;
  effects_.records.insert(id);
  Note(id, slabs == 0 ? "no limit now"
                      : absl::StrCat("limited to ", slabs, " slabs"));
  if (slabs == 0) return absl::OkStatus();
  const uint32_t room = WholeRoom(id);
  for (const auto& request : slabs_.TakeBeyond(id, room)) {
    Refuse(request, room, /*late=*/false, slabs);
  }
  GrantWaiting();
  return absl::OkStatus();
}

// Returns the limit on the engine's whole slabs, including those that it waits
// for.
uint32_t PoolState::WholeRoom(EngineId id) const {
  const Engine& engine = engines_.at(id);
  if (engine.limit == 0) return UINT32_MAX;
  const SlabManager::Holding held = slabs_.HeldBy(id);
  const uint32_t floor = engine.view ? engine.view->floor : 0;
  const uint32_t in_view = std::max(held.in_view, floor);
  return Beyond(engine.limit, held.slabs - held.in_view + in_view);
}

void PoolState::SetDropped(EngineId id, uint64_t bytes, bool raises_cap) {
  const auto found = engines_.find(id);
  if (found == engines_.end()) return;
  const uint64_t slabs = raises_cap ? bytes / geometry_.slab_bytes() : 0;
  found->second.has_dropped = bytes != 0;
  found->second.above_cap =
      static_cast<uint32_t>(std::min<uint64_t>(slabs, UINT32_MAX));
}

uint32_t PoolState::CapOf(EngineId id) const {
  const Engine& engine = engines_.at(id);
  const View& view = *engine.view;
  const uint32_t cap =
      view.cap + std::min(view.slabs - view.cap, engine.above_cap);
  if (engine.limit == 0) return cap;
  const SlabManager::Holding held = slabs_.HeldBy(id);
  const uint32_t left = Beyond(engine.limit, held.slabs - held.in_view);
  return std::min(cap, std::max(view.floor, left));
}

// Checks that a view that is registered after its engine was limited fits into
// the limit.
absl::Status PoolState::CheckLimit(EngineId id, const View& view) const {
  const Engine& engine = engines_.at(id);
  if (engine.limit == 0 || view.floor <= engine.limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "its floor of ", view.floor, " slabs is more than the limit of ",
      engine.limit, " slabs that its operator has set; fsctl limit ",
      engine.name, " none takes that away"));
}

// Asks back the slabs that views hold above their limits, or above their caps
// after they have restored what they had dropped, even if no engine needs these
// slabs. The slabs with the fewest blocks in use come first, since they drain
// soonest. Unlike AskBack, does not ask for others in place of late slabs,
// because no engine waits.
void PoolState::AskBackAboveLimits(const Round& round, uint64_t now_ns,
                                   const UsedBlocks& used) {
  for (size_t i = 0; i < round.ids.size(); ++i) {
    const EngineId id = round.ids[i];
    const SlabManager::Holding held = slabs_.HeldBy(id);
    uint32_t above = Beyond(held.in_view - held.returning, round.claims[i].cap);
    if (above == 0) continue;
    std::vector<Candidate> candidates;
    for (const auto& [slab, lease] : slabs_.InView(id)) {
      if (slabs_.word(slab).state != abi::SlabState::kPartial) continue;
      candidates.push_back({slab, used(id, slab), i});
    }
    for (SlabId slab : ChooseAskBacks(
             {{SlabId{slabs_.slab_count()}, above}}, {}, std::move(candidates),
             std::vector<Giver>(round.ids.size(), Giver{above}))) {
      AskBack(slab, now_ns);
    }
  }
}

// --- The size of the pool ---

absl::Status PoolState::Resize(uint32_t slabs) {
  if (slabs == 0 || slabs > slabs_.slab_count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the pool can have 1 to ", slabs_.slab_count(), " slabs, not ", slabs));
  }
  const uint32_t needed = NeededSlabs();
  if (slabs < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("the pool cannot shrink to ", slabs, " slabs: ", needed,
                     IsRegistered() ? " are known to other devices"
                                    : " are floors of engines or leased "
                                      "whole"));
  }
  wanted_slabs_ = slabs;
  return absl::OkStatus();
}

bool PoolState::IsRegistered() const {
  return std::any_of(engines_.begin(), engines_.end(), [](const auto& engine) {
    return engine.second.view && engine.second.view->registered;
  });
}

uint32_t PoolState::NeededSlabs() const {
  const uint32_t all = slabs_.slab_count();
  if (IsRegistered()) return all;
  uint32_t quarantined = 0;  // these only delay the resize: see Shrink
  return all - Uncommitted(all, &quarantined) + slabs_.promised_count();
}

uint32_t PoolState::GivableFor(EngineId asker) const {
  if (IsRegistered()) return 0;
  const uint32_t left = Uncommitted(present_slabs(), nullptr);
  uint32_t kept = slabs_.promised_count();
  const auto found = engines_.find(asker);
  if (found != engines_.end() && found->second.view &&
      !found->second.has_dropped) {
    kept += Beyond(slabs_.HeldBy(asker).in_view, found->second.view->floor);
  }
  // A pool has one slab at least.
  return std::min(Beyond(left, kept), Beyond(present_slabs(), 1u));
}

bool PoolState::tight() const {
  const uint32_t left = slabs_.free_count() + slabs_.zeroing_count();
  const uint32_t leased = Beyond(present_slabs(), left);
  return contended_ || unmatched_ ||
         (leased > 0 && left <= present_slabs() / kTightParts);
}

uint32_t PoolState::LackingSlabs() const {
  uint32_t wanted = 0;
  for (const auto& [id, engine] : engines_) {
    if (engine.state != EngineState::kAlive || !engine.view) continue;
    wanted += Beyond(std::min(engine.view->wanted, CapOf(id)),
                     slabs_.HeldBy(id).in_view);
  }
  return Beyond(wanted, slabs_.free_count() + slabs_.zeroing_count());
}

bool PoolState::IsExhausted() const {
  return slabs_.free_count() == 0 && LackingSlabs() != 0;
}

bool PoolState::AnyStarting(uint64_t now_ns) const {
  for (const auto& [id, engine] : engines_) {
    if (engine.state != EngineState::kAlive ||
        now_ns - engine.since_ns > kStartNs || slabs_.HeldBy(id).slabs > 0) {
      continue;
    }
    if (!engine.view || engine.view->state == abi::ViewState::kRegistered) {
      return true;
    }
  }
  return false;
}

}  // namespace fineserve::slab
