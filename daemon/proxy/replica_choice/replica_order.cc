#include "daemon/proxy/replica_choice/replica_order.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <tuple>

namespace fineserve::proxy {

void ModelOnGpu::Add(bool lets_in, bool serves, double target_rate) {
  any_ = true;
  any_serves_ |= serves;
  lets_in_ |= lets_in;
  let_in_serves_ |= lets_in && serves;
  target_rate_ += target_rate;
}

int ModelOnGpu::Trouble(bool has_daemon, bool is_away) const {
  const bool answers = lets_in_ ? let_in_serves_ : any_serves_;
  return (lets_in_ ? 0 : kNotLetIn) + (answers ? 0 : kNoAnswer) +
         (has_daemon ? 0 : kNoDaemon) + (is_away ? kAway : 0);
}

bool OrderReplicas(std::vector<Candidate>* all) {
  if (all->size() == 1) return false;
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
