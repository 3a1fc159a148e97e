#ifndef DAEMON_PROXY_RECORD_LIFE_H_
#define DAEMON_PROXY_RECORD_LIFE_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "daemon/proxy/admission/admission.h"

namespace fineserve::proxy {

enum class Ending : uint8_t {
  kNotYet,
  kAnswered,    // by an engine or the proxy, whatever the status
  kRefused,     // by the proxy, before an engine began to answer
  kClientLeft,  // before its answer was whole
  kEngineDied,  // and no other answered in its place, or none was left that
                // could
};
inline constexpr std::array<absl::string_view, 5> kEndingWords = {
    "not yet", "answered", "refused", "client left", "engine died"};
constexpr absl::string_view Word(Ending ending) {
  return kEndingWords[static_cast<size_t>(ending)];
}
static_assert(Word(Ending::kEngineDied) == "engine died");

// One attempt at having a request answered. Times are of CLOCK_MONOTONIC; 0:
// the attempt did not get that far.
struct LifeAttempt {
  uint64_t asked_ns = 0;    // admission
  uint64_t decided_ns = 0;  // by `decided_by`
  uint64_t sent_ns = 0;     // to the engine
  uint64_t head_ns = 0;     // of the engine's answer
  uint64_t ended_ns = 0;
  uint64_t waited_us = 0;  // in the daemon's queue
  WaitedFor waited_for = WaitedFor::kNothing;
  DecidedBy decided_by = DecidedBy::kNone;
  bool admitted = false;
  bool failed = false;  // by the engine
  std::string engine;
  std::string gpu;      // as the fleet names it
  std::string span_id;  // that the engine was sent as its parent
};

// Record of one request, from its header to the end of its answer: times and
// places, never the content of question and answer.
struct Life {
  static constexpr size_t kMostAttempts = 3;

  LifeAttempt& attempt() {
    return attempts[attempt_count == 0 ? 0 : attempt_count - 1];
  }
  const LifeAttempt& last_attempt() const {
    return attempts[attempt_count == 0 ? 0 : attempt_count - 1];
  }
  // Begins another attempt. Once there are kMostAttempts, the new one replaces
  // the last.
  LifeAttempt& NextAttempt();

  std::string id;      // x-request-id
  std::string client;  // its address
  std::string key;     // its name; empty: it has none
  std::string method;
  std::string path;            // without the query, which may hold secrets
  std::string model;           // of the fleet; empty: it never got that far
  std::string error;           // why it was refused: one word
  std::string fell_back_from;  // the model that was asked; empty: `model`
  bool stream = false;
  unsigned status = 0;  // 499: the client went away
  Ending ending = Ending::kNotYet;

  uint64_t arrived_unix_ns = 0;  // CLOCK_REALTIME
  uint64_t arrived_ns = 0;       // its header
  uint64_t read_ns = 0;          // all of it
  uint64_t counted_ns = 0;       // an engine counted its prompt, or failed to
  uint64_t first_ns = 0;         // byte of the answer's body, or event
  uint64_t last_ns = 0;
  uint64_t ended_ns = 0;
  std::array<LifeAttempt, kMostAttempts> attempts;
  size_t attempt_count = 0;

  uint64_t bytes_in = 0;  // of bodies
  uint64_t bytes_out = 0;
  // Token counts as the engine reported them; 0: not known.
  uint32_t tokens_in = 0;
  uint32_t tokens_out = 0;

  // Empty: it belongs to no trace.
  std::string trace_id;
  std::string parent_span_id;  // the client's; empty: the trace begins here
  std::string span_id;
  bool sampled = false;

  size_t live_index = 0;  // for Recorder
};

// Returns one JSON object on one line, without a line end: the access log's
// line. Unknown values are null. fineserve-proxy(8) lists the fields. Phases
// that have not ended count as ending at `now_ns`.
std::string LifeLine(const Life& life, uint64_t now_ns);

// The same with "steps": the events of the request in order, with their times
// in milliseconds since it arrived.
std::string LifeWithSteps(const Life& life, uint64_t now_ns);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RECORD_LIFE_H_
