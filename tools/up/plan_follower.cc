#include "tools/up/plan_follower.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/message.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/up/wish.h"

namespace fineserve::fsctl {

bool PlanFollower::Turn(uint64_t now_ns, wire::NewestPlan* plan) {
  FindDaemons(now_ns);
  bool newer = false;
  for (auto& [path, daemon] : daemons_) {
    if (now_ns >= daemon.due_ns &&
        daemon.socket.Send(wire::Encode(0, 0, wire::PlanQueryT()))) {
      daemon.due_ns = now_ns + kPeriodNs;
    }
    while (const auto answer = daemon.socket.Receive()) {
      newer |= Take(path, *answer, &daemon, plan);
    }
  }
  return newer;
}

bool PlanFollower::IsOurs(absl::string_view socket_path) const {
  const std::string uuid = finding::GpuOfSocket(socket_path);
  return std::any_of(gpus_.begin(), gpus_.end(), [&](const std::string& gpu) {
    return finding::MeansGpu(gpu, uuid);
  });
}

// Searches repeatedly, since a daemon that starts later has a socket only then.
void PlanFollower::FindDaemons(uint64_t now_ns) {
  if (now_ns < find_due_ns_) return;
  find_due_ns_ = now_ns + kPeriodNs;
  for (const std::string& path : finding::ListSockets(folder_)) {
    if (!IsOurs(path) || daemons_.count(path) != 0) continue;
    absl::StatusOr<wire::ClientSocket> socket =
        wire::ClientSocket::Connect(finding::AdmissionPath(path));
    if (!socket.ok()) continue;  // a folder that others may enter, at this time
    daemons_.emplace(path, Daemon{*std::move(socket), now_ns});
  }
}

bool PlanFollower::Take(const std::string& path, const std::string& answer,
                        Daemon* daemon, wire::NewestPlan* plan) {
  absl::StatusOr<wire::MessageT> message = wire::Decode(answer);
  if (!message.ok()) {
    if (!std::exchange(daemon->misunderstood, true)) {
      Fail(0, absl::StrCat("warning: no plan from ", path, ": ",
                           message.status().message()));
    }
    return false;
  }
  const wire::PlanStateT* state = message->body.AsPlanState();
  if (state == nullptr) return false;
  daemon->away = state->away;
  return state->plan != nullptr && Learn(*state->plan, plan);
}

bool PlanFollower::IsAway(const std::string& engine) const {
  return std::any_of(daemons_.begin(), daemons_.end(), [&](const auto& d) {
    const std::vector<std::string>& away = d.second.away;
    return std::find(away.begin(), away.end(), engine) != away.end();
  });
}

}  // namespace fineserve::fsctl
