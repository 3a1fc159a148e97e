#ifndef TOOLS_UP_REQUEST_FOLLOWER_H_
#define TOOLS_UP_REQUEST_FOLLOWER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/fleet/door/message.h"
#include "tools/up/proxies.h"
#include "tools/up/supervised_engine.h"
#include "tools/up/wish.h"

namespace fineserve::fsctl {

// Decides which engines that start on request (fineserve-fleet(5)) are to run.
// Twice a second it asks the fleet's proxies which of these engines have
// requests waiting, and reports how far the starts are:
//
//   requests wait, and no such engine of the model runs      its first starts
//   none has come for stop_after s                           it stops
//   its start failed                                         the one of its GPU
//                                 that has been idle for the longest stops
//   it ended by itself, and no request waits                 it stays down
//   it hangs, and no request waits                           it stops
//
// A start that failed counts against the engine only if no other could stop for
// it: twice in a row, and its requests are refused until it is tried again.
//
// Starts no process itself. Confined to one thread.
class RequestFollower {
 public:
  struct Engine {
    enum class State {
      kDown,    // could be started now, or after a pause
      kFails,   // it cannot serve, or hangs; worth a request in `seconds`
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
    double pause_s = 0;  // kDown: until it could be started

    // Sets `state` and the times. `ends`: the engine rests and must end then.
    // `start_s`: the time that its last start took; 0 if unknown.
    void See(const SupervisedEngine& life, bool ends, double start_s,
             uint64_t now_ns);
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
  // Call this often. `now_ns`: CLOCK_MONOTONIC.
  std::vector<Change> Turn(uint64_t now_ns, std::vector<Engine> engines);
  // True if the engine's last start failed, and no other engine could stop for
  // it.
  bool FailsInVain(const std::string& engine) const {
    const auto known = failures_.find(engine);
    return known != failures_.end() && known->second.in_vain != 0;
  }

  // An engine hangs if its start takes longer than the first of these times and
  // also longer than three times its last start, or if it has served and is
  // silent for longer than the second. vLLM starts a large model in ten
  // minutes.
  static constexpr double kLongestStartS = 1200;
  static constexpr uint64_t kLongestSilenceNs = 60'000'000'000;
  // Limit on the number of engines that stop for one that does not begin to
  // serve. If its starts fail for another reason than lack of memory, it would
  // stop them all.
  static constexpr uint64_t kMostStops = 8;
  // Time without such a stop after which other engines stop for it again: by
  // then another engine may be idle.
  static constexpr uint64_t kStopsAgainNs = 600'000'000'000;

 private:
  static constexpr uint64_t kPeriodNs = 500'000'000;
  static constexpr uint64_t kMostInVain = 2;

  // Failed starts of an engine since it last served.
  struct Failures {
    uint64_t seen = 0;     // in its life
    uint64_t in_vain = 0;  // no other could stop for it
    uint64_t stops = 0;    // engines that stopped for it
    uint64_t stopped_ns = 0;
  };

  struct Demand {
    uint64_t waiting = 0;
    double idle_s = 0;  // 0: unknown
  };

  std::map<std::string, Demand> Ask(const std::vector<Engine>& engines) const;
  // Forgets the failures of an engine that serves. If an engine has failed
  // twice and no other could stop for it, it gets no requests until its next
  // start.
  void Judge(Engine* engine);
  // True if a start of the engine has failed since the last turn.
  bool HasFailed(const Engine& engine);
  // Returns the engine that should stop for one whose start has failed; null if
  // none can.
  const Engine* StopsFor(const Engine& failed, uint64_t now_ns,
                         const std::vector<Engine>& engines,
                         const std::map<std::string, Demand>& demand);
  // Null: none is idle.
  static const Engine* LongestIdle(const std::vector<Engine>& engines,
                                   const std::map<std::string, Demand>& demand,
                                   const Engine& failed);

  const std::string fleet_path_;
  const AskProxies ask_;
  uint64_t due_ns_ = 0;
  std::map<std::string, Failures> failures_;  // by engine
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_REQUEST_FOLLOWER_H_
