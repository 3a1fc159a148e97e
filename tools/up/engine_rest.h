#ifndef TOOLS_UP_ENGINE_REST_H_
#define TOOLS_UP_ENGINE_REST_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/up/proxies.h"

namespace fineserve::fsctl {

// Keeps new requests away from engines that are about to end or were stopped by
// an operator, and knows when these engines have answered their running ones.
// Twice a second it tells all proxies of the fleet that the engines rest for a
// few seconds, so nothing needs to be undone if fsctl is killed in between.
// Confined to one thread.
class EngineRest {
 public:
  EngineRest(std::string fleet_path, AskProxies ask)
      : fleet_path_(std::move(fleet_path)), ask_(std::move(ask)) {}

  // Call this often, with all engines that should rest now; `stopped` are those
  // of them that an operator stopped. An engine that has left `stopped` rests
  // once more, so that the proxies know at once that it can be started. Times
  // are CLOCK_MONOTONIC, ns.
  void Turn(uint64_t now_ns, const std::vector<std::string>& engines,
            const std::vector<std::string>& stopped = {});

  // True if no proxy has a request at the engine or will send one: a verdict of
  // the daemon may have been under way when the rest began.
  bool IsIdle(const std::string& engine, uint64_t now_ns) const;

 private:
  static constexpr uint64_t kPeriodNs = 500'000'000;
  static constexpr double kRestS = 3;
  static constexpr uint64_t kLeastRestNs = 1'500'000'000;

  struct Resting {
    uint64_t since_ns;     // from then on all proxies know it
    bool is_idle = false;  // by the last answers
  };

  void Ask(uint64_t now_ns, const std::vector<std::string>& engines,
           const std::vector<std::string>& stopped);
  // True if this process was too late: the proxies may have sent requests to
  // resting engines.
  bool HasLapsed(uint64_t now_ns) const {
    return static_cast<double>(now_ns - asked_ns_) >= kRestS * 1e9;
  }

  std::string fleet_path_;
  AskProxies ask_;
  std::map<std::string, Resting> resting_;  // by engine
  std::vector<std::string> stopped_;
  uint64_t due_ns_ = 0;
  uint64_t asked_ns_ = 0;
  size_t proxies_ = 0;  // that were asked
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_ENGINE_REST_H_
