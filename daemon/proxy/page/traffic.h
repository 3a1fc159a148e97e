#ifndef DAEMON_PROXY_PAGE_TRAFFIC_H_
#define DAEMON_PROXY_PAGE_TRAFFIC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "daemon/base/clock/clock.h"

namespace fineserve::proxy {

// Figures about the requests to each model: how many wait and run, and how many
// of the last ones were on time. Written by Journey. Confined to the proxy's
// thread.
class Traffic {
 public:
  // Limits on the outcomes kept for a model: their number and their age.
  static constexpr size_t kMostOutcomes = 512;
  static constexpr uint64_t kWindowNs = 300'000'000'000;

  // A model's current figures. Quantiles are over the times to the first tokens
  // of streams.
  struct Figures {
    int waiting = 0;  // for admission's verdict
    int running = 0;  // at an engine
    size_t first_tokens = 0;
    uint64_t ttft_p50_ns = 0;
    uint64_t ttft_p99_ns = 0;
    size_t on_time = 0;  // the first token came within the TTFT SLO
    size_t late = 0;     // or later, or never: admission refused
  };
  Figures Of(const std::string& model, uint64_t now_ns) const;

  // Number of requests admitted because no daemon decided, since the proxy
  // began.
  uint64_t unscheduled() const { return unscheduled_; }

 private:
  friend class Journey;
  struct Outcome {
    uint64_t at_ns = 0;
    uint64_t ttft_ns = 0;  // 0: refused
    bool on_time = false;
  };
  struct Model {
    int waiting = 0;
    int running = 0;
    std::vector<Outcome> outcomes;  // a ring once it is full
    size_t next = 0;                // of the ring, to be replaced

    void Note(Outcome outcome);
  };

  absl::node_hash_map<std::string, Model> models_;  // of the fleet
  uint64_t unscheduled_ = 0;
};

// Reports one request's way through the proxy to a Traffic. The calls come in
// the order of the functions below; any of them may be missing, and from Asks
// on they may come again for another attempt. If the request still counts as
// running or waiting, the destructor ends that.
class Journey {
 public:
  // Notes that the request arrives now. The pointers must outlive this object.
  Journey(Traffic* traffic, const Clock* clock)
      : traffic_(traffic), clock_(clock), slo_begins_ns_(clock->NowNs()) {}
  ~Journey();
  Journey(const Journey&) = delete;
  Journey& operator=(const Journey&) = delete;

  // Sets the model and the SLO of the request. Requests for unknown models are
  // not counted.
  void IsFor(const std::string& model, int64_t slo_ttft_us);
  void Asks();
  // `unscheduled`: the request was admitted because no daemon decides.
  void IsDecided(bool admitted, bool unscheduled);
  // Sets the time at which its TTFT SLO began, if later than its arrival.
  void SloBeganAt(uint64_t ns) { slo_begins_ns_ = ns; }
  void IsSent();
  // Notes the first token of a stream, if it counts for the SLO.
  void HasFirstToken();
  void LeavesEngine();

 private:
  void Count(int Traffic::Model::*what, int change);

  Traffic* const traffic_;
  const Clock* const clock_;
  uint64_t slo_begins_ns_;
  Traffic::Model* model_ = nullptr;
  uint64_t slo_ttft_ns_ = 0;  // 0: none
  bool waits_ = false;
  bool runs_ = false;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_PAGE_TRAFFIC_H_
