#include "tools/lab/sim/lead/hand.h"

#include <algorithm>
#include <cmath>

#include "tools/lab/sim/core/agenda.h"

namespace fineserve::sim {
namespace {

using fsctl::Wish;

// No processes exist here, but a life needs a pid.
constexpr pid_t kPid = 1;

}  // namespace

Hand::Hand(const PlanningSetup& setup, Gpus* gpus)
    : setup_(setup), gpus_(gpus), beside_(setup.beside_bytes) {
  for (const PlaceSetup& place : setup.places) engines_.push_back({place});
}

// Memory becomes free before it is taken.
void Hand::Turn(const wire::PlanT* plan, Micros now) {
  if (plan != nullptr) fsctl::Learn(*plan, &plan_);
  for (Engine& e : engines_) {
    if (WishOf(e) == Wish::kStop && e.life.runs()) Stop(&e, now);
    if (e.life.state() == State::kStopping && e.due <= now) TakeAway(&e, now);
    if (!plan_.MayRest(e.setup.engine.name)) EndRest(&e);
  }
  for (Engine& e : engines_) {
    if (WishOf(e) == Wish::kRun && e.life.IsDue(Nanoseconds(now))) {
      Start(&e, now);
    }
    if (e.life.state() == State::kStarting && e.due <= now) Serve(&e, now);
  }
}

uint64_t Hand::OnlyRunning(const Engine& e) {
  return e.setup.beside_bytes - (MayRest(e) ? e.setup.context_bytes : 0);
}

void Hand::EndRest(Engine* e) {
  if (!e->life.runs() && MayRest(*e)) {
    beside_[e->setup.gpu] -= e->setup.context_bytes;
  }
  e->has_served = false;
}

void Hand::Start(Engine* e, Micros now) {
  e->life.Started(kPid, Nanoseconds(now));
  uint64_t& beside = beside_[e->setup.gpu];
  beside += OnlyRunning(*e);
  if (beside > setup_.memory_bytes - setup_.pool_bytes) return Fail(e, now);
  e->due = now + StartTime(*e);
}

Micros Hand::StartTime(const Engine& e) const {
  const HandTimes& times = setup_.times;
  const bool rests = MayRest(e);
  const auto bytes = static_cast<double>(e.setup.weight_bytes);
  const double load_s =
      bytes /
      static_cast<double>(rests ? times.back_per_s : times.weights_per_s);
  return (rests ? 0 : times.start_us) +
         static_cast<Micros>(std::ceil(1e6 * load_s));
}

void Hand::Serve(Engine* e, Micros now) {
  Gpu* const gpu = (*gpus_)[e->setup.gpu].get();
  if (!gpu->Start(e->setup.place, now).ok()) return Fail(e, now);
  e->life.Checked(/*serves=*/true, Nanoseconds(now));
  e->has_served = true;
}

void Hand::Fail(Engine* e, Micros now) {
  ++failed_starts_;
  TakeAway(e, now);
}

void Hand::Stop(Engine* e, Micros now) {
  if (e->life.state() == State::kStopping) return;
  e->due = now + setup_.times.stop_us;
  if (e->life.state() == State::kServing) {
    (*gpus_)[e->setup.gpu]->Stop(e->setup.place, now, e->due);
  }
  e->life.AskedToEnd(Nanoseconds(now));
}

void Hand::TakeAway(Engine* e, Micros now) {
  beside_[e->setup.gpu] -= OnlyRunning(*e);
  e->life.Ended(Nanoseconds(now));
}

bool Hand::IsHere(const std::string& engine) const {
  return std::any_of(engines_.begin(), engines_.end(), [&](const Engine& e) {
    return e.setup.engine.name == engine && MayRest(e);
  });
}

bool Hand::HasDone(uint64_t plan_number) const {
  if (plan_.number() != plan_number) return false;
  return std::all_of(engines_.begin(), engines_.end(), [this](const Engine& e) {
    return WishOf(e) == Wish::kRun ? e.life.state() == State::kServing
                                   : !e.life.runs();
  });
}

}  // namespace fineserve::sim
