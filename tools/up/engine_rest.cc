#include "tools/up/engine_rest.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "daemon/apply/ask_door.h"
#include "daemon/apply/door.h"

namespace fineserve::fsctl {
namespace {

// A proxy answers between two requests, within a millisecond.
constexpr absl::Duration kProxyPatience = absl::Milliseconds(300);

std::vector<std::string> ProxyDoors(const std::string& folder) {
  std::vector<std::string> doors = apply::ListDoors(folder);
  doors.erase(std::remove_if(doors.begin(), doors.end(),
                             [&](const std::string& door) {
                               return !absl::StartsWith(door,
                                                        folder + "/proxy-");
                             }),
              doors.end());
  return doors;
}

// Answer on behalf of a proxy that has gone.
apply::Answer Nobody() {
  apply::Answer answer;
  answer.error = "it is gone";
  return answer;
}

absl::optional<apply::Answer> AskProxyDoor(const std::string& door,
                                           const apply::Question& question) {
  absl::StatusOr<apply::Answer> answer =
      apply::AskDoor(door, question, kProxyPatience);
  if (answer.ok()) return *std::move(answer);
  if (absl::IsNotFound(answer.status())) return Nobody();
  return absl::nullopt;
}

}  // namespace

EngineRest EngineRest::OfFolder(std::string fleet_path,
                                const std::string& folder) {
  return EngineRest(
      std::move(fleet_path), [folder] { return ProxyDoors(folder); },
      AskProxyDoor);
}

void EngineRest::Turn(uint64_t now_ns,
                      const std::vector<std::string>& engines) {
  std::map<std::string, Resting> resting;
  bool any_new = false;
  for (const std::string& engine : engines) {
    const auto known = resting_.find(engine);
    any_new |= known == resting_.end();
    resting[engine] = known == resting_.end() ? Resting{now_ns} : known->second;
  }
  resting_ = std::move(resting);
  if (resting_.empty() || (now_ns < due_ns_ && !any_new)) return;
  due_ns_ = now_ns + kPeriodNs;
  Ask(engines);
}

void EngineRest::Ask(const std::vector<std::string>& engines) {
  for (auto& [name, engine] : resting_) engine.is_idle = true;
  any_proxy_ = false;
  apply::Question question;
  question.kind = apply::Question::Kind::kRest;
  question.fleet_path = fleet_path_;
  question.engines = engines;
  question.seconds = kRestS;
  for (const std::string& door : list_()) {
    const absl::optional<apply::Answer> answer = ask_(door, question);
    if (answer && !answer->ok()) continue;  // gone, or of another fleet
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
