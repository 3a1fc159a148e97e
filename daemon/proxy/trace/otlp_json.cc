#include "daemon/proxy/trace/otlp_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/proxy/http/api_error.h"

namespace fineserve::proxy {
namespace {

// Kinds of a span (opentelemetry/proto/trace/v1/trace.proto).
enum class Kind { kInternal = 1, kServer = 2, kClient = 3 };
constexpr int kErrorCode = 2;

// A list of attributes; what is empty or 0 is left out.
class Attributes {
 public:
  Attributes& Text(absl::string_view key, absl::string_view value) {
    if (!value.empty()) {
      Add(key, absl::StrCat("\"stringValue\":", JsonQuotePrintable(value)));
    }
    return *this;
  }
  // 64-bit integers are strings in this JSON.
  Attributes& Number(absl::string_view key, uint64_t value) {
    if (value != 0) Add(key, absl::StrCat("\"intValue\":\"", value, "\""));
    return *this;
  }
  std::string Array() const { return absl::StrCat("[", text_, "]"); }

 private:
  void Add(absl::string_view key, const std::string& value) {
    absl::StrAppend(&text_, text_.empty() ? "" : ",", "{\"key\":\"", key,
                    "\",\"value\":{", value, "}}");
  }
  std::string text_;
};

struct Span {
  std::string name, id, parent_id;
  Kind kind = Kind::kInternal;
  uint64_t begin_ns = 0, end_ns = 0;
  Attributes attributes;
  bool failed = false;
};

class Spans {
 public:
  void Add(const Life& life, const Span& span) {
    const auto unix_ns = [&](uint64_t ns) {
      return life.arrived_unix_ns +
             (std::max(ns, life.arrived_ns) - life.arrived_ns);
    };
    absl::StrAppend(&text_, text_.empty() ? "" : ",", "{\"traceId\":\"",
                    life.trace_id, "\",\"spanId\":\"", span.id, "\"");
    if (!span.parent_id.empty()) {
      absl::StrAppend(&text_, ",\"parentSpanId\":\"", span.parent_id, "\"");
    }
    absl::StrAppend(&text_, ",\"name\":", JsonQuotePrintable(span.name),
                    ",\"kind\":", static_cast<int>(span.kind),
                    ",\"startTimeUnixNano\":\"", unix_ns(span.begin_ns),
                    "\",\"endTimeUnixNano\":\"", unix_ns(span.end_ns),
                    "\",\"attributes\":", span.attributes.Array());
    if (span.failed) {
      absl::StrAppend(&text_, ",\"status\":{\"code\":", kErrorCode, "}");
    }
    absl::StrAppend(&text_, "}");
    ++count_;
  }
  const std::string& text() const { return text_; }
  size_t count() const { return count_; }

 private:
  std::string text_;
  size_t count_ = 0;
};

void AddRequest(const Life& life, Spans* spans) {
  Span span;
  span.name = absl::StrCat(life.method, " ", life.path);
  span.id = life.span_id;
  span.parent_id = life.parent_span_id;
  span.kind = Kind::kServer;
  span.begin_ns = life.arrived_ns;
  span.end_ns = life.ended_ns;
  span.attributes.Text("http.request.method", life.method)
      .Text("url.path", life.path)
      .Number("http.response.status_code", life.status)
      .Text("error.type", life.error)
      .Text("gen_ai.request.model", life.model)
      .Number("gen_ai.usage.input_tokens", life.tokens_in)
      .Number("gen_ai.usage.output_tokens", life.tokens_out)
      .Text("fineserve.request_id", life.id)
      .Text("fineserve.ended", Word(life.ending));
  span.failed = life.status >= 500 || life.ending == Ending::kEngineDied;
  spans->Add(life, span);
}

void AddDecision(const Life& life, const LifeAttempt& attempt,
                 RandomHex* random, Spans* spans) {
  if (attempt.asked_ns == 0) return;
  Span deciding;
  deciding.name = "deciding";
  deciding.id = random->Next(8);
  deciding.parent_id = life.span_id;
  deciding.begin_ns = attempt.asked_ns;
  deciding.end_ns =
      attempt.decided_ns != 0 ? attempt.decided_ns : life.ended_ns;
  deciding.attributes.Text("fineserve.decided_by", Word(attempt.decided_by))
      .Text("fineserve.engine", attempt.engine)
      .Text("fineserve.gpu", attempt.gpu);
  spans->Add(life, deciding);
  const uint64_t waited_ns = attempt.waited_us * 1000;
  const uint64_t took_ns = deciding.end_ns - deciding.begin_ns;
  if (attempt.waited_for == WaitedFor::kNothing) return;
  Span waiting;
  waiting.name = "waiting";
  waiting.id = random->Next(8);
  waiting.parent_id = deciding.id;
  // The daemon says how long, and its verdict came right after.
  waiting.begin_ns = deciding.end_ns -
                     (waited_ns == 0 ? took_ns : std::min(waited_ns, took_ns));
  waiting.end_ns = deciding.end_ns;
  waiting.attributes.Text("fineserve.waited_for", Word(attempt.waited_for));
  spans->Add(life, waiting);
}

void AddRelay(const Life& life, const LifeAttempt& attempt, Spans* spans) {
  if (attempt.sent_ns == 0 || attempt.span_id.empty()) return;
  Span span;
  span.name = "relaying";
  span.id = attempt.span_id;
  span.parent_id = life.span_id;
  span.kind = Kind::kClient;
  span.begin_ns = attempt.sent_ns;
  span.end_ns = attempt.ended_ns != 0 ? attempt.ended_ns : life.ended_ns;
  span.attributes.Text("fineserve.engine", attempt.engine)
      .Text("fineserve.gpu", attempt.gpu);
  span.failed = attempt.failed;
  spans->Add(life, span);
}

}  // namespace

OtlpBatch OtlpJson(const std::vector<std::shared_ptr<const Life>>& lives,
                   RandomHex* random) {
  Spans spans;
  for (const auto& life : lives) {
    AddRequest(*life, &spans);
    for (size_t i = 0; i < life->attempt_count; ++i) {
      AddDecision(*life, life->attempts[i], random, &spans);
      AddRelay(*life, life->attempts[i], &spans);
    }
  }
  const std::string resource =
      Attributes().Text("service.name", "fineserve-proxy").Array();
  return {absl::StrCat(
              "{\"resourceSpans\":[{\"resource\":{\"attributes\":", resource,
              "},\"scopeSpans\":[{\"scope\":{\"name\":\"fineserve\"},"
              "\"spans\":[",
              spans.text(), "]}]}]}"),
          spans.count()};
}

}  // namespace fineserve::proxy
