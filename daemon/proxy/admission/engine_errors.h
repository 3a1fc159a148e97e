#ifndef DAEMON_PROXY_ADMISSION_ENGINE_ERRORS_H_
#define DAEMON_PROXY_ADMISSION_ENGINE_ERRORS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "daemon/base/clock/clock.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/proxy/admission/admission.h"

namespace fineserve::proxy {

// A circuit breaker: decides whether an engine gets new requests, by how it has
// dealt with the earlier ones. Times are of one clock, in ns.
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
  // Envoy's default number of consecutive 5xx errors.
  static constexpr uint32_t kMostInARow = 5;
  static constexpr uint32_t kJudged = 16;  // heuristic
  // Heuristic: a restarted engine is tried soon, and one that stays broken
  // costs one request a minute.
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

// A breaker for each engine of a fleet. An engine whose breaker lets no request
// in is shunned while another engine of its model can take the request; the
// last engine of a model is never shunned. Confined to the proxy's thread.
class EngineErrors {
 public:
  // True if an engine could take new requests, apart from its errors.
  using CanServe = std::function<bool(const std::string& engine)>;

  // `clock` outlives it.
  EngineErrors(const Clock* clock, CanServe can_serve)
      : clock_(clock), can_serve_(std::move(can_serve)) {}

  void SetFleet(std::shared_ptr<const config::Fleet> fleet);

  // Takes the same events as Admission. Returns true if the event may change
  // which engines are shunned.
  bool Sent(const std::string& engine);
  bool Answered(const std::string& engine);
  bool Failed(const std::string& engine, EngineError error);

  bool Shuns(const std::string& engine) const;
  // Returns the engine's trouble in one line. It is empty while its breaker is
  // closed and it has failed fewer than kMany requests within kManyNs; that
  // limit finds an engine that fails every other request, which never opens its
  // breaker.
  static constexpr size_t kMany = 6;
  static constexpr uint64_t kManyNs = 60'000'000'000;
  std::string TroubleOf(const std::string& engine) const;
  // Time of the first failure of the trouble (CLOCK_MONOTONIC); 0 if there is
  // none.
  uint64_t TroubleSince(const std::string& engine) const;

 private:
  struct Engine {
    Breaker breaker;
    EngineError last = EngineError::kConnect;
    std::deque<uint64_t> failed_ns = {};  // the last kMany
    uint64_t ill_ns = 0;                  // the first of the present trouble
  };

  // True if the engine's breaker is closed, or due for a trial.
  bool Lets(const std::string& engine) const;
  bool AnotherServes(const std::string& engine) const;
  bool FailsMany(const Engine& engine) const;
  bool IsIll(const Engine& engine) const;
  template <typename Act>
  bool Change(const std::string& engine, Act act);

  const Clock* const clock_;
  const CanServe can_serve_;
  std::shared_ptr<const config::Fleet> fleet_;
  std::map<std::string, Engine> engines_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_ENGINE_ERRORS_H_
