#ifndef DAEMON_CONTRACT_VERDICT_VERDICT_H_
#define DAEMON_CONTRACT_VERDICT_VERDICT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

// The terms of one request, used by the scheduler, the wire and the proxy. The
// numbers are those of daemon/contract/wire/admission.fbs, so that a code can
// be cast and need not be listed again; daemon/contract/wire/verdict_codes.h
// checks that.

namespace fineserve::verdict {

// The demands of one request. Sizes are in tokens, times in microseconds.
struct Terms {
  uint32_t prompt_tokens = 0;  // exact, or estimated
  uint32_t max_tokens = 0;     // 0: the client did not say
  int64_t slo_ttft_us = 0;     // 0: the model's
  int64_t slo_tpot_us = 0;     // 0: the model's
  int32_t priority = 0;        // higher goes first
  std::string tenant;          // fairness id; empty: the default one
  bool degrade_ok = false;     // late is better than refused
  bool operator==(const Terms&) const = default;
};

// Why a request does not start at all.
enum class Refusal : uint8_t {
  kNone,
  kDeadline,    // its SLO cannot be met
  kTooLong,     // no engine of its model can ever hold it
  kQueueFull,   // too many requests wait
  kNoEngine,    // no engine of its model serves
  kDaemonAway,  // no daemon decides, and the policy is fail_closed (proxy)
};

struct RefusalText {
  absl::string_view word;  // for metrics
  absl::string_view code;  // for the client
  absl::string_view why;   // one line; empty: the proxy's own words
};
inline constexpr std::array kRefusalTexts = {
    RefusalText{"", "refused", ""},
    RefusalText{"deadline", "slo_unreachable", "its TTFT SLO cannot be met"},
    RefusalText{"too_long", "context_length_exceeded",
                "no engine of its model can ever hold a prompt of this length"},
    RefusalText{"queue_full", "queue_full", "too many requests wait"},
    RefusalText{"no_engine", "no_engine", "no engine of its model serves now"},
    RefusalText{"", "scheduler_away", ""}};
constexpr const RefusalText& TextOf(Refusal refusal) {
  return kRefusalTexts[static_cast<size_t>(refusal)];
}
static_assert(TextOf(Refusal::kDeadline).word == "deadline" &&
              TextOf(Refusal::kDaemonAway).code == "scheduler_away");

// Arrays of refusal counts are indexed by Index. Only a scheduler's refusals
// are counted.
inline constexpr size_t kRefusals = 4;
constexpr size_t Index(Refusal refusal) {
  return static_cast<size_t>(refusal) - 1;
}
static_assert(Index(Refusal::kNoEngine) + 1 == kRefusals);

// Why a request waits, or waited when it was last considered before its
// verdict.
enum class WaitedFor : uint8_t {
  kNothing,     // it was decided at once
  kTurn,        // others go first, by deadline, priority or arrival
  kBatch,       // a place among the sequences that its engine runs together
  kKv,          // free KV
  kPrefill,     // its engine fills prompts that it was sent before
  kEngine,      // an engine that takes requests
  kActivation,  // its engine, which is coming back to the GPU
  kDaemon,      // the daemon, which is away (proxy)
  kStart,       // its engine, which fsctl up starts on request (proxy)
};
inline constexpr std::array<absl::string_view, 9> kWaitedForWords = {
    "",       "turn",       "batch",  "kv",   "prefill",
    "engine", "activation", "daemon", "start"};
// For the access log.
constexpr absl::string_view Word(WaitedFor waited_for) {
  return kWaitedForWords[static_cast<size_t>(waited_for)];
}
static_assert(Word(WaitedFor::kStart) == "start" &&
              Word(WaitedFor::kKv) == "kv");

// How a request that had been admitted ended.
enum class Outcome : uint8_t {
  kDone,        // the engine's answer was relayed whole, whatever it was
  kClientGone,  // the engine's connection was closed, so it aborts
  kEngineGone,  // the engine failed it
};

}  // namespace fineserve::verdict

#endif  // DAEMON_CONTRACT_VERDICT_VERDICT_H_
