#ifndef TOOLS_UP_REQUEST_FOLLOWER_H_
#define TOOLS_UP_REQUEST_FOLLOWER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/apply/message.h"
#include "tools/up/proxies.h"
#include "tools/up/wish.h"

namespace fineserve::fsctl {

// Which engines that start on request (fineserve-fleet(5)) are to run. Twice a
// second it asks the fleet's proxies for which of them requests wait, and tells
// them how the starts stand:
//
//   requests wait, and no such engine of the model runs      its first starts
//   none has come for stop_after s                           it stops
//   its start failed                                         the one of its GPU
//                                 that has been idle for the longest stops
//   it ended by itself, and no request waits                 it stays down
//
// Starts no process itself. Confined to one thread.
class RequestFollower {
 public:
  struct Engine {
    enum class State {
      kDown,    // could be started now
      kFails,   // its start failed; it is started again in `seconds`
      kStarts,  // serves in about `seconds`; 0: unknown
      kServes,
      kEnds,  // rests, or was asked to end
    };
    std::string name;
    std::string model;
    std::string gpu;  // a fleet file's; empty: any
    uint64_t stop_after_s = 0;
    State state = State::kDown;
    double seconds = 0;
    double served_s = 0;         // kServes: for so long
    uint64_t failed_starts = 0;  // in its life
    Wish wish = Wish::kUnknown;
  };

  RequestFollower(std::string fleet_path, AskProxies ask)
      : fleet_path_(std::move(fleet_path)), ask_(std::move(ask)) {}

  // A wish that changes, and why.
  struct Change {
    std::string engine;
    Wish wish;
    std::string why;
    std::string makes_place_for = {};  // another engine that lacks it
  };
  // To be called often. `now_ns`: CLOCK_MONOTONIC.
  std::vector<Change> Turn(uint64_t now_ns, const std::vector<Engine>& engines);

 private:
  static constexpr uint64_t kPeriodNs = 500'000'000;

  struct Demand {
    uint64_t waiting = 0;
    double idle_s = 0;  // 0: unknown
  };

  std::map<std::string, Demand> Ask(const std::vector<Engine>& engines) const;
  // The engine that stops for one whose start has failed; null: none is idle.
  static const Engine* LongestIdle(const std::vector<Engine>& engines,
                                   const std::map<std::string, Demand>& demand,
                                   const Engine& failed);

  const std::string fleet_path_;
  const AskProxies ask_;
  uint64_t due_ns_ = 0;
  std::map<std::string, uint64_t> failed_starts_;  // seen so far, by engine
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_REQUEST_FOLLOWER_H_
