// The part of Gpu that plays the pool's executor and the engines' views.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/fineserved/admission/rooms/kv_in_pool.h"
#include "kernels/driver/rounding.h"
#include "tools/lab/sim/gpu/gpu.h"

namespace fineserve::sim {
namespace {

using slab::EngineId;
using slab::SlabId;

// All engines belong to the same user.
constexpr uid_t kUser = 0;
// The daemon's pid; pids of engines are counted from 1.
constexpr pid_t kDaemon = std::numeric_limits<pid_t>::max();

[[noreturn]] void Die(const std::string& why) {
  fprintf(stderr, "sim: %s\n", why.c_str());
  abort();
}

}  // namespace

absl::Status Gpu::StartView(Running* engine) {
  const absl::StatusOr<EngineId> id =
      pool_->Join(engine->setup.name, kUser, engine->pid, Nanoseconds(now_));
  if (!id.ok()) return id.status();
  engine->pool_id = *id;
  places_[*id] = engine->place;
  return ActivateView(engine);
}

absl::Status Gpu::ActivateView(Running* engine) {
  const EngineSetup& setup = engine->setup;
  const EngineId id = engine->pool_id;
  const pid_t pid = engine->pid;
  slab::ViewSpec spec;
  spec.mode = abi::ViewMode::kView;
  spec.format = setup.format;
  spec.floor_blocks = DivideUp(setup.longest_tokens, setup.format.block_tokens);
  absl::Status s =
      pool_->RegisterView(id, pid, spec, {setup.floor_bytes, setup.cap_bytes});
  if (!s.ok()) {
    return absl::Status(
        s.code(), absl::StrCat("engine \"", setup.name, "\": ", s.message()));
  }
  const abi::EngineRecord record = pool_->Record(id);
  engine->view = std::make_unique<LeasedView>(
      id, pool_->Layout(id), record.view.cap, record.view.floor,
      setup_.geometry.slab_count, &engine->blocks);
  return pool_->ActivateView(id, pid, setup_.geometry.slab_count,
                             record.view.floor, Nanoseconds(now_));
}

// The pool was made, and its engines have started, before the run.
void Gpu::FillAtStart() {
  Execute();
  for (const auto& [at, slab] : std::exchange(fills_, {})) pool_->Zeroed(slab);
}

void Gpu::LeaseFloors() {
  if (pool_ == nullptr) return;
  SettlePool();
  for (const auto& engine : engines_) LookAtLeases(engine.get());
}

// Carries out the pool's effects.
void Gpu::Execute() {
  for (slab::Effects effects = pool_->TakeEffects(); !effects.empty();
       effects = pool_->TakeEffects()) {
    for (const slab::SlabChange& change : effects.changes) {
      for (const auto& engine : engines_) {
        if (engine->view == nullptr || !engine->view->Notice(change)) continue;
        // The engine uses a new slab from its next step on.
        if (engine->engine.stepping()) {
          engine->engine.AdvanceTo(now_, begun_);
          engine->engine.Cut(now_, begun_);
        }
        engine->plan_at = now_;
      }
    }
    if (effects.list_processes) ListProcesses();
    for (const SlabId slab : effects.make) pool_->Made(slab);
    // Fills are done one after the other, as by one stream of the device.
    for (const SlabId slab : effects.fill) {
      const Micros begin = fills_.empty() ? now_ : fills_.back().first;
      fills_.emplace_back(begin + setup_.pool.fill_us, slab);
    }
  }
  for (const auto& engine : engines_) {
    if (engine->view == nullptr || !engine->view->LeaveAsked()) continue;
    ReturnDrained(engine.get());
    TellWant(engine.get());
  }
}

// Answers as the driver does when the daemon asks for the processes on the GPU.
void Gpu::ListProcesses() {
  leaving_.erase(
      std::remove_if(leaving_.begin(), leaving_.end(),
                     [this](const auto& l) { return l.first <= now_; }),
      leaving_.end());
  std::vector<pid_t> listed = {kDaemon};
  for (const auto& [gone, pid] : leaving_) listed.push_back(pid);
  pool_->Listed(listed, kDaemon);
}

void Gpu::EndFills() {
  for (; !fills_.empty() && fills_.front().first <= now_; fills_.pop_front()) {
    pool_->Zeroed(fills_.front().second);
    unsettled_ = true;
  }
}

uint32_t Gpu::UsedBlocks(EngineId id, SlabId slab) const {
  const auto place = places_.find(id);
  if (place == places_.end()) return 0;
  const Running& engine = *engines_[place->second];
  const bool is_its = engine.view != nullptr && engine.view->id() == id;
  return is_its ? engine.blocks.UsedBlocks(slab::Number(slab)) : 0;
}

void Gpu::SettlePool() {
  for (const auto& engine : engines_) {
    if (engine->engine.stepping()) engine->engine.AdvanceTo(now_, begun_);
  }
  pool_->Settle(Nanoseconds(now_), [this](EngineId id, SlabId slab) {
    return UsedBlocks(id, slab);
  });
  Execute();
  unsettled_ = false;
  undecided_ = true;
  next_poll_ = pool_->restless() ? now_ + setup_.pool.poll_us : kNever;
}

// Call between two steps of the engine.
void Gpu::LookAtLeases(Running* engine) {
  if (engine->view == nullptr) return;
  engine->view->Look();
  ReturnDrained(engine);
}

void Gpu::ReturnDrained(Running* engine) {
  if (!engine->blocks.any_drained()) return;
  for (const LeasedView::Held& held : engine->view->TakeDrained()) {
    const absl::Status s = pool_->ReturnSlab(engine->view->id(), engine->pid,
                                             held.slab, held.lease);
    // Must succeed: the engine's view says that it holds the slab.
    if (!s.ok()) Die(std::string(s.message()));
  }
  unsettled_ = true;
  Execute();
}

void Gpu::TellWant(Running* engine) {
  if (engine->view == nullptr) return;
  const bool steps = engine->planned || engine->engine.stepping();
  const auto want = engine->view->UpdateWant(now_, steps);
  if (!want) return;
  pool_->Want(engine->view->id(), engine->pid, *want, Nanoseconds(now_));
  unsettled_ = true;
}

void Gpu::CheckInvariants() const {
  if (pool_ == nullptr) return;
  pool_->slabs().CheckInvariants();
  for (const auto& engine : engines_) {
    if (engine->view == nullptr) continue;
    for (uint32_t s = 0; s < setup_.geometry.slab_count; ++s) {
      const bool uses =
          engine->blocks.linked(s) || engine->blocks.UsedBlocks(s) > 0;
      const abi::SlabWord word = pool_->slabs().word(SlabId{s});
      if (uses && word.engine != slab::Number(engine->view->id())) {
        Die(absl::StrCat("engine ", engine->setup.name, " uses slab ", s,
                         ", which is not leased to it"));
      }
    }
  }
}

}  // namespace fineserve::sim
