#include "daemon/proxy/relay/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/metrics/metric_list.h"

namespace fineserve::proxy {
namespace {

using metrics::MetricId;
using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;

// vLLM's buckets, so that one panel shows both (v1/metrics/loggers.py).
const Histogram::BucketBoundaries kTtftBuckets = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
    1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const Histogram::BucketBoundaries kTpotBuckets = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
    0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};

template <typename Builder>
auto& Register(Builder builder, MetricId id, prometheus::Registry* registry) {
  const metrics::Metric& metric = metrics::Describe(id);
  return builder.Name(metric.name).Help(metric.meaning).Register(*registry);
}

}  // namespace

struct Metrics::Families {
  // Metrics found once per model or key, not once per request, because a family
  // finds a metric by hashing all its labels.
  struct OfModel {
    Counter *retries, *forwarded, *unscheduled;
    Counter *prompt_tokens, *output_tokens;
    Counter *ttft_violations, *tpot_violations;
    Counter *exact, *estimate, *fallback;
    Histogram *queue_time, *ttft, *tpot;
    Gauge* bytes_per_token;
  };

  prometheus::Registry registry;
  prometheus::Family<Counter>& requests =
      Register(prometheus::BuildCounter(), MetricId::kRequests, &registry);
  prometheus::Family<Counter>& retries =
      Register(prometheus::BuildCounter(), MetricId::kRetries, &registry);
  prometheus::Family<Counter>& engine_errors =
      Register(prometheus::BuildCounter(), MetricId::kEngineErrors, &registry);
  prometheus::Family<Counter>& forwarded =
      Register(prometheus::BuildCounter(), MetricId::kForwarded, &registry);
  prometheus::Family<Counter>& unscheduled =
      Register(prometheus::BuildCounter(), MetricId::kUnscheduled, &registry);
  prometheus::Family<Gauge>& daemons =
      Register(prometheus::BuildGauge(), MetricId::kDaemonDecides, &registry);
  prometheus::Family<Counter>& prompt_tokens =
      Register(prometheus::BuildCounter(), MetricId::kPromptTokens, &registry);
  prometheus::Family<Counter>& output_tokens = Register(
      prometheus::BuildCounter(), MetricId::kGenerationTokens, &registry);
  prometheus::Family<Counter>& violations =
      Register(prometheus::BuildCounter(), MetricId::kSloViolations, &registry);
  prometheus::Family<Counter>& prompts =
      Register(prometheus::BuildCounter(), MetricId::kPrompts, &registry);
  prometheus::Family<Histogram>& queue_time =
      Register(prometheus::BuildHistogram(), MetricId::kQueueTime, &registry);
  prometheus::Family<Histogram>& ttft = Register(
      prometheus::BuildHistogram(), MetricId::kTimeToFirstToken, &registry);
  prometheus::Family<Histogram>& tpot = Register(
      prometheus::BuildHistogram(), MetricId::kTimePerOutputToken, &registry);
  prometheus::Family<Gauge>& bytes_per_token =
      Register(prometheus::BuildGauge(), MetricId::kBytesPerToken, &registry);
  Gauge& connections =
      Register(prometheus::BuildGauge(), MetricId::kConnections, &registry)
          .Add({});
  Counter& refused = Register(prometheus::BuildCounter(),
                              MetricId::kConnectionsRefused, &registry)
                         .Add({});
  Counter& failed_handshakes =
      Register(prometheus::BuildCounter(), MetricId::kTlsHandshakesFailed,
               &registry)
          .Add({});
  prometheus::Family<Gauge>& certificate_expiry = Register(
      prometheus::BuildGauge(), MetricId::kCertificateExpiry, &registry);
  Gauge& running =
      Register(prometheus::BuildGauge(), MetricId::kRequestsRunning, &registry)
          .Add({});

  prometheus::Family<Counter>& fallbacks =
      Register(prometheus::BuildCounter(), MetricId::kFallbacks, &registry);
  prometheus::Family<Counter>& key_requests =
      Register(prometheus::BuildCounter(), MetricId::kKeyRequests, &registry);
  prometheus::Family<Counter>& key_tokens =
      Register(prometheus::BuildCounter(), MetricId::kKeyTokens, &registry);
  prometheus::Family<Counter>& key_refusals =
      Register(prometheus::BuildCounter(), MetricId::kKeyRefusals, &registry);
  prometheus::Family<Gauge>& key_spent =
      Register(prometheus::BuildGauge(), MetricId::kKeySpentToday, &registry);
  prometheus::Family<Gauge>& key_budget =
      Register(prometheus::BuildGauge(), MetricId::kKeyDailyBudget, &registry);

  prometheus::Family<Counter>& log_lines = Register(
      prometheus::BuildCounter(), MetricId::kAccessLogLines, &registry);
  Counter& log_written = log_lines.Add({{"outcome", "written"}});
  Counter& log_dropped = log_lines.Add({{"outcome", "dropped"}});
  Counter& log_failed = log_lines.Add({{"outcome", "failed"}});
  prometheus::Family<Counter>& spans =
      Register(prometheus::BuildCounter(), MetricId::kSpans, &registry);
  Counter& spans_sent = spans.Add({{"outcome", "sent"}});
  Counter& spans_failed = spans.Add({{"outcome", "failed"}});
  Counter& traces_dropped =
      Register(prometheus::BuildCounter(), MetricId::kTracesDropped, &registry)
          .Add({});
  Counter& posts_failed = Register(prometheus::BuildCounter(),
                                   MetricId::kSpanPostsFailed, &registry)
                              .Add({});

  struct OfKey {
    Counter *requests, *prompt_tokens, *output_tokens;
  };

  absl::flat_hash_map<std::string, OfModel> models;
  absl::flat_hash_map<std::string, OfKey> keys;
  std::map<std::string, Gauge*> daemons_by_gpu;
  // By model and status.
  absl::flat_hash_map<std::string, absl::flat_hash_map<unsigned, Counter*>>
      statuses;

  Counter& Errors(const std::string& engine, EngineError error) {
    return engine_errors.Add(
        {{"engine", engine}, {"error", std::string(TextOf(error).word)}});
  }

  OfModel& Of(const std::string& model) {
    const auto it = models.find(model);
    return it != models.end() ? it->second : Add(model);
  }

  OfKey& OfNamed(const std::string& key) {
    const auto it = keys.find(key);
    if (it != keys.end()) return it->second;
    const OfKey made = {&key_requests.Add({{"key", key}}),
                        &key_tokens.Add({{"key", key}, {"kind", "prompt"}}),
                        &key_tokens.Add({{"key", key}, {"kind", "output"}})};
    return keys.emplace(key, made).first->second;
  }

  OfModel& Add(const std::string& model) {
    const prometheus::Labels labels = {{"model", model}};
    const auto slo = [&](const char* which) {
      return &violations.Add({{"model", model}, {"slo", which}});
    };
    const auto counted = [&](const char* how) {
      return &prompts.Add({{"model", model}, {"tokens", how}});
    };
    const OfModel made = {&retries.Add(labels),
                          &forwarded.Add(labels),
                          &unscheduled.Add(labels),
                          &prompt_tokens.Add(labels),
                          &output_tokens.Add(labels),
                          slo("ttft"),
                          slo("tpot"),
                          counted("exact"),
                          counted("estimate"),
                          counted("fallback"),
                          &queue_time.Add(labels, kTtftBuckets),
                          &ttft.Add(labels, kTtftBuckets),
                          &tpot.Add(labels, kTpotBuckets),
                          &bytes_per_token.Add(labels)};
    return models.emplace(model, made).first->second;
  }
};

Metrics::Metrics() : families_(new Families) {}

Metrics::~Metrics() = default;

void Metrics::CountRequest(const std::string& model, unsigned status) {
  Counter*& counter = families_->statuses[model][status];
  if (counter == nullptr) {
    counter = &families_->requests.Add(
        {{"model", model}, {"status", absl::StrCat(status)}});
  }
  counter->Increment();
}

void Metrics::CountRetry(const std::string& model) {
  families_->Of(model).retries->Increment();
}

void Metrics::CountFallback(const std::string& model, const std::string& to) {
  families_->fallbacks.Add({{"model", model}, {"to", to}}).Increment();
}

void Metrics::AddEngine(const std::string& engine) {
  for (size_t i = 0; i < kEngineErrorTexts.size(); ++i) {
    families_->Errors(engine, static_cast<EngineError>(i));
  }
}

void Metrics::CountEngineError(const std::string& engine, EngineError error) {
  families_->Errors(engine, error).Increment();
}

void Metrics::CountForwarded(const std::string& model) {
  families_->Of(model).forwarded->Increment();
}

void Metrics::CountUnscheduled(const std::string& model) {
  families_->Of(model).unscheduled->Increment();
}

void Metrics::SetDaemons(const std::map<std::string, bool>& daemons) {
  for (const auto& [gpu, gauge] : families_->daemons_by_gpu) {
    if (daemons.count(gpu) == 0) families_->daemons.Remove(gauge);
  }
  std::map<std::string, Gauge*> shown;
  for (const auto& [gpu, decides] : daemons) {
    shown[gpu] = &families_->daemons.Add({{"gpu", gpu}});
    shown[gpu]->Set(decides);
  }
  families_->daemons_by_gpu = std::move(shown);
}

void Metrics::CountTokens(const std::string& model, uint32_t prompt,
                          uint32_t output) {
  const Families::OfModel& of = families_->Of(model);
  of.prompt_tokens->Increment(prompt);
  of.output_tokens->Increment(output);
}

void Metrics::CountSpending(const std::string& key, uint32_t prompt,
                            uint32_t output) {
  const Families::OfKey& of = families_->OfNamed(key);
  of.requests->Increment();
  of.prompt_tokens->Increment(prompt);
  of.output_tokens->Increment(output);
}

void Metrics::CountRefusal(const std::string& key, const std::string& reason) {
  families_->key_refusals.Add({{"key", key}, {"reason", reason}}).Increment();
}

void Metrics::SetBudget(const std::string& key, uint64_t budget,
                        uint64_t spent) {
  families_->key_spent.Add({{"key", key}}).Set(static_cast<double>(spent));
  if (budget == 0) return;
  families_->key_budget.Add({{"key", key}}).Set(static_cast<double>(budget));
}

void Metrics::QueueTime(const std::string& model, double seconds) {
  families_->Of(model).queue_time->Observe(seconds);
}

void Metrics::TimeToFirstToken(const std::string& model, double seconds) {
  families_->Of(model).ttft->Observe(seconds);
}

void Metrics::TimePerOutputToken(const std::string& model, double seconds) {
  families_->Of(model).tpot->Observe(seconds);
}

void Metrics::CountSloViolation(const std::string& model, Slo slo) {
  const Families::OfModel& of = families_->Of(model);
  (slo == Slo::kTtft ? of.ttft_violations : of.tpot_violations)->Increment();
}

void Metrics::CountPrompt(const std::string& model, Counted how) {
  const Families::OfModel& of = families_->Of(model);
  Counter* const counters[] = {of.exact, of.estimate, of.fallback};
  counters[static_cast<size_t>(how)]->Increment();
}

void Metrics::SetBytesPerToken(const std::string& model, double ratio) {
  families_->Of(model).bytes_per_token->Set(ratio);
}

void Metrics::SetConnections(size_t n) {
  families_->connections.Set(static_cast<double>(n));
}

void Metrics::CountConnectionRefused() { families_->refused.Increment(); }

void Metrics::SetFailedHandshakes(uint64_t n) {
  Counter& counter = families_->failed_handshakes;
  counter.Increment(static_cast<double>(n) - counter.Value());
}

void Metrics::SetCertificateExpiry(double seconds) {
  families_->certificate_expiry.Add({}).Set(seconds);
}

void Metrics::AddRunning(int change) { families_->running.Increment(change); }

void Metrics::SetFollowed(const AccessLog::Counts& log,
                          const OtlpExporter::Counts& spans) {
  const auto set = [](Counter* counter, uint64_t count) {
    counter->Increment(static_cast<double>(count) - counter->Value());
  };
  set(&families_->log_written, log.written);
  set(&families_->log_dropped, log.dropped);
  set(&families_->log_failed, log.failed);
  set(&families_->spans_sent, spans.spans);
  set(&families_->spans_failed, spans.spans_given_up);
  set(&families_->traces_dropped, spans.requests_dropped);
  set(&families_->posts_failed, spans.failures);
}

std::string Metrics::Render() const {
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

}  // namespace fineserve::proxy
