#ifndef DAEMON_PROXY_REPLICA_CHOICE_REPLICA_ORDER_H_
#define DAEMON_PROXY_REPLICA_CHOICE_REPLICA_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fineserve::proxy {

// How well one GPU can serve a model, as the proxy sees the model's engines
// there.
class ModelOnGpu {
 public:
  // Adds an engine of the model. `lets_in`: the plan, if there is one, lets it
  // get new requests. `target_rate`: requests/s.
  void Add(bool lets_in, bool serves, double target_rate);

  // True if the model has an engine there at all.
  bool any() const { return any_; }
  // Sum over all its engines.
  double target_rate() const { return target_rate_; }
  // Returns Candidate::trouble, the sum of the constants below. A GPU where the
  // plan lets no engine in comes after all others; before it comes a GPU whose
  // engines do not answer. Without a daemon the request is served unscheduled,
  // or refused. `is_away`: the model's memory would have to come back to the
  // GPU first.
  int Trouble(bool has_daemon, bool is_away) const;
  static constexpr int kAway = 1, kNoDaemon = 2, kNoAnswer = 4, kNotLetIn = 8;
  static bool IsAway(int trouble) { return (trouble & kAway) != 0; }
  static bool Answers(int trouble) { return (trouble & kNoAnswer) == 0; }

 private:
  bool any_ = false, any_serves_ = false;
  bool lets_in_ = false, let_in_serves_ = false;
  double target_rate_ = 0;
};

// A GPU that a request may go to.
struct Candidate {
  size_t place = 0;   // the caller's
  int trouble = 0;    // less is better, and comes before everything else
  bool full = false;  // it could start nothing when it was last heard
  double cost = 0;    // a predicted wait or a load; less is better
  // Tokens outstanding, which decide between equal costs; if the model is away,
  // the tokens of all models on that GPU.
  double load = 0;
  double target_rate = 0;
  // Requests of this model that the GPU's target rate entitles it to, but that
  // it did not get.
  double* due = nullptr;
};

// Orders the candidates, best first: those that can start something before
// those that cannot. If those with the least trouble have target rates, the one
// that is furthest behind its rate comes first, and is charged with the
// request; otherwise the one with the least cost comes first. Returns whether
// one was charged; a sole candidate is not. A replica that is passed over while
// it is full is owed its share, up to kMostDue requests. Pure except for `due`.
bool OrderReplicas(std::vector<Candidate>* candidates);
// Heuristic: a burst that an engine takes at once.
inline constexpr double kMostDue = 32;

// How long a prompt would wait for its turn on one GPU, from the daemon's last
// report and the requests sent to it since.
class PredictedWait {
 public:
  PredictedWait() = default;
  // `full`: no request can start there before `us` microseconds have passed.
  // `away`: the memory of the model's engine would have to come back to the GPU
  // first.
  PredictedWait(double us, bool full, bool away, uint64_t now_ns)
      : us_(us), full_(full), away_(away), told_ns_(now_ns) {}

  void Sent(uint32_t prompt_tokens) {
    tokens_since_ += prompt_tokens;
    away_ = false;  // it has been asked for
  }
  // Called when a request there ends, or is reported as waiting.
  void SetFull(bool full) { full_ = full; }
  bool full() const { return full_; }
  // True if the memory is away, and no request has been sent since that became
  // known.
  bool away() const { return away_; }
  // Returns the wait in µs, in whole milliseconds, since smaller differences do
  // not decide between GPUs.
  double Us(double per_token_us, uint64_t now_ns) const;

 private:
  double us_ = 0;
  bool full_ = false, away_ = false;
  uint64_t told_ns_ = 0;
  uint64_t tokens_since_ = 0;
};

// Prompt tokens that a replica recently had to prefill, weighted less the
// longer ago that was. A chat stays where its history is cached, so a replica
// that had more to do will have more; this counts before its queue shows it.
class RecentPrefill {
 public:
  // The part of these tokens that counts as a wait, and the time constant of
  // their weights. By bench affinity, any value from .03 to .3, and from 5 to
  // 120 s, will do.
  static constexpr double kShare = 0.1;
  static constexpr double kTimeS = 30;

  void Sent(double tokens, uint64_t now_ns);
  double Tokens(uint64_t now_ns) const;

 private:
  double tokens_ = 0;  // at at_ns_
  uint64_t at_ns_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REPLICA_CHOICE_REPLICA_ORDER_H_
