#include "tools/up/engine_rest.h"

#include <algorithm>
#include <utility>

namespace fineserve::fsctl {

void EngineRest::Turn(uint64_t now_ns, const std::vector<std::string>& engines,
                      const std::vector<std::string>& stopped) {
  std::map<std::string, Resting> resting;
  bool any_new = false;
  for (const std::string& engine : engines) {
    const auto known = resting_.find(engine);
    any_new |= known == resting_.end();
    resting[engine] = known == resting_.end() ? Resting{now_ns} : known->second;
  }
  resting_ = std::move(resting);
  std::vector<std::string> asked = engines;
  for (const std::string& engine : std::exchange(stopped_, stopped)) {
    if (std::find(stopped.begin(), stopped.end(), engine) != stopped.end()) {
      continue;
    }
    any_new = true;
    if (resting_.count(engine) == 0) asked.push_back(engine);
  }
  if (asked.empty() || (now_ns < due_ns_ && !any_new)) return;
  due_ns_ = now_ns + kPeriodNs;
  Ask(asked, stopped);
}

void EngineRest::Ask(const std::vector<std::string>& engines,
                     const std::vector<std::string>& stopped) {
  for (auto& [name, engine] : resting_) engine.is_idle = true;
  any_proxy_ = false;
  apply::Question question;
  question.kind = apply::Question::Kind::kRest;
  question.fleet_path = fleet_path_;
  question.engines = engines;
  question.seconds = kRestS;
  question.stopped = stopped;
  for (const auto& answer : ask_(question)) {
    any_proxy_ = true;
    for (auto& [name, engine] : resting_) {
      if (!answer) engine.is_idle = false;  // who knows
      if (!answer) continue;
      for (const apply::EngineState& state : answer->engines) {
        if (state.name == name && state.running != 0) engine.is_idle = false;
      }
    }
  }
}

bool EngineRest::IsIdle(const std::string& engine, uint64_t now_ns) const {
  const auto found = resting_.find(engine);
  if (found == resting_.end() || !found->second.is_idle) return false;
  return !any_proxy_ || now_ns - found->second.since_ns >= kLeastRestNs;
}

}  // namespace fineserve::fsctl
