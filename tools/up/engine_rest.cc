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
  Ask(now_ns, asked, stopped);
}

void EngineRest::Ask(uint64_t now_ns, const std::vector<std::string>& engines,
                     const std::vector<std::string>& stopped) {
  apply::Question question;
  question.kind = apply::Question::Kind::kRest;
  question.fleet_path = fleet_path_;
  question.engines = engines;
  question.seconds = kRestS;
  question.stopped = stopped;
  const auto answers = ask_(question);
  const bool has_lapsed = HasLapsed(now_ns);
  const bool any_new = answers.size() > proxies_;
  for (auto& [name, engine] : resting_) {
    engine.is_idle = true;
    if (has_lapsed || any_new) engine.since_ns = now_ns;
  }
  asked_ns_ = now_ns;
  proxies_ = answers.size();
  for (const auto& answer : answers) {
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
  if (proxies_ == 0) return true;
  return !HasLapsed(now_ns) && now_ns - found->second.since_ns >= kLeastRestNs;
}

}  // namespace fineserve::fsctl
