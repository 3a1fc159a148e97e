#include "tools/lab/engines/tinyserve/engine/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include <numeric>
#include <utility>

namespace tinyserve {
namespace {

const std::vector<double> kFirstTokenBounds = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
    1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const std::vector<double> kInterTokenBounds = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,  0.4, 0.5,
    0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20., 40.0, 80.0};
const std::vector<double> kRequestBounds = {
    0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
    30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const std::vector<double> kIterationBounds = {
    1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

std::string Escaped(std::string_view label) {
  std::string text;
  for (const char c : label) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text;
}

// Formats numbers as Prometheus clients do: 40000.0, 0.25, and for more digits
// the shortest text that reads back as the same number.
std::string Number(double value) {
  char text[32];
  if (value == std::floor(value) && std::fabs(value) < 1e15) {
    snprintf(text, sizeof(text), "%.1f", value);
    return text;
  }
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return std::string(text, end);
}

class Writer {
 public:
  explicit Writer(std::string_view model)
      : labels_("engine=\"0\",model_name=\"" + Escaped(model) + "\"") {}

  void Describe(const char* name, const char* type, const char* help) {
    Line({"# HELP ", name, " ", help});
    Line({"# TYPE ", name, " ", type});
  }
  void Sample(const std::string& name, double value,
              const std::string& more_labels = "") {
    Line({name, "{", labels_, more_labels, "} ", Number(value)});
  }
  void Gauge(const char* name, const char* help, double value) {
    Describe(name, "gauge", help);
    Sample(name, value);
  }
  void Counter(const char* name, const char* help, uint64_t value) {
    Describe(name, "counter", help);
    Sample(name, static_cast<double>(value));
  }
  void Write(const char* name, const char* help, const Histogram& values) {
    Describe(name, "histogram", help);
    const std::string bucket = std::string(name) + "_bucket";
    for (size_t i = 0; i < values.bounds().size(); ++i) {
      Sample(bucket, static_cast<double>(values.CountUpTo(i)),
             ",le=\"" + Number(values.bounds()[i]) + "\"");
    }
    const auto count = static_cast<double>(values.count());
    Sample(bucket, count, ",le=\"+Inf\"");
    Sample(std::string(name) + "_count", count);
    Sample(std::string(name) + "_sum", values.sum());
  }
  std::string text() && { return std::move(text_); }

 private:
  void Line(std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts) text_ += part;
    text_ += '\n';
  }

  const std::string labels_;
  std::string text_;
};

void WriteScheduler(const Metrics& m, Writer* to) {
  to->Gauge("vllm:num_requests_running",
            "Number of requests in model execution batches.",
            static_cast<double>(m.running));
  to->Gauge("vllm:num_requests_waiting",
            "Number of requests waiting to be processed.",
            static_cast<double>(m.waiting));
  to->Gauge("vllm:kv_cache_usage_perc",
            "KV-cache usage. 1 means 100 percent usage.", m.kv_usage);
  to->Counter("vllm:num_preemptions_total",
              "Cumulative number of preemption from the engine.",
              m.preemptions);
  to->Counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.",
              m.prompt_tokens);
  to->Counter("vllm:generation_tokens_total",
              "Number of generation tokens processed.", m.generation_tokens);
}

void WriteFinished(const Metrics& m, Writer* to) {
  const char* name = "vllm:request_success_total";
  to->Describe(name, "counter", "Count of successfully processed requests.");
  const std::pair<const char*, uint64_t> reasons[] = {
      {"stop", m.finished_stop},
      {"length", m.finished_length},
      {"abort", m.finished_abort}};
  for (const auto& [reason, count] : reasons) {
    to->Sample(name, static_cast<double>(count),
               std::string(",finished_reason=\"") + reason + "\"");
  }
}

void WriteTimes(const Metrics& m, Writer* to) {
  to->Write("vllm:iteration_tokens_total",
            "Histogram of number of tokens per engine_step.",
            m.iteration_tokens);
  to->Write("vllm:time_to_first_token_seconds",
            "Histogram of time to first token in seconds.", m.first_token);
  to->Write("vllm:inter_token_latency_seconds",
            "Histogram of inter-token latency in seconds.", m.inter_token);
  to->Write("vllm:e2e_request_latency_seconds",
            "Histogram of e2e request latency in seconds.", m.end_to_end);
  to->Write("vllm:request_queue_time_seconds",
            "Histogram of time spent in WAITING phase for request.",
            m.queue_time);
  to->Write("vllm:request_prefill_time_seconds",
            "Histogram of time spent in PREFILL phase for request.",
            m.prefill_time);
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::Observe(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(bound - bounds_.begin())];
  sum_ += value;
}

uint64_t Histogram::CountUpTo(size_t i) const {
  const auto end = counts_.begin() + static_cast<std::ptrdiff_t>(i) + 1;
  return std::accumulate(counts_.begin(), end, uint64_t{0});
}

Metrics::Metrics()
    : first_token(kFirstTokenBounds),
      inter_token(kInterTokenBounds),
      end_to_end(kRequestBounds),
      queue_time(kRequestBounds),
      prefill_time(kRequestBounds),
      iteration_tokens(kIterationBounds) {}

std::string PrometheusText(const Metrics& metrics, std::string_view model) {
  Writer writer(model);
  WriteScheduler(metrics, &writer);
  WriteFinished(metrics, &writer);
  WriteTimes(metrics, &writer);
  writer.Counter("tinyserve:late_steps_total",
                 "Steps that took longer than the model says.",
                 metrics.late_steps);
  writer.Describe("tinyserve:late_seconds_total", "counter",
                  "How much longer they took.");
  writer.Sample("tinyserve:late_seconds_total", metrics.late_seconds);
  return std::move(writer).text();
}

}  // namespace tinyserve
