#include "tools/lab/sim/overload/batch_cost.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace fineserve::sim {
namespace {

double PairsOf(const LookaheadChunk& c) {
  return c.prefix * c.tokens + (c.tokens * c.tokens + c.tokens) / 2;
}

// Returns how many tokens of the chunk cost `us` µs, its γ included; at most
// all.
double TokensFor(const BatchCost& cost, const LookaheadChunk& c, double us) {
  // α/2 x² + (α (p + 1/2) + β) x = us − γ + λ
  const double a = cost.alpha / 2;
  const double b = cost.alpha * (c.prefix + .5) + cost.beta;
  const double left = us - cost.gamma + cost.lambda;
  if (left <= 0 || b <= 0) return 0;
  const double x =
      a <= 0 ? left / b : (std::sqrt(b * b + 4 * a * left) - b) / (2 * a);
  return std::min(std::floor(x), c.tokens);
}

}  // namespace

double BatchCost::Us(const std::vector<LookaheadChunk>& batch) const {
  double pairs = 0, tokens = 0;
  for (const LookaheadChunk& c : batch) {
    pairs += PairsOf(c);
    tokens += c.tokens;
  }
  return Us(pairs, tokens, static_cast<double>(batch.size()));
}

BatchCost FitBatchCost(const std::vector<CostSample>& samples) {
  const auto n = static_cast<Eigen::Index>(samples.size());
  Eigen::MatrixXd x(n, 4);
  Eigen::VectorXd y = Eigen::VectorXd::Ones(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    const CostSample& s = samples[static_cast<size_t>(i)];
    x.row(i) << s.pairs / s.us, s.tokens / s.us, s.chunks / s.us,
        (1 - s.chunks) / s.us;
  }
  const Eigen::VectorXd fit = x.colPivHouseholderQr().solve(y);
  return {fit[0], fit[1], fit[2], fit[3]};
}

BatchCost FitBatchCost(const StepCost& truth, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<CostSample> samples;
  for (int i = 0; i < 400; ++i) {
    StepLoad load;
    double pairs = 0;
    for (uint64_t n = random() % 200; n > 0; --n) {
      const auto length = static_cast<double>(1 + random() % 4000);
      load.AddDecode(length);
      pairs += length + 1;
    }
    for (uint64_t n = 1 + random() % 4; n > 0; --n) {
      load.AddPrompt(static_cast<double>(random() % 4000),
                     static_cast<double>(1 + random() % 2048));
    }
    samples.push_back(
        {pairs + load.pairs, load.tokens, load.chunks, truth.Us(load)});
  }
  return FitBatchCost(samples);
}

std::vector<std::vector<LookaheadChunk>> Balance(
    const BatchCost& cost, const std::vector<LookaheadChunk>& batch,
    double least_tokens) {
  double tokens = 0;
  for (const LookaheadChunk& c : batch) tokens += c.tokens;
  if (tokens <= least_tokens) return {batch};
  const double half = cost.Us(batch) / 2;
  std::vector<LookaheadChunk> first, second;
  for (const LookaheadChunk& c : batch) {
    if (!second.empty()) {
      second.push_back(c);
      continue;
    }
    const double left = half - (first.empty() ? 0 : cost.Us(first));
    const double taken =
        c.tokens == 1 ? (left > 0 ? 1 : 0) : TokensFor(cost, c, left);
    if (taken > 0) first.push_back({c.prefix, taken});
    if (taken < c.tokens) {
      second.push_back({c.prefix + taken, c.tokens - taken});
    }
  }
  if (first.empty() || second.empty()) return {batch};
  auto all = Balance(cost, first, least_tokens);
  for (auto& b : Balance(cost, second, least_tokens))
    all.push_back(std::move(b));
  return all;
}

}  // namespace fineserve::sim
