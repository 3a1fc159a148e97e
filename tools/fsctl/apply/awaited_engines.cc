#include "tools/fsctl/apply/awaited_engines.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "daemon/base/clock/clock.h"
#include "daemon/fleet/door/door.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(200);
constexpr absl::Duration kWatchPatience = absl::Seconds(10);

}  // namespace

void AwaitedEngines::Serves(const std::string& engine, uint64_t starts) {
  pending_[engine] = {false, starts};
}

void AwaitedEngines::Ends(const std::string& engine) {
  pending_[engine] = {true};
}

std::vector<std::string> AwaitedEngines::Observe(
    const std::vector<apply::EngineState>& engines) {
  std::vector<std::string> news;
  for (auto it = pending_.begin(); it != pending_.end();) {
    const auto& [name, goal] = *it;
    const auto found = std::find_if(
        engines.begin(), engines.end(),
        [&](const apply::EngineState& e) { return e.name == it->first; });
    const apply::EngineState* now = found == engines.end() ? nullptr : &*found;
    std::string state = now != nullptr ? now->state : "ended";
    const bool is_there = IsThere(name, goal, now);
    // If an engine still serves and has not been started again, there is
    // nothing to report yet.
    const bool is_old =
        state == "serving" && now != nullptr && now->starts <= goal.starts;
    if (state != goal.state && !is_old) {
      news.push_back(absl::StrCat(name, ": ", state));
    }
    it->second.state = std::move(state);
    it = is_there ? pending_.erase(it) : std::next(it);
  }
  return news;
}

bool AwaitedEngines::IsThere(const std::string& name, const Goal& goal,
                             const apply::EngineState* now) {
  if (goal.ends) return now == nullptr || now->state == "stopped";
  if (now == nullptr) {
    troubles_.push_back(absl::StrCat(name, " is no longer started by it"));
    return true;
  }
  // The plan, the requests or an operator decides whether it runs.
  if (now->state == "off" || now->state == "unplanned" ||
      now->state == "stopped") {
    return true;
  }
  const bool in_vain =
      now->state == "given up" ||
      (now->state != "serving" && now->starts > goal.starts + kMostStarts);
  if (in_vain) {
    troubles_.push_back(absl::StrCat(
        name,
        now->state == "given up" ? " cannot be started"
                                 : " ends again and again",
        now->last_end.empty() ? "" : absl::StrCat(" (", now->last_end, ")"),
        "; see its log"));
    return true;
  }
  return now->state == "serving" && now->starts > goal.starts;
}

std::vector<std::string> AwaitedEngines::Pending() const {
  std::vector<std::string> names;
  for (const auto& [name, goal] : pending_) names.push_back(name);
  return names;
}

int AwaitEngines(const std::string& door, AwaitedEngines* engines,
                 double timeout_s, bool quiet) {
  const absl::Time deadline = SteadyNow() + absl::Seconds(timeout_s);
  while (!engines->done()) {
    const absl::StatusOr<apply::Answer> up =
        apply::AskDoor(door, apply::Question(), kWatchPatience);
    if (!up.ok()) {
      return Fail(kExitBadAnswer,
                  absl::StrCat("lost fsctl up while its engines changed: ",
                               up.status().message()));
    }
    for (const std::string& news : engines->Observe(up->engines)) {
      if (!quiet) Print(news + "\n");
    }
    fflush(stdout);
    if (engines->done()) break;
    if (SteadyNow() > deadline) {
      return Fail(kExitBadAnswer,
                  absl::StrCat("not there yet after ", timeout_s,
                               " s: ", absl::StrJoin(engines->Pending(), ", "),
                               "; fsctl up goes on with it"));
    }
    absl::SleepFor(kPause);
  }
  if (engines->troubles().empty()) return kExitOk;
  return Fail(kExitBadAnswer, absl::StrJoin(engines->troubles(), "; "));
}

void AddDrainTime(CLI::App* command, double* drain_s) {
  command
      ->add_option("--drain", *drain_s,
                   "Seconds that an engine may take to answer what it runs "
                   "before it is stopped (default: 300)")
      ->check(CLI::Range(0, 86'400));
}

void AddTimeout(CLI::App* command, double* timeout_s, const char* what) {
  command
      ->add_option("--timeout", *timeout_s,
                   absl::StrCat("Seconds to wait until the engines ", what,
                                " (default: 600)"))
      ->check(CLI::Range(1, 86'400));
}

}  // namespace fineserve::fsctl
