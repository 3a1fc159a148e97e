#include "daemon/proxy/trace/tracer.h"

#include "absl/strings/numbers.h"
#include "absl/types/optional.h"
#include "daemon/base/http/traceparent.h"

namespace fineserve::proxy {

void Tracer::TurnOn(double rate) {
  on_ = true;
  rate_ = rate;
}

void Tracer::Begin(const RequestParser& request, Life* life) {
  if (!on_) return;
  life->span_id = NewSpanId();
  if (const absl::optional<Traceparent> parent = TraceparentOf(request)) {
    life->trace_id = parent->trace_id;
    life->parent_span_id = parent->span_id;
    life->sampled = parent->sampled;
    return;
  }
  life->trace_id = random_.Next(16);
  life->sampled = Samples(rate_, life->trace_id);
}

// Uses the last 56 bits, which are random in every trace id (level 2 of the
// Trace Context).
bool Tracer::Samples(double rate, absl::string_view trace_id) {
  if (rate >= 1) return true;
  uint64_t random = 0;
  if (trace_id.size() < 14 ||
      !absl::SimpleHexAtoi(trace_id.substr(trace_id.size() - 14), &random)) {
    return false;
  }
  return static_cast<double>(random) <
         rate * static_cast<double>(uint64_t{1} << 56);
}

}  // namespace fineserve::proxy
