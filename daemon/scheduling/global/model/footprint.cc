#include "daemon/scheduling/global/model/footprint.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fineserve::plan {
namespace {

// Constants of the released code: 80 % of the 95th percentiles of its prompts
// and answers, and its allowance over the weights.
constexpr double kReleasedPrompt = 0.8 * 903;
constexpr double kReleasedOutput = 0.8 * 631;
constexpr double kReleasedWeights = 1.3;

// Returns the smallest profiled batch that meets the rate; 0 if none does.
uint32_t LeastBatch(const ModelDemand& m, const Profile& p, double rate) {
  for (const uint32_t batch : Batches(p)) {
    if (batch > m.max_batch) break;
    if (RequestRate(p, batch, m.prompt_tokens, m.output_tokens) >= rate) {
      return batch;
    }
  }
  return 0;
}

// Returns the batch at which the line between the profiled batches meets the
// rate, rounded up. Beyond the profiled batches, the last line is extended.
double ReleasedBatch(const Profile& p, double rate) {
  const std::vector<uint32_t> batches = Batches(p);
  const auto throughput = [&p](uint32_t batch) {
    return RequestRate(p, batch, kReleasedPrompt, kReleasedOutput);
  };
  size_t high = 1;
  while (high + 1 < batches.size() && throughput(batches[high]) < rate) ++high;
  const double low_rate = throughput(batches[high - 1]);
  const double slope = (batches[high] - batches[high - 1]) /
                       (throughput(batches[high]) - low_rate);
  // This batch is no faster than the one before it, so the slope says nothing.
  if (!std::isfinite(slope) || slope < 0) return batches.back();
  const double batch = batches[high - 1] + (rate - low_rate) * slope;
  return std::max(1.0, std::ceil(batch));
}

Footprint PaperFootprint(const ModelDemand& m, const Profile& p,
                         uint32_t batch) {
  const double request = (m.prompt_tokens + m.output_tokens) * p.kv_token_bytes;
  Footprint f;
  f.weight_bytes = p.weight_bytes;
  f.activation_bytes = p.activation_bytes;
  f.kv_bytes = batch * request;
  f.floor_bytes = std::max(request, m.floor_bytes);
  f.kv_bytes = std::max(f.kv_bytes, f.floor_bytes);
  f.batch = batch;
  f.ttft_s = Ttft(p, batch, m.prompt_tokens);
  return f;
}

Footprint ReleasedFootprint(const ModelDemand& m, const Profile& p,
                            const Footprint& paper, double rate) {
  const double request = (kReleasedPrompt + kReleasedOutput) * p.kv_token_bytes;
  const double batch = ReleasedBatch(p, rate);
  Footprint f = paper;
  f.weight_bytes = kReleasedWeights * p.weight_bytes;
  f.activation_bytes = 0;
  f.kv_bytes = std::max(batch * request, f.floor_bytes);
  f.batch = static_cast<uint32_t>(batch);
  return f;
}

std::string SlowText(const ModelDemand& m, const Profile& p) {
  const uint32_t first = Batches(p).front();
  return absl::StrFormat(
      "model \"%s\": a first token takes %.0f ms at batch %d, its SLO is "
      "%.0f ms: allow at least %.0f ms or profile a larger TP",
      m.name, 1e3 * Ttft(p, first, m.prompt_tokens), first, 1e3 * m.slo_ttft_s,
      std::ceil(1e3 * Ttft(p, first, m.prompt_tokens)));
}

// Returns the fewest replicas that meet the rate and, if `in_time`, the SLO; 0
// if no number does.
uint32_t LeastReplicas(const ModelDemand& m, const Profile& p, bool in_time,
                       uint32_t most) {
  for (uint32_t n = 1; n <= most; ++n) {
    const uint32_t batch = LeastBatch(m, p, m.rate / n);
    if (batch == 0) continue;
    if (!in_time || Ttft(p, batch, m.prompt_tokens) <= m.slo_ttft_s) return n;
  }
  return 0;
}

Sizing Paper(const ModelDemand& m, const Profile& p, uint32_t most) {
  Sizing sizing;
  const bool slow = Ttft(p, Batches(p).front(), m.prompt_tokens) > m.slo_ttft_s;
  if (slow) sizing.shortfall = SlowText(m, p);
  uint32_t replicas = m.replicas;
  if (replicas == 0) replicas = LeastReplicas(m, p, !slow, most);
  if (replicas == 0) {
    replicas = most;
    sizing.shortfall = absl::StrFormat(
        "model \"%s\": its rate of %g requests/s within its SLO takes more "
        "than the %d replicas that there is room for: add GPUs, or lower its "
        "rate",
        m.name, m.rate, most);
  }
  uint32_t batch = LeastBatch(m, p, m.rate / replicas);
  if (batch == 0) batch = std::min(Batches(p).back(), m.max_batch);
  sizing.replicas = replicas;
  const auto profiled = Batches(p);
  const auto above = std::upper_bound(profiled.begin(), profiled.end(), batch);
  // If max_batch is between two profiled batches, the lower one counts.
  if (above != profiled.begin()) batch = *(above - 1);
  sizing.each = PaperFootprint(m, p, batch);
  return sizing;
}

}  // namespace

const char* TierName(Tier tier) {
  switch (tier) {
    case Tier::kPaper:
      return "paper";
    case Tier::kReleased:
      return "released";
    case Tier::kOurs:
      return "ours";
  }
  return "unknown";
}

Sizing SizeModel(const ModelDemand& m, const Profile& p, Tier tier,
                 uint32_t most_replicas) {
  Sizing sizing = Paper(m, p, most_replicas);
  if (tier == Tier::kReleased) {
    sizing.each =
        ReleasedFootprint(m, p, sizing.each, m.rate / sizing.replicas);
  }
  return sizing;
}

}  // namespace fineserve::plan
