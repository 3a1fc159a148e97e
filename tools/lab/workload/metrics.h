#ifndef TOOLS_LAB_WORKLOAD_METRICS_H_
#define TOOLS_LAB_WORKLOAD_METRICS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/lab/workload/trace.h"

namespace fineserve::workload {

// Defines our figures, for both the load generator and the simulator.

enum class End : uint8_t {
  kDone,
  kDropped,  // refused at admission: 429 or 503
  kFailed,   // anything else but a whole answer
};

// In seconds; a tpot of 0 means that there is none.
struct Slo {
  double ttft_s = 0;
  double tpot_s = 0;
};

// The outcome of one request. Times count from the start of the run; a request
// begins when it should be sent, even if the sender was late.
struct Outcome {
  uint32_t model = 0;
  End end = End::kFailed;
  double begin_s = 0;
  double first_token_s = 0;  // meaningful only if one came
  double end_s = 0;
  Lengths lengths;  // tokens, the output as generated
  Slo slo;

  double ttft_s() const { return first_token_s - begin_s; }
  // Returns the mean time per token after the first; 0 if there is only one
  // token.
  double tpot_s() const;
  // True if the request is done, its first token met its deadline and its other
  // tokens met the pace. A request that was dropped or failed has missed its
  // SLO.
  bool attained() const;
};

// Returns the q-quantile by nearest rank: the smallest value that at least the
// fraction q of all values does not exceed; 0 if there are none.
double Quantile(std::vector<double> values, double q);

struct Percentiles {
  double p50 = 0, p90 = 0, p95 = 0, p99 = 0, p999 = 0;
};
Percentiles PercentilesOf(const std::vector<double>& values);

struct Summary {
  size_t requests = 0, done = 0, dropped = 0, failed = 0;
  double attainment = 0;           // of all requests, 0 … 1; 0 of none
  double requests_per_second = 0;  // done
  double goodput = 0;              // attained, per second
  // Excludes the first token of each request, which prefill generates.
  double decode_tokens_per_second = 0;
  // The same rate, but only over the time in which a request was under way.
  double idle_free_tokens_per_second = 0;
  Percentiles ttft_s;  // of those done
  Percentiles tpot_s;  // of those done with more than one token
  // TTFT of all requests. It is infinite for a request that is not done, so a
  // percentile beyond the done requests is infinite.
  Percentiles all_ttft_s;
};

// `seconds` is the length of the run, for the rates.
Summary Summarize(const std::vector<Outcome>& outcomes, double seconds);

// Returns the attainment of the tenth of requests with the shortest prompts, of
// the next tenth, and so on; empty if there are fewer than ten requests.
std::vector<double> AttainmentByLengthDecile(std::vector<Outcome> outcomes);

// Returns the time in which at least one request was under way.
double BusySeconds(std::vector<Outcome> outcomes);

// A paper's definition of its SLO: a quantile of a measured baseline, times a
// scale.
//   fs        P95 of prefill times on ShareGPT, one request at a time
//   fs13      P90 TTFT under FCFS
//   prism     P95 TTFT and P95 TPOT on a dedicated GPU
//   kunserve  P50 TTFT and TPOT of the best baseline
// fs and fs13 define no TPOT.
struct SloBasis {
  const char* name;
  double ttft_quantile;
  double tpot_quantile;  // 0: none
};
const std::vector<SloBasis>& SloBases();

// Returns null for an unknown name.
const SloBasis* FindSloBasis(const std::string& name);
// Applies the basis to the outcomes of its baseline.
Slo SloFrom(const SloBasis& basis, const std::vector<Outcome>& baseline,
            double scale);

}  // namespace fineserve::workload

#endif  // TOOLS_LAB_WORKLOAD_METRICS_H_
