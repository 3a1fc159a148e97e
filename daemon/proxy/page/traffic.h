#ifndef DAEMON_PROXY_PAGE_TRAFFIC_H_
#define DAEMON_PROXY_PAGE_TRAFFIC_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "daemon/clock/clock.h"

namespace fineserve::proxy {

// A request that has ended, and when it came how far. Times are the clock's; 0:
// it never got there.
struct PastRequest {
  std::string id;
  std::string model;
  std::string engine;  // of its last attempt
  unsigned status = 0;
  int attempts = 0;
  bool stream = false;
  uint64_t arrived_ns = 0;
  uint64_t asked_ns = 0;    // admission, after its prompt was counted
  uint64_t decided_ns = 0;  // by admission
  uint64_t first_ns = 0;    // first byte of the answer's body
  uint64_t ended_ns = 0;
};

// What people want to see of the requests that pass: how many wait and run,
// how the last ones fared. Journey writes it. Confined to the proxy's thread.
class Traffic {
 public:
  static constexpr size_t kMostPast = 24;
  // Of a model, of the last kWindowNs.
  static constexpr size_t kMostOutcomes = 512;
  static constexpr uint64_t kWindowNs = 300'000'000'000;

  // A model's figures now. Quantiles are those of the streams' first tokens.
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

  // Requests admitted because no daemon decided, since the proxy began.
  uint64_t unscheduled() const { return unscheduled_; }

  // Newest last.
  const std::deque<PastRequest>& past() const { return past_; }

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
  std::deque<PastRequest> past_;
  uint64_t unscheduled_ = 0;
};

// One request's way through the proxy, as told to a Traffic. The calls come in
// the order of the functions; any of them may be missing, and from Asks on they
// may come again for another attempt. Whatever it was counted as running or
// waiting ends with the object.
class Journey {
 public:
  // The pointers outlive it.
  Journey(Traffic* traffic, const Clock* clock, std::string id);
  ~Journey();
  Journey(const Journey&) = delete;
  Journey& operator=(const Journey&) = delete;

  // What it asks for. Requests for unknown models are not recorded.
  void IsFor(const std::string& model, bool stream, int64_t slo_ttft_us);
  void Asks();
  // `unscheduled`: admitted because no daemon decides.
  void IsDecided(bool admitted, bool unscheduled);
  void IsSentTo(const std::string& engine);
  // The first byte of the answer; `is_token`: a token of a stream that counts
  // for the SLO.
  void BeginsAnswer(bool is_token);
  void LeavesEngine();
  // The status that its client got.
  void Ends(unsigned status) { way_.status = status; }

 private:
  void Count(int Traffic::Model::*what, int change);

  Traffic* const traffic_;
  const Clock* const clock_;
  Traffic::Model* model_ = nullptr;
  PastRequest way_;
  uint64_t slo_ttft_ns_ = 0;  // 0: none
  bool waits_ = false;
  bool runs_ = false;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_PAGE_TRAFFIC_H_
