#ifndef DAEMON_PROXY_ADMISSION_BREAKER_H_
#define DAEMON_PROXY_ADMISSION_BREAKER_H_

#include <cstdint>

namespace fineserve::proxy {

// Decides whether one engine is to get new requests, by how it dealt with those
// that it was sent: a circuit breaker. Times are of one clock, in ns.
//
//   closed     every request; opens after kMostInARow failures in a row, or
//              once half of the last kJudged requests failed
//   open       none, for a rest that doubles with each failed trial
//   half-open  one as a trial: its answer closes the breaker, its failure opens
//              it again, and without either another trial follows after a rest
//
// Pure.
class Breaker {
 public:
  // Envoy's figure for consecutive 5xx.
  static constexpr uint32_t kMostInARow = 5;
  static constexpr uint32_t kJudged = 16;  // heuristic
  // Heuristic: a restarted engine is tried soon, one that stays broken costs a
  // request in a minute.
  static constexpr uint64_t kLeastRestNs = 2'000'000'000;
  static constexpr uint64_t kMostRestNs = 60'000'000'000;

  void Sent(uint64_t now_ns);
  void Answered();
  void Failed(uint64_t now_ns);

  bool is_open() const { return rest_ns_ != 0; }
  // True if a new request may be sent.
  bool Lets(uint64_t now_ns) const { return now_ns >= lets_at_ns_; }

 private:
  void Judge(bool failed);
  void Rest(uint64_t rest_ns, uint64_t now_ns);

  uint32_t in_a_row_ = 0;  // failures
  uint32_t judged_ = 0;    // requests, at most kJudged
  uint32_t failed_ = 0;    // a bit for each of them, the newest lowest
  uint64_t rest_ns_ = 0;   // 0: closed
  uint64_t lets_at_ns_ = 0;
  bool on_trial_ = false;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_BREAKER_H_
