#include "daemon/proxy/request/token_estimator.h"

#include <algorithm>
#include <cmath>

namespace fineserve::proxy {
namespace {

// Limits of the ratio. In the worst case a byte-level tokenizer needs a token
// per byte. If there are more than 16 bytes per token, the body was not text,
// or only partly.
constexpr double kLeastBytesPerToken = 1.0;
constexpr double kMostBytesPerToken = 16.0;
// Tokens of an imaginary first request, which carries the initial ratio.
constexpr double kFirstTokens = 500.0;
// A longer prompt counts as one of this length, so that no single prompt
// dominates the ratio.
constexpr double kMostTokens = 8'000.0;

}  // namespace

uint32_t TokenEstimator::Estimate(const RequestFacts& facts) const {
  const double estimate =
      static_cast<double>(facts.text_bytes) / BytesPerToken(facts.model);
  const double tokens = std::ceil(estimate) + facts.prompt_tokens;
  return static_cast<uint32_t>(std::clamp(tokens, 1.0, double{UINT32_MAX}));
}

void TokenEstimator::Learn(const RequestFacts& facts, uint32_t prompt_tokens) {
  if (facts.has_uncounted || facts.text_bytes == 0 ||
      prompt_tokens <= facts.prompt_tokens) {
    return;
  }
  const Sums first = {kFirstTokens * kFirstBytesPerToken, kFirstTokens};
  Sums& sums = models_.try_emplace(facts.model, first).first->second;
  const double counted = prompt_tokens - facts.prompt_tokens;
  const double ratio =
      std::clamp(static_cast<double>(facts.text_bytes) / counted,
                 kLeastBytesPerToken, kMostBytesPerToken);
  const double tokens = std::min(counted, kMostTokens);
  const double bytes = ratio * tokens;
  sums.bytes += kNewest * (bytes - sums.bytes);
  sums.tokens += kNewest * (tokens - sums.tokens);
}

double TokenEstimator::BytesPerToken(const std::string& model) const {
  const auto it = models_.find(model);
  if (it == models_.end()) return kFirstBytesPerToken;
  return std::clamp(it->second.bytes / it->second.tokens, kLeastBytesPerToken,
                    kMostBytesPerToken);
}

}  // namespace fineserve::proxy
