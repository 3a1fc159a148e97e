// The part of Gpu that starts and stops engines, and follows a plan.

#include <algorithm>
#include <memory>
#include <set>

#include "daemon/fineserved/admission/waiting_in_vain.h"
#include "tools/lab/sim/gpu/gpu.h"

namespace fineserve::sim {
namespace {

using sched::Number;
using sched::RequestId;

}  // namespace

// Call after something outside has changed at `now`, and before anything else
// of that time is done.
void Gpu::WakeAt(Micros now) {
  if (now > now_) begun_ = false;
  now_ = next_ = now;
  unsettled_ = pool_ != nullptr;
  undecided_ = true;
}

absl::Status Gpu::Begin(Running* engine) {
  const EngineSetup& setup = engine->setup;
  engine->pid = ++last_pid_;
  if (setup.own_tokens > 0) {
    engine->blocks.Link(
        0, static_cast<uint32_t>(setup.own_tokens / setup.limits.block_tokens));
  } else if (absl::Status s = StartView(engine); !s.ok()) {
    Exit(engine, now_);
    return s;
  }
  UpdateTakes();
  return absl::OkStatus();
}

absl::Status Gpu::Start(uint32_t engine, Micros now) {
  WakeAt(now);
  const absl::Status s = Begin(engines_[engine].get());
  if (s.ok()) Stay(engines_[engine].get());
  // The scheduler refuses what comes for an engine that it does not know.
  if (s.ok()) SetRooms();
  return s;
}

void Gpu::Stop(uint32_t engine, Micros now, Micros gone) {
  WakeAt(now);
  Running* const stopped = engines_[engine].get();
  Break(stopped);
  stopped_.preemptions += stopped->engine.preemptions();
  stopped_.steps += stopped->engine.steps();
  stopped_.tokens += stopped->engine.tokens();
  Exit(stopped, gone);
}

// Ends the requests that the engine has, and those on their way to it and from
// it.
void Gpu::Break(Running* engine) {
  std::set<RequestId> broken;
  engine->engine.ForEach([&](RequestId id) { broken.insert(id); });
  for (auto it = sent_.begin(); it != sent_.end();) {
    const bool its = it->engine == engine->place;
    if (its) broken.insert(it->work.id);
    it = its ? sent_.erase(it) : std::next(it);
  }
  answered_.erase(std::remove_if(answered_.begin(), answered_.end(),
                                 [&](const Answered& a) {
                                   return broken.count(a.token.id) > 0;
                                 }),
                  answered_.end());
  for (const RequestId id : broken) {
    scheduler_.Finished(id, 0);
    news_.push_back({id, News::Kind::kBroken, now_});
    if (--running_ == 0) next_beat_ = kNever;
  }
}

// Ends the engine's process; a new one may take its place.
void Gpu::Exit(Running* engine, Micros gone) {
  if (setup_.eviction && engine->at != Running::At::kHost &&
      engine->at != Running::At::kWaitsForRoom) {
    weight_bytes_ -= engine->setup.weight_bytes;
  }
  if (first_ == engine) first_ = nullptr;
  if (pool_ != nullptr) {
    leaving_.emplace_back(gone, engine->pid);
    pool_->Exited(engine->pid, Nanoseconds(now_));
  }
  const size_t place = engine->place;
  const EngineSetup setup = engine->setup;
  const uint32_t slabs = setup.own_tokens > 0 ? 1 : setup_.geometry.slab_count;
  engines_[place] = std::make_unique<Running>(setup, place, slabs);
  UpdateTakes();
}

// Does what AdmissionService does: an engine is known once it has served.
void Gpu::UpdateTakes() {
  for (const auto& engine : engines_) {
    admission::ServingEngine& reported = serving_[engine->place];
    const bool serves = engine->pid != 0;
    reported.known |= serves;
    const bool rests = idle_ != nullptr && idle_->Rests(engine->place, now_);
    reported.takes =
        serves && !rests && (plan_ == nullptr || plan_->LetsIn(reported.name));
  }
}

void Gpu::FollowPlan(const wire::NewestPlan* plan, Micros now) {
  WakeAt(now);
  plan_ = plan;
  UpdateTakes();
}

void Gpu::SendAway() {
  if (plan_ == nullptr || plan_->plan() == nullptr) return;
  const auto takes_none = [this](const std::string& engine) {
    return plan_->Ends(engine);
  };
  for (const RequestId id :
       admission::WaitingInVain(serving_, takes_none, scheduler_)) {
    scheduler_.Cancel(id);
    waiting_.erase(Number(id));
    news_.push_back({id, News::Kind::kRefused, now_});
  }
}

}  // namespace fineserve::sim
