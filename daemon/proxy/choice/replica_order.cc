#include "daemon/proxy/choice/replica_order.h"

#include <algorithm>
#include <climits>
#include <utility>

namespace fineserve::proxy {

void OrderReplicas(std::vector<Candidate>* all) {
  int least = INT_MAX;
  for (const Candidate& c : *all) least = std::min(least, c.trouble);
  double rates = 0;
  for (const Candidate& c : *all) {
    rates += c.trouble == least ? c.target_rate : 0;
  }
  for (Candidate& c : *all) {
    if (rates == 0 || c.trouble != least) continue;
    c.cost = -(*c.due += c.target_rate / rates);
  }
  std::stable_sort(all->begin(), all->end(), [](const auto& a, const auto& b) {
    return std::pair(a.trouble, a.cost) < std::pair(b.trouble, b.cost);
  });
  if (rates > 0) *all->front().due -= 1;
}

double PredictedWait::Us(double per_token_us, uint64_t now_ns) const {
  const double since = static_cast<double>(tokens_since_) * per_token_us -
                       static_cast<double>(now_ns - told_ns_) / 1000;
  return std::max(0.0, us_ + since);
}

}  // namespace fineserve::proxy
