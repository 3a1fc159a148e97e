// KunServe, Figure 15: accuracy of the cost model, on measured kernels.

#include "bench/paper/kunserve/figure15.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_format.h"
#include "bench/paper/figures.h"
#include "tools/lab/sim/overload/batch_cost.h"

namespace fineserve::bench {
namespace {

// 14B on an A100: a prompt's tokens, its time, and the part that is attention
// (48 times its kernel, 40 and 8 heads), in ms. From
// calibration_composed_from_aic and calibration_aic_attention.
struct Prompt {
  double tokens, whole_ms, attention_ms;
};
constexpr Prompt kPrompts[] = {{512, 62.504, 2.190},
                               {1024, 110.835, 5.244},
                               {2048, 210.943, 15.377},
                               {4096, 442.81, 51.600},
                               {8192, 949.2, 188.013}};
// Times of attention alone, for the tokens that follow a prefix.
constexpr struct {
  double tokens, attention_ms;
} kLonger[] = {{2048, 15.377},  {4096, 51.600},   {6144, 110.646},
               {8192, 188.013}, {10240, 295.728}, {12288, 427.734}};
constexpr double kChunk = 2048;

double PairsOf(double prefix, double tokens) {
  return prefix * tokens + (tokens * tokens + tokens) / 2;
}

double PercentOff(double predicted, double truth) {
  return 100 * std::abs(predicted - truth) / truth;
}

}  // namespace

std::vector<CostError> CostErrors() {
  std::vector<CostError> points;
  std::vector<double> attention_us;
  const auto add = [&](double prefix, double tokens, double work_ms,
                       double attention_ms) {
    CostError p;
    p.prefix = prefix;
    p.tokens = tokens;
    p.us = 1e3 * (work_ms + attention_ms);
    points.push_back(p);
    attention_us.push_back(1e3 * attention_ms);
  };
  double chunk_ms = 0;
  for (const Prompt& m : kPrompts) {
    const double work_ms = m.whole_ms - m.attention_ms;
    if (m.tokens == kChunk) chunk_ms = work_ms;
    add(0, m.tokens, work_ms, m.attention_ms);
  }
  for (size_t i = 1; i < std::size(kLonger); ++i) {
    add(kLonger[i - 1].tokens, kChunk, chunk_ms,
        kLonger[i].attention_ms - kLonger[i - 1].attention_ms);
  }
  for (size_t left_out = 0; left_out < points.size(); ++left_out) {
    std::vector<sim::CostSample> whole, tokens_alone, neglected;
    for (size_t i = 0; i < points.size(); ++i) {
      if (i == left_out) continue;
      const CostError& p = points[i];
      whole.push_back({PairsOf(p.prefix, p.tokens), p.tokens, 1, p.us});
      tokens_alone.push_back({0, p.tokens, 1, p.us});
      neglected.push_back({0, p.tokens, 1, p.us - attention_us[i]});
    }
    CostError& p = points[left_out];
    const auto off = [&](const std::vector<sim::CostSample>& samples) {
      return PercentOff(sim::FitBatchCost(samples).Us(
                            PairsOf(p.prefix, p.tokens), p.tokens, 1),
                        p.us);
    };
    p.off = off(whole);
    p.off_tokens = off(tokens_alone);
    p.off_neglected = off(neglected);
  }
  return points;
}

Figure KunServeFigure15(const Data&, const Effort&) {
  Figure f;
  f.id = "kunserve15";
  f.title = "KunServe, Figure 15: error of the cost model";
  f.question =
      "How far is the cost of a chunk off, with attention in the model and "
      "without it?";
  Table table{"14B on an A100, each point by a fit of the others",
              {"prefix", "tokens", "measured ms", "Eqs. 1 to 3, off by %",
               "by tokens alone (our predictor) %", "attention neglected %"},
              {}};
  // The greatest errors, without and with a prefix.
  std::map<bool, CostError> most;
  for (const CostError& p : CostErrors()) {
    table.rows.push_back(
        {absl::StrFormat("%.0f", p.prefix), absl::StrFormat("%.0f", p.tokens),
         absl::StrFormat("%.1f", p.us / 1e3), absl::StrFormat("%.1f", p.off),
         absl::StrFormat("%.1f", p.off_tokens),
         absl::StrFormat("%.1f", p.off_neglected)});
    CostError& m = most[p.prefix > 0];
    m.off = std::max(m.off, p.off);
    m.off_tokens = std::max(m.off_tokens, p.off_tokens);
    m.off_neglected = std::max(m.off_neglected, p.off_neglected);
  }
  f.tables.push_back(std::move(table));
  for (const auto& [prefix, m] : most) {
    const char* of = prefix ? "with a prefix" : "without a prefix";
    const auto add = [&](const std::string& what, Sense sense, double paper,
                         double ours, bool counts) {
      Comparison c;
      c.what = absl::StrFormat("%s, %s", what, of);
      c.sense = sense;
      c.paper = paper;
      c.ours = {ours, 0};
      c.counts = counts;
      f.comparisons.push_back(std::move(c));
    };
    add("KunServe's model is within 5 % (1: yes)", Sense::kExact, 1,
        m.off <= 5 ? 1 : 0, true);
    add("greatest error of KunServe's model, %", Sense::kAbout, 5, m.off,
        false);
    add("greatest error with attention neglected, %", Sense::kAbout,
        prefix ? 74 : 48, m.off_neglected, false);
    add("greatest error by tokens alone, as our predictor counts, %",
        Sense::kAbout, prefix ? 74 : 48, m.off_tokens, false);
  }
  f.provenance = {
      "kernels of aiconfigurator on an A100, composed for Qwen2.5-14B; a chunk "
      "after a prefix costs the attention of both less that of the prefix",
      "the paper's lengths are not printed: its errors without attention are "
      "of longer prompts or slower attention than these"};
  f.because = "measured attention is not quadratic at these lengths";
  return f;
}

}  // namespace fineserve::bench
