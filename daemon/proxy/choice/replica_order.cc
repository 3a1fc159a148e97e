#include "daemon/proxy/choice/replica_order.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <tuple>

namespace fineserve::proxy {

bool OrderReplicas(std::vector<Candidate>* all) {
  int least = INT_MAX;
  for (const Candidate& c : *all) least = std::min(least, c.trouble);
  double rates = 0;
  for (const Candidate& c : *all) {
    rates += c.trouble == least ? c.target_rate : 0;
  }
  for (Candidate& c : *all) {
    if (rates == 0 || c.trouble != least) continue;
    *c.due = std::min(*c.due + c.target_rate / rates, kMostDue);
    c.cost = -*c.due;
  }
  std::stable_sort(all->begin(), all->end(), [](const auto& a, const auto& b) {
    return std::tuple(a.trouble, a.full, a.cost, a.load) <
           std::tuple(b.trouble, b.full, b.cost, b.load);
  });
  if (rates > 0) *all->front().due -= 1;
  return rates > 0;
}

double PredictedWait::Us(double per_token_us, uint64_t now_ns) const {
  constexpr double kSameUs = 1000;
  const double since = static_cast<double>(tokens_since_) * per_token_us -
                       static_cast<double>(now_ns - told_ns_) / 1000;
  return std::floor(std::max(0.0, us_ + since) / kSameUs) * kSameUs;
}

void RecentPrefill::Sent(double tokens, uint64_t now_ns) {
  tokens_ = Tokens(now_ns) + tokens;
  at_ns_ = now_ns;
}

double RecentPrefill::Tokens(uint64_t now_ns) const {
  const double s = static_cast<double>(now_ns - at_ns_) / 1e9;
  return tokens_ * std::exp(-s / kTimeS);
}

}  // namespace fineserve::proxy
