#ifndef DAEMON_PROXY_CHOICE_REPLICA_ORDER_H_
#define DAEMON_PROXY_CHOICE_REPLICA_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fineserve::proxy {

// A GPU that a request may go to.
struct Candidate {
  size_t place = 0;  // the caller's
  int trouble = 0;   // less is better, and comes before everything else
  double cost = 0;   // a predicted wait or a load; less is better
  double target_rate = 0;
  // Requests of this model that its target rate entitles it to and that it was
  // not given.
  double* due = nullptr;
};

// Orders the candidates, best first. If those with the least trouble have
// target rates, the one that is furthest behind its rate comes first, and is
// charged with the request; otherwise the one with the least cost. Pure but for
// `due`.
void OrderReplicas(std::vector<Candidate>* candidates);

// How long a prompt would wait for its turn on one GPU: what its daemon said
// last, and what it was sent since.
class PredictedWait {
 public:
  PredictedWait() = default;
  PredictedWait(double us, uint64_t now_ns) : us_(us), told_ns_(now_ns) {}

  void Sent(uint32_t prompt_tokens) { tokens_since_ += prompt_tokens; }
  double Us(double per_token_us, uint64_t now_ns) const;

 private:
  double us_ = 0;
  uint64_t told_ns_ = 0;
  uint64_t tokens_since_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_CHOICE_REPLICA_ORDER_H_
