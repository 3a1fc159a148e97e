#ifndef DAEMON_SCHEDULING_LEAD_DEMAND_WINDOW_H_
#define DAEMON_SCHEDULING_LEAD_DEMAND_WINDOW_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "daemon/contract/wire/demand_counts.h"
#include "daemon/contract/wire/message_types.h"

namespace fineserve::admission {

inline constexpr double kNsPerSecond = 1e9;

using wire::DemandCounts;

// Demand on a model over the window.
struct Demand {
  double seconds = 0;  // how far back it reaches; 0: nothing is known
  double rate = 0;     // requests/s
  // Means; 0 if no request came, or none was answered.
  double prompt_tokens = 0;
  double output_tokens = 0;
  double attainment = -1;  // part on time; negative: none ended
};

// The daemons' counts over the last seconds. Every daemon counts what every
// proxy reports, so the counts are not added up: for each model, the counts of
// the daemon that saw the most are used. Pure; times are CLOCK_MONOTONIC, ns.
class DemandWindow {
 public:
  explicit DemandWindow(double window_s) : window_s_(window_s) {}

  // Records a daemon's counts so far, by model; calls are in the order of time.
  // If counts have decreased, they are those of a new daemon.
  void Add(const std::string& daemon, uint64_t now_ns,
           const std::map<std::string, DemandCounts>& counts);

  Demand Of(const std::string& model) const;
  // Returns the length in s of the window of the daemon that has counted
  // longest.
  double Reach() const;

 private:
  struct Sample {
    uint64_t at_ns;
    std::map<std::string, DemandCounts> counts;
  };
  using Samples = std::deque<Sample>;

  double window_s_;
  std::map<std::string, Samples> samples_;  // by daemon
};

// Counts of the requests for each model and their outcomes, over all proxies,
// since this object was created. A proxy sends counts since its own start; only
// their growth between two greetings counts. So the first counts of a proxy
// that started earlier, of a restarted proxy, and of one that sends nonsense
// add nothing. Confined to a thread.
class DemandTotals {
 public:
  // Other models are ignored.
  explicit DemandTotals(const std::vector<std::string>& models);

  // Takes a peer's greeting. The peer's first greeting, and one in which its
  // counts of a model have decreased, only set where its counts of the model
  // begin.
  void Count(const std::string& peer, const wire::HelloT& hello);
  // Forgets the peer, so that its next greeting counts as its first.
  void Forget(const std::string& peer) { told_.erase(peer); }

  // Adds the counts in `before` of the models that are counted here.
  void CountOnFrom(const DemandTotals& before);

  using ByModel = std::map<std::string, wire::DemandCounts>;

  // Returns the models of which anything is known. No count ever decreases.
  ByModel Known() const;
  void Tell(wire::ReportT* report) const;

 private:
  ByModel totals_;                       // has each model that counts
  std::map<std::string, ByModel> told_;  // last, by peer
};

}  // namespace fineserve::admission

#endif  // DAEMON_SCHEDULING_LEAD_DEMAND_WINDOW_H_
