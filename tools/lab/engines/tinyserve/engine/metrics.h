#ifndef TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_METRICS_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_METRICS_H_

// The figures at /metrics, under the names and with the labels, help texts and
// buckets of vLLM 0.32.0 (vllm/v1/metrics/loggers.py, buckets.py).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tinyserve {

// A Prometheus histogram. A value type; not thread-safe.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);

  void Observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  // Returns the number of values up to bounds()[i]; the last i counts all
  // values.
  uint64_t CountUpTo(size_t i) const;
  uint64_t count() const { return CountUpTo(bounds_.size()); }
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;    // ascending, inclusive
  std::vector<uint64_t> counts_;  // one more than bounds: the rest
  double sum_ = 0;
};

// The metrics of one engine at one moment. In seconds and tokens.
struct Metrics {
  Metrics();

  uint64_t running = 0;
  uint64_t waiting = 0;
  double kv_usage = 0;  // 1: full
  uint64_t preemptions = 0;
  uint64_t prompt_tokens = 0;
  uint64_t generation_tokens = 0;
  uint64_t finished_stop = 0;
  uint64_t finished_length = 0;
  uint64_t finished_abort = 0;
  Histogram first_token;
  Histogram inter_token;
  Histogram end_to_end;
  Histogram queue_time;
  Histogram prefill_time;
  Histogram iteration_tokens;
  // Not in vLLM: counts steps whose real work took longer than the modelled
  // step. If it grows during a measurement, the measurement says little about
  // the model.
  uint64_t late_steps = 0;
  double late_seconds = 0;
};

// Prometheus text, version 0.0.4.
std::string PrometheusText(const Metrics& metrics, std::string_view model);

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_ENGINE_METRICS_H_
