// The part of Gpu whose engines leave the GPU and come back: it plays the
// movers, the store, and the daemon's decisions about room
// (daemon/fineserved/server/room_requests.cc).

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/pool/beyond.h"
#include "tools/lab/sim/gpu/gpu.h"

namespace fineserve::sim {
namespace {

using sched::ModelId;
using sched::Number;
using sched::ReplicaId;

// As PoolSizing and the shim do.
constexpr Micros kRoomTryUs = 20'000;
constexpr Micros kTightUs = 250'000;
constexpr Micros kCalmUs = 1'000'000;
constexpr Micros kKvPauseUs = 1'000'000;
// After a GPU's last request, how long it checks whether an engine may come
// back unasked; nothing changes there after that. The daemon checks for as long
// as an engine is out.
constexpr Micros kAheadUs = 5'000'000;
// Part of the GPU that weights may take at the beginning.
constexpr double kWeightsAtStart = 0.85;

}  // namespace

bool Gpu::FitsAtStart(const EngineSetup& engine) const {
  return static_cast<double>(weight_bytes_ + engine.weight_bytes) <=
         kWeightsAtStart * static_cast<double>(setup_.eviction->gpu_bytes);
}

// Counts the first engines of the list that fit as on the GPU, and makes the
// pool of the rest.
void Gpu::PlaceAtStart() {
  const EvictionSetup& eviction = *setup_.eviction;
  std::vector<evict::IdleEngines::Rules> rules;
  uint64_t scratch = 0;
  for (EngineSetup& engine : setup_.engines) {
    rules.push_back({engine.name, absl::StrCat(engine.model), true, 0,
                     setup_.models[engine.model].slo_ttft});
    if (!FitsAtStart(engine)) continue;
    weight_bytes_ += engine.weight_bytes;
    scratch += eviction.scratch_bytes;
  }
  idle_ = std::make_unique<evict::IdleEngines>(eviction.policy, rules);
  const uint64_t slab = setup_.geometry.slab_bytes();
  size_ = std::make_unique<slab::AutoSize>(slab, eviction.headroom_bytes);
  const uint64_t pool =
      eviction.gpu_bytes - eviction.headroom_bytes - weight_bytes_ - scratch;
  pool_ = std::make_unique<slab::PoolState>(
      setup_.geometry, static_cast<uint32_t>(std::min<uint64_t>(
                           pool / slab, setup_.geometry.slab_count)));
  weight_bytes_ = 0;
  next_size_ = 0;
  next_ahead_ = 0;
  if (IsClairvoyant()) next_ = 0;
}

// Puts an engine that has just begun on the GPU if it fits, else on the host.
void Gpu::Stay(Running* engine) {
  if (!setup_.eviction) return;
  const bool fits = now_ == 0 && FitsAtStart(engine->setup);
  weight_bytes_ += engine->setup.weight_bytes;
  if (fits) return;
  Leave(engine);
  EndMove(engine);
}

Micros Gpu::MoveTime(const Running& engine) const {
  return static_cast<Micros>(static_cast<double>(engine.setup.weight_bytes) /
                             setup_.eviction->link_bytes_per_us);
}

Micros Gpu::BackIn(const Running& engine) const {
  switch (engine.at) {
    case Running::At::kGpu:
    case Running::At::kLeaves:
      return 0;
    case Running::At::kComes:
      return std::max<Micros>(1, engine.move_ends - now_);
    case Running::At::kHost:
    case Running::At::kWaitsForRoom:
      break;
  }
  return std::max<Micros>(1, MoveTime(engine));
}

absl::optional<evict::Residence> Gpu::ResidenceOf(size_t engine) const {
  const Running& e = *engines_[engine];
  const bool is_here = e.at == Running::At::kGpu;
  if (e.pid == 0 || e.at == Running::At::kLeaves) return absl::nullopt;
  const uint64_t bytes = e.setup.weight_bytes;
  return evict::Residence{is_here ? bytes : 0, MoveTime(e),
                          is_here ? 0 : bytes};
}

uint64_t Gpu::FreeBytes() const {
  const auto views =
      std::count_if(engines_.begin(), engines_.end(),
                    [](const auto& e) { return e->view != nullptr; });
  const uint64_t used =
      weight_bytes_ + pool_->present_slabs() * setup_.geometry.slab_bytes() +
      static_cast<uint64_t>(views) * setup_.eviction->scratch_bytes;
  return setup_.eviction->gpu_bytes -
         std::min(setup_.eviction->gpu_bytes, used);
}

bool Gpu::AnyLeaves() const {
  return std::any_of(engines_.begin(), engines_.end(), [](const auto& e) {
    return e->at == Running::At::kLeaves;
  });
}

// Does what AdmissionService::ActivityOf does.
void Gpu::SeeIdle() {
  if (idle_ == nullptr) return;
  using Activity = evict::IdleEngines::Activity;
  for (const auto& e : engines_) {
    const auto work =
        scheduler_.WorkOf(ReplicaId{static_cast<uint32_t>(e->place)});
    const bool serves = e->pid != 0 && work;
    const bool waits =
        serves && work->queue_tokens != 0 && !idle_->Rests(e->place, now_);
    const bool runs = serves && (work->running != 0 || !e->engine.idle());
    idle_->Saw(e->place,
               !serves         ? Activity::kAway
               : runs || waits ? Activity::kBusy
                               : Activity::kIdle,
               now_, ResidenceOf(e->place));
  }
  UpdateTakes();
}

// Calls back one engine at a time; the others wait until it has come back.
void Gpu::CallBack(const std::set<ModelId>& refused) {
  if (idle_ == nullptr || first_ != nullptr) return;
  for (const auto& e : engines_) {
    const ModelId model{e->setup.model};
    const bool is_needed =
        refused.count(model) != 0 || scheduler_.Figures(model).queued != 0;
    if (!is_needed || e->at != Running::At::kHost) continue;
    return BringBack(e.get());
  }
}

void Gpu::BringBack(Running* engine) {
  engine->at = Running::At::kWaitsForRoom;
  engine->move_ends = now_;
  first_ = engine;
}

void Gpu::Move() {
  if (idle_ == nullptr) return;
  for (const auto& e : engines_) {
    if (e->move_ends <= now_) EndMove(e.get());
  }
  if (IsClairvoyant()) {
    BringBackNext();
  } else {
    BringAhead();
  }
  SizePool();
}

void Gpu::EndMove(Running* engine) {
  undecided_ = true;
  switch (engine->at) {
    case Running::At::kWaitsForRoom:
      return MakeRoom(engine);
    case Running::At::kLeaves:
      engine->at = Running::At::kHost;
      weight_bytes_ -= engine->setup.weight_bytes;
      size_->CameFree();
      next_size_ = std::min(next_size_, now_);
      break;
    case Running::At::kComes:
      engine->at = Running::At::kGpu;
      engine->came = now_;
      ++moved_.activations;
      unsettled_ = true;
      first_ = nullptr;
      break;
    case Running::At::kGpu:
    case Running::At::kHost:
      break;
  }
  engine->move_ends = kNever;
}

// Does what SocketServer::ComingFor does. First gets the view, as
// Mover::ComeBack does: the engine waits without a view while its floor is
// promised to others.
void Gpu::MakeRoom(Running* engine) {
  if (engine->view == nullptr && !ActivateView(engine).ok()) {
    engine->move_ends = now_ + kRoomTryUs;
    return;
  }
  const uint64_t bytes = engine->setup.weight_bytes;
  const auto asker = static_cast<uint32_t>(engine->pid);
  if (FreeBytes() >= bytes) {
    size_->Served(asker);
    weight_bytes_ += bytes;
    engine->at = Running::At::kComes;
    engine->move_ends = std::max(now_, link_free_) + MoveTime(*engine);
    link_free_ = engine->move_ends;
    return;
  }
  engine->move_ends = now_ + kRoomTryUs;
  const std::string& name = engine->setup.name;
  const uint64_t slab = setup_.geometry.slab_bytes();
  const bool waits = scheduler_.Figures(ModelId{engine->setup.model}).queued;
  const auto reason = waits ? evict::RoomFor::kRequests : evict::RoomFor::kNext;
  const uint64_t idle = pool_->slabs().free_count() * slab;
  const uint64_t soon = size_->FreeSoon(FreeBytes(), pool_->present_slabs());
  const uint64_t lack =
      slab::Beyond<uint64_t>(bytes, soon + pool_->present_slabs() * slab);
  const auto evict_one = [&](bool may_rest) {
    using evict::Room;
    if (AnyLeaves() || LetOneLeave(reason, name, lack)) return Room::kComes;
    if (!waits) return Room::kNotForNext;
    const bool rests = may_rest && idle_->LetOneRest(name, lack, now_);
    return rests ? Room::kComes : Room::kNone;
  };
  const auto take_slabs = [&]() -> uint64_t {
    const uint64_t givable = pool_->GivableFor(engine->pool_id) * slab;
    if (bytes > soon + givable) return 0;
    size_->Ask(asker, bytes, /*starts=*/false, Nanoseconds(now_));
    next_size_ = std::min(next_size_, now_);
    return bytes;
  };
  const uint64_t coming =
      evict::MakeRoom(bytes, {soon + idle, evict_one, take_slabs});
  if (coming != 0 || waits) return;
  LeaveView(engine);
  engine->at = Running::At::kHost;  // the next one is refused, too
  engine->move_ends = kNever;
  first_ = nullptr;
}

bool Gpu::LetOneLeave(evict::RoomFor reason, const std::string& asker,
                      uint64_t lack) {
  SeeIdle();
  const auto leaves = IsClairvoyant()
                          ? LastNeeded(reason, asker)
                          : idle_->WhoLeaves(reason, asker, lack, now_);
  if (!leaves) return false;
  Running* const engine = engines_[*leaves].get();
  if (!engine->engine.idle() || engine->engine.stepping()) return false;
  ++moved_.evictions;
  if (now_ - engine->came < evict::kStays * MoveTime(*engine)) {
    ++moved_.thrashes;
  }
  idle_->LeavesForOthers(*leaves);
  Leave(engine);
  return true;
}

// Makes the engine's view leave at once, and its weights when they are known to
// be in the store.
void Gpu::Leave(Running* engine) {
  LeaveView(engine);
  engine->at = Running::At::kLeaves;
  engine->move_ends = now_ + setup_.eviction->leave_us;
}

void Gpu::LeaveView(Running* engine) {
  const absl::Status s = pool_->SuspendView(engine->pool_id, engine->pid);
  if (!s.ok()) {
    fprintf(stderr, "sim: %s\n", std::string(s.message()).c_str());
    abort();
  }
  engine->view.reset();
  engine->blocks = SlabBlocks(setup_.geometry.slab_count);
  unsettled_ = true;
  Execute();
}

// Does what AdmissionService::BringAhead does.
void Gpu::BringAhead() {
  if (first_ != nullptr || now_ < next_ahead_) return;
  next_ahead_ = now_ + kCalmUs;
  if (running_ > 0) ahead_until_ = now_ + kAheadUs;
  if (AnyLeaves() || pool_->tight()) return;
  SeeIdle();
  const uint64_t idle =
      pool_->slabs().free_count() * setup_.geometry.slab_bytes();
  const auto is_out = [this](size_t engine) {
    return engines_[engine]->at == Running::At::kHost;
  };
  const auto ahead = idle_->BringAhead(FreeBytes() + idle, is_out, now_);
  if (!ahead) return;
  BringBack(engines_[*ahead].get());
  ahead_until_ = now_ + kAheadUs;
}

// As PoolSizing does.
void Gpu::SizePool() {
  const uint64_t now_ns = Nanoseconds(now_);
  const uint64_t slab = setup_.geometry.slab_bytes();
  if (now_ >= next_size_) {
    slab::SizeSight sight;
    sight.free_bytes = FreeBytes();
    sight.present = pool_->present_slabs();
    sight.wanted = pool_->wanted_slabs();
    sight.least = pool_->NeededSlabs();
    sight.most = setup_.geometry.slab_count;
    sight.idle = pool_->slabs().free_count();
    sight.tight = pool_->tight();
    sight.lacking = pool_->LackingSlabs();
    if (first_ != nullptr && first_->at == Running::At::kWaitsForRoom) {
      sight.reserved_bytes = first_->setup.weight_bytes;
    }
    const uint32_t size = size_->Choose(sight, now_ns);
    if (size != sight.wanted && pool_->Resize(size).ok()) unsettled_ = true;
    next_size_ = now_ + (size_->asked(now_ns) ? kRoomTryUs
                         : pool_->tight()     ? kTightUs
                                              : kCalmUs);
  }
  const bool lacks_kv = pool_->IsExhausted() && !pool_->resizing() &&
                        FreeBytes() < setup_.eviction->headroom_bytes + slab;
  if (!lacks_kv || now_ < next_kv_ || AnyLeaves()) return;
  next_kv_ = now_ + kKvPauseUs;
  LetOneLeave(evict::RoomFor::kKv, "", 0);
}

// A GPU without requests has no move to make, except to bring an engine ahead.
Micros Gpu::NextMove() const {
  if (idle_ == nullptr) return kNever;
  // While an engine comes back no other one is brought ahead.
  const Micros ahead = first_ == nullptr ? next_ahead_ : kNever;
  Micros next = IsClairvoyant() ? ahead : kNever;
  for (const auto& e : engines_) next = std::min(next, e->move_ends);
  const bool is_busy = running_ > 0 || !waiting_.empty() || next != kNever;
  if (is_busy) return std::min({next, next_size_, ahead});
  return idle_->any_is_out() && ahead <= ahead_until_ ? ahead : kNever;
}

}  // namespace fineserve::sim
