#ifndef DAEMON_PROXY_ADMISSION_ADMISSION_H_
#define DAEMON_PROXY_ADMISSION_ADMISSION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/contract/verdict/verdict.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/proxy/replica_choice/prefix_index.h"

namespace fineserve::wire {
class NewestPlan;
}

namespace fineserve::proxy {

// The inputs of the decision on one request.
struct AdmissionRequest : verdict::Terms {
  uint64_t id = 0;  // unique in this proxy's life, never 0
  std::string model;
  std::string avoid_engine;  // it just failed this request; empty: none
  uint64_t arrived_ns = 0;   // CLOCK_MONOTONIC: its TTFT SLO begins
  PromptPrefix prefix = {};  // for a replica that has its KV
  // True if the request needs no decision, only an engine that serves, which
  // the proxy chooses.
  bool is_forwarded = false;
  std::string name = {};  // its x-request-id
};

using verdict::Outcome;
using verdict::Refusal;
using verdict::WaitedFor;

// The weights that an engine has dropped and reads from another process (design
// note 0048).
struct PeerReading {
  uint64_t bytes = 0;
  uint32_t lender_pid = 0;  // 0: not known
  uint64_t since_ns = 0;    // CLOCK_MONOTONIC
  uint64_t step_us = 0;     // added to a step without prompts; 0: not known
};

enum class DecidedBy : uint8_t { kNone, kDaemon, kProxy };
inline constexpr std::array<absl::string_view, 3> kDecidedByWords = {
    "", "fineserved", "proxy"};
constexpr absl::string_view Word(DecidedBy decided_by) {
  return kDecidedByWords[static_cast<size_t>(decided_by)];
}

struct Verdict {
  bool admitted = false;
  std::string engine;        // by name: an index would not survive a reload
  bool unscheduled = false;  // admitted because no daemon decides (fail_open)
  Refusal refusal = Refusal::kNone;
  std::string why;                 // one line for the client, if refused
  uint32_t retry_after_ms = 0;     // 0: unknown
  uint32_t predicted_ttft_ms = 0;  // 0: unknown
  WaitedFor waited_for = WaitedFor::kNothing;
  uint64_t waited_us = 0;  // in the queue of the daemon that decided
  DecidedBy decided_by = DecidedBy::kProxy;
  // Time at which its TTFT SLO began (CLOCK_MONOTONIC); 0: the SLO began when
  // the request arrived.
  uint64_t slo_begins_ns = 0;
};

// The way in which an engine failed a request.
enum class EngineError : uint8_t {
  kConnect,  // it took no connection
  kReset,    // it closed the connection, or sent no valid HTTP
  kTimeout,  // it showed no sign of life
  kStatus,   // its answer is the error: a status of 500 or more
  kEvent,    // or a stream that begins with one
};
struct EngineErrorText {
  absl::string_view word;  // for metrics
  absl::string_view why;   // an engine errs in this way
};
inline constexpr std::array kEngineErrorTexts = {
    EngineErrorText{"connect", "it takes no connection"},
    EngineErrorText{"reset", "it breaks off its answers"},
    EngineErrorText{"timeout", "it does not answer"},
    EngineErrorText{"status", "it answers with a status of 500 or more"},
    EngineErrorText{"event", "its streams bring an error"}};
constexpr const EngineErrorText& TextOf(EngineError error) {
  return kEngineErrorTexts[static_cast<size_t>(error)];
}
static_assert(TextOf(EngineError::kEvent).word == "event");

// An engine's signs of life, as its requests and its /health show them.
struct EngineSigns {
  // Time of the last event or answer (CLOCK_MONOTONIC).
  uint64_t progressed_ns = 0;
  // Time of the first of the consecutive /health questions that it has left
  // unanswered; 0 if it owes no answer.
  uint64_t unanswered_ns = 0;
};

// The demand for an engine that fsctl up starts on request.
struct EngineDemand {
  uint64_t waiting = 0;  // requests that wait until it serves
  // Time since the last request of its model came or the last request on this
  // engine ended.
  double idle_s = 0;
};

// The interface between the proxy and its decider. The calls for a request come
// in this order: Submit; then Cancel or its verdict; if admitted, FirstToken at
// most once, Progress any number of times and Finished exactly once. A request
// that is tried again on another engine is submitted again under a new id.
// Confined to the proxy's thread; `on_verdict` may be called before Submit
// returns, and never after Cancel.
class Admission {
 public:
  virtual ~Admission() = default;

  virtual void Submit(const AdmissionRequest& request,
                      std::function<void(Verdict)> on_verdict) = 0;
  virtual void Cancel(uint64_t id) = 0;
  virtual void FirstToken(uint64_t id) = 0;
  // Reports that the request has generated `output_tokens` so far. Only for
  // streams, whose events are counted. Cheap enough to be called for each new
  // token.
  virtual void Progress(uint64_t id, uint32_t output_tokens) = 0;
  // A count is 0 if the answer did not state it.
  virtual void Finished(uint64_t id, uint32_t prompt_tokens,
                        uint32_t output_tokens, Outcome outcome) = 0;

  // Called with any decider: Sent when an engine was sent a request; Answered
  // when it gave its first event, or its whole answer; Failed when it failed
  // the request, even after Answered. Engines that err get no requests for a
  // while.
  virtual void Sent(const std::string& engine) {}
  virtual void Answered(const std::string& engine) {}
  virtual void Failed(const std::string& engine, EngineError error) {}
  // Reports that the engine is slow. It is asked for its /health at once.
  virtual void Suspect(const std::string& engine) {}
  virtual EngineSigns Signs(const std::string& engine) const { return {}; }

  // The fleet was read again.
  virtual void SetFleet(std::shared_ptr<const config::Fleet> fleet) = 0;
  // True if the engine serves, as far as is known.
  virtual bool Serves(const std::string& engine) const = 0;
  // True if the plan, if there is one, lets the engine get new requests.
  virtual bool LetsIn(const std::string& engine) const = 0;
  // True if requests can be decided now (the proxy's readiness).
  virtual bool Ready() const = 0;
  // By GPU, under the fleet's name for it ("" is any): true if its daemon
  // decides. Without a daemon that decides, requests are admitted unscheduled
  // or refused.
  virtual std::map<std::string, bool> Daemons() const { return {}; }
  // For each GPU whose daemon does not decide, the seconds since that daemon
  // was last heard.
  virtual std::map<std::string, double> AwayS() const { return {}; }
  // The plan that the decider applies; null if it knows of no planner.
  virtual const wire::NewestPlan* Plan() const { return nullptr; }
  // Number of requests that were admitted without a daemon's decision.
  virtual uint64_t Unscheduled() const { return 0; }
  // Makes these engines count as not serving until this time (CLOCK_MONOTONIC):
  // an operator stopped those in `stopped`, and the others are about to end.
  virtual void Rest(const std::vector<std::string>& engines,
                    const std::vector<std::string>& stopped,
                    uint64_t until_ns) {}
  // True if an operator stopped the engine.
  virtual bool IsStoppedByHand(const std::string& engine) const {
    return false;
  }
  // True if the model's memory has left this GPU (under the fleet's name for
  // it). A request brings it back.
  virtual bool IsEvicted(const std::string& model,
                         const std::string& gpu) const {
    return false;
  }
  // The engine's reading as its daemon last reported it; nullopt if the engine
  // reads its own weights.
  virtual absl::optional<PeerReading> ReadingOf(
      const std::string& engine) const {
    return absl::nullopt;
  }
  // Takes fsctl up's report on the engines that it starts on request: for each,
  // the seconds that its start still takes; 0 if unknown. A negative number
  // means that the engine fails to serve, and that a request is not worthwhile
  // for that many seconds.
  virtual void HearStarts(const std::map<std::string, double>& starts) {}
  virtual std::map<std::string, EngineDemand> DemandOnRequest() const {
    return {};
  }
  // True if fsctl up starts an engine for the model's requests, and none
  // serves. In that case even a request to be forwarded is submitted.
  virtual bool AwaitsStart(const std::string& model) const { return false; }
  // Reports that a forwarded request goes to the engine now. It runs there
  // until Finished.
  virtual void Forwards(uint64_t id, const std::string& engine) {}
  // Must be called several times a second.
  virtual void Tick() {}
  // By engine, the number of requests that were admitted or forwarded and have
  // not finished.
  virtual std::map<std::string, uint64_t> RunningByEngine() const { return {}; }
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_ADMISSION_H_
