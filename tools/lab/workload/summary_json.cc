#include "tools/lab/workload/summary_json.h"

#include <cmath>

namespace fineserve::workload {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json ToJson(const Percentiles& p) {
  return {{"p50", Number(p.p50)},
          {"p90", Number(p.p90)},
          {"p95", Number(p.p95)},
          {"p99", Number(p.p99)},
          {"p999", Number(p.p999)}};
}

}  // namespace

Json ToJson(const std::vector<Outcome>& outcomes, double seconds) {
  const Summary s = Summarize(outcomes, seconds);
  return {{"requests", s.requests},
          {"done", s.done},
          {"dropped", s.dropped},
          {"failed", s.failed},
          {"attainment", s.attainment},
          {"requests_per_second", s.requests_per_second},
          {"goodput", s.goodput},
          {"decode_tokens_per_second", s.decode_tokens_per_second},
          {"idle_free_tokens_per_second", s.idle_free_tokens_per_second},
          {"ttft_s", ToJson(s.ttft_s)},
          {"tpot_s", ToJson(s.tpot_s)},
          {"all_ttft_s", ToJson(s.all_ttft_s)},
          {"attainment_by_length_decile", AttainmentByLengthDecile(outcomes)}};
}

}  // namespace fineserve::workload
