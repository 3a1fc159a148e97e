#include "daemon/proxy/admission/engine_states.h"

#include <algorithm>
#include <utility>

#include "daemon/base/log/log.h"
#include "daemon/contract/wire/message.h"

namespace fineserve::proxy {

const EngineStates::State& EngineStates::Of(const std::string& engine) const {
  static const State* const kUnknown = new State();
  const auto known = states_.find(engine);
  return known == states_.end() ? *kUnknown : known->second;
}

// Keeps the signs of an engine that has left the fleet, since requests may
// still run there.
void EngineStates::SetFleet(std::shared_ptr<const config::Fleet> fleet) {
  fleet_ = std::move(fleet);
  for (auto& [engine, state] : states_) {
    if (fleet_->Engine(engine) == nullptr) state.silent_ns.reset();
  }
}

void EngineStates::SetHealth(const std::string& engine, Health health,
                             uint64_t asked_ns) {
  State& state = states_[engine];
  state.health = health;
  if (health == Health::kServes) {
    state.silent_ns.reset();
  } else if (!state.silent_ns) {
    const uint64_t owed_ns = state.signs.unanswered_ns;
    state.silent_ns = owed_ns == 0 ? asked_ns : owed_ns;
  }
}

void EngineStates::SetTrouble(const std::string& engine,
                              const std::string& trouble, uint64_t since_ns) {
  Trouble& known = states_[engine].trouble;
  if (known.what == trouble) return;
  known = {trouble, since_ns != 0 ? since_ns : clock_->NowNs()};
  if (!trouble.empty()) log::Warning("engine {}: {}", engine, trouble);
}

void EngineStates::Rest(const std::vector<std::string>& engines,
                        const std::vector<std::string>& stopped,
                        uint64_t until_ns) {
  for (const std::string& name : engines) {
    if (fleet_->Engine(name) == nullptr) continue;
    State& state = states_[name];
    state.rests_until_ns = until_ns;
    state.rests_by_hand =
        std::find(stopped.begin(), stopped.end(), name) != stopped.end();
  }
}

EngineSigns EngineStates::Signs(const std::string& engine) const {
  return Of(engine).signs;
}

bool EngineStates::Serves(const std::string& engine) const {
  return IsHealthy(engine) && (errors_ == nullptr || !errors_->Shuns(engine));
}

bool EngineStates::IsHealthy(const std::string& engine) const {
  const State& state = Of(engine);
  if (Rests(state)) return false;
  if (state.health) return *state.health == Health::kServes;
  // An engine that has not been asked for its /health counts as serving: a
  // request that finds no engine there is tried on another one, but a request
  // refused without reason is lost. An engine that starts on request is waited
  // for instead.
  const config::FleetEngine* its = fleet_->Engine(engine);
  return its == nullptr || !its->on_request;
}

bool EngineStates::MayTake(const std::string& engine) const {
  const State& state = Of(engine);
  if (Rests(state)) return false;
  const absl::optional<Health>& health = state.health;
  return health != Health::kUnreachable && health != Health::kUnknownHost;
}

bool EngineStates::IsStoppedByHand(const std::string& engine) const {
  const State& state = Of(engine);
  return state.rests_by_hand && Rests(state);
}

EngineStates::Trouble EngineStates::TroubleOf(const std::string& engine) const {
  const Trouble& known = Of(engine).trouble;
  if (!known.what.empty()) return known;
  if (errors_ == nullptr) return {};
  return {errors_->TroubleOf(engine), errors_->TroubleSince(engine)};
}

void EngineStates::Tell(const std::string& engine, wire::HelloT* hello) const {
  auto health = std::make_unique<wire::EngineHealthT>();
  health->name = engine;
  health->serves = Serves(engine);
  health->stopped = IsStoppedByHand(engine);
  Trouble trouble = TroubleOf(engine);
  health->trouble = std::move(trouble.what);
  if (trouble.since_ns != 0) health->trouble_s = SecondsSince(trouble.since_ns);
  const uint64_t silent_ns = Of(engine).silent_ns.value_or(0);
  if (silent_ns != 0) health->silent_s = SecondsSince(silent_ns);
  hello->engines.push_back(std::move(health));
}

}  // namespace fineserve::proxy
