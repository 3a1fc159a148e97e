#ifndef TOOLS_UP_PLAN_FOLLOWER_H_
#define TOOLS_UP_PLAN_FOLLOWER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/contract/wire/newest_plan.h"
#include "daemon/contract/wire/socket.h"

namespace fineserve::fsctl {

// Asks the daemons of some GPUs for the plan, each about once a second. Keeps
// asking a daemon that does not answer, so that it notices a restarted daemon.
// No call blocks. Confined to one thread.
class PlanFollower {
 public:
  // `gpus` are UUIDs or prefixes of UUIDs. Their daemons listen in `folder`.
  PlanFollower(std::string folder, std::vector<std::string> gpus)
      : folder_(std::move(folder)), gpus_(std::move(gpus)) {}

  // Call this often. Asks the daemons that are due, and passes their answers to
  // `plan`. Times are CLOCK_MONOTONIC, ns. Returns true if `plan` has become
  // newer.
  bool Turn(uint64_t now_ns, wire::NewestPlan* plan);
  // True if the engine's memory was off its GPU according to its daemon's last
  // answer.
  bool IsAway(const std::string& engine) const;

 private:
  static constexpr uint64_t kPeriodNs = 1'000'000'000;

  struct Daemon {
    wire::ClientSocket socket;
    uint64_t due_ns;  // when to ask next
    bool misunderstood = false;
    std::vector<std::string> away = {};  // engines
  };

  bool IsOurs(absl::string_view socket_path) const;
  void FindDaemons(uint64_t now_ns);
  static bool Take(const std::string& path, const std::string& answer,
                   Daemon* daemon, wire::NewestPlan* plan);

  const std::string folder_;
  const std::vector<std::string> gpus_;
  uint64_t find_due_ns_ = 0;
  std::map<std::string, Daemon> daemons_;  // by the socket's path
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_PLAN_FOLLOWER_H_
