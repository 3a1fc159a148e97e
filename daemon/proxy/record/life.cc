#include "daemon/proxy/record/life.h"

#include <stdio.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/base/http/api_error.h"

namespace fineserve::proxy {
namespace {

// Members of a JSON object, in order.
class Members {
 public:
  void Add(absl::string_view name, absl::string_view value) {
    absl::StrAppend(&text_, text_.empty() ? "\"" : ",\"", name, "\":", value);
  }
  // Empty: null.
  void AddText(absl::string_view name, absl::string_view text) {
    Add(name, text.empty() ? "null" : JsonQuotePrintable(text));
  }
  // 0: null.
  void AddCount(absl::string_view name, uint64_t count) {
    Add(name, count == 0 ? "null" : absl::StrCat(count));
  }
  // Adds the time between the two; null unless both are known and in order.
  void AddMs(absl::string_view name, uint64_t from_ns, uint64_t to_ns) {
    if (from_ns == 0 || to_ns < from_ns) {
      Add(name, "null");
      return;
    }
    char number[32];
    snprintf(number, sizeof(number), "%.3f",
             static_cast<double>(to_ns - from_ns) * 1e-6);
    Add(name, number);
  }
  std::string Object() const { return absl::StrCat("{", text_, "}"); }

 private:
  std::string text_;
};

std::string TimeText(uint64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ",
                          absl::FromUnixNanos(static_cast<int64_t>(unix_ns)),
                          absl::UTCTimeZone());
}

// Time that the request waited for verdicts, and the reason for most of that
// time.
struct Wait {
  uint64_t ns = 0;
  WaitedFor what = WaitedFor::kNothing;
};

Wait WaitOf(const Life& life, uint64_t end_ns) {
  Wait all;
  uint64_t longest = 0;
  for (const LifeAttempt& a : life.attempts) {
    if (a.asked_ns == 0) continue;
    const uint64_t until = a.decided_ns != 0 ? a.decided_ns : end_ns;
    const uint64_t its = until > a.asked_ns ? until - a.asked_ns : 0;
    all.ns += its;
    if (its < longest) continue;
    longest = its;
    all.what = a.waited_for;
  }
  return all;
}

void AddSummary(const Life& life, uint64_t now_ns, Members* out) {
  const LifeAttempt& last = life.last_attempt();
  const uint64_t end_ns = life.ended_ns != 0 ? life.ended_ns : now_ns;
  out->Add("time", JsonQuote(TimeText(life.arrived_unix_ns)));
  out->AddText("id", life.id);
  out->AddText("trace", life.trace_id);
  out->AddText("client", life.client);
  out->AddText("key", life.key);
  out->AddText("method", life.method);
  out->AddText("path", life.path);
  out->AddText("model", life.model);
  out->AddText("fell_back_from", life.fell_back_from);
  out->Add("stream", life.stream ? "true" : "false");
  out->AddCount("status", life.status);
  out->AddText("ended", Word(life.ending));
  out->AddText("error", life.error);
  out->AddText("engine", last.engine);
  out->AddText("gpu", last.gpu);
  out->AddCount("attempts", life.attempt_count);
  out->AddText("decided_by", Word(last.decided_by));
  const Wait wait = WaitOf(life, end_ns);
  out->AddMs("waited_ms", 1, 1 + wait.ns);
  out->AddText("waited_for", Word(wait.what));
  out->AddMs("ttft_ms", life.arrived_ns, life.first_ns);
  out->AddMs("total_ms", life.arrived_ns, end_ns);
  out->AddCount("tokens_in", life.tokens_in);
  out->AddCount("tokens_out", life.tokens_out);
  out->Add("bytes_in", absl::StrCat(life.bytes_in));
  out->Add("bytes_out", absl::StrCat(life.bytes_out));
}

// Events, with their times.
class Steps {
 public:
  explicit Steps(uint64_t arrived_ns) : arrived_ns_(arrived_ns) {}

  // `ns` 0: it did not happen.
  void Add(uint64_t ns, absl::string_view what, Members more = Members()) {
    if (ns == 0) return;
    more.AddMs("at_ms", arrived_ns_, std::max(ns, arrived_ns_));
    more.AddText("step", what);
    steps_.emplace_back(ns, more.Object());
  }
  std::string Array() {
    std::stable_sort(
        steps_.begin(), steps_.end(),
        [](const auto& a, const auto& b) { return a.first < b.first; });
    std::string text;
    for (const auto& [ns, object] : steps_) {
      absl::StrAppend(&text, text.empty() ? "" : ",", object);
    }
    return absl::StrCat("[", text, "]");
  }

 private:
  const uint64_t arrived_ns_;
  std::vector<std::pair<uint64_t, std::string>> steps_;
};

void AddAttempt(const LifeAttempt& a, Steps* steps) {
  steps->Add(a.asked_ns, "asked");
  Members verdict;
  verdict.AddText("by", Word(a.decided_by));
  verdict.AddText("waited_for", Word(a.waited_for));
  verdict.AddMs("queued_ms", 1, 1 + a.waited_us * 1000);
  verdict.AddText("engine", a.engine);
  verdict.AddText("gpu", a.gpu);
  steps->Add(a.decided_ns, a.admitted ? "admitted" : "turned away", verdict);
  Members to;
  to.AddText("engine", a.engine);
  steps->Add(a.sent_ns, "sent", to);
  steps->Add(a.head_ns, "engine answers", to);
  if (a.failed) steps->Add(a.ended_ns, "engine failed", to);
}

}  // namespace

LifeAttempt& Life::NextAttempt() {
  attempt_count = std::min(attempt_count + 1, kMostAttempts);
  attempt() = LifeAttempt();
  return attempt();
}

std::string LifeLine(const Life& life, uint64_t now_ns) {
  Members members;
  AddSummary(life, now_ns, &members);
  return members.Object();
}

std::string LifeWithSteps(const Life& life, uint64_t now_ns) {
  Members members;
  AddSummary(life, now_ns, &members);
  Steps steps(life.arrived_ns);
  steps.Add(life.arrived_ns, "arrived");
  steps.Add(life.read_ns, "read");
  steps.Add(life.counted_ns, "counted");
  for (size_t i = 0; i < life.attempt_count; ++i) {
    AddAttempt(life.attempts[i], &steps);
  }
  steps.Add(life.first_ns, "first byte");
  if (life.ended_ns != 0) steps.Add(life.last_ns, "last byte");
  Members end;
  end.AddText("how", Word(life.ending));
  steps.Add(life.ended_ns, "ended", end);
  members.Add("steps", steps.Array());
  return members.Object();
}

}  // namespace fineserve::proxy
