#include "daemon/proxy/page/traffic.h"

#include <algorithm>
#include <utility>

namespace fineserve::proxy {
namespace {

// Returns the `part`-quantile of the values (0 if there are none); may reorder
// them.
uint64_t Quantile(std::vector<uint64_t>* values, double part) {
  if (values->empty()) return 0;
  const auto rank =
      static_cast<size_t>(part * static_cast<double>(values->size()));
  const auto at =
      values->begin() + static_cast<long>(std::min(rank, values->size() - 1));
  std::nth_element(values->begin(), at, values->end());
  return *at;
}

}  // namespace

void Traffic::Model::Note(Outcome outcome) {
  if (outcomes.size() < kMostOutcomes) {
    outcomes.push_back(outcome);
    return;
  }
  outcomes[next] = outcome;
  next = (next + 1) % kMostOutcomes;
}

Traffic::Figures Traffic::Of(const std::string& model, uint64_t now_ns) const {
  Figures figures;
  const auto found = models_.find(model);
  if (found == models_.end()) return figures;
  figures.waiting = found->second.waiting;
  figures.running = found->second.running;
  std::vector<uint64_t> ttfts;
  for (const Outcome& outcome : found->second.outcomes) {
    if (now_ns - outcome.at_ns > kWindowNs) continue;
    ++(outcome.on_time ? figures.on_time : figures.late);
    if (outcome.ttft_ns != 0) ttfts.push_back(outcome.ttft_ns);
  }
  figures.first_tokens = ttfts.size();
  figures.ttft_p50_ns = Quantile(&ttfts, 0.5);
  figures.ttft_p99_ns = Quantile(&ttfts, 0.99);
  return figures;
}

Journey::~Journey() {
  if (waits_) Count(&Traffic::Model::waiting, -1);
  LeavesEngine();
}

void Journey::IsFor(const std::string& model, int64_t slo_ttft_us) {
  model_ = &traffic_->models_[model];
  // An SLO comes from the client and may be any number.
  constexpr int64_t kLongestUs = int64_t{1} << 50;
  slo_ttft_ns_ =
      static_cast<uint64_t>(std::clamp<int64_t>(slo_ttft_us, 0, kLongestUs)) *
      1000;
}

void Journey::Asks() {
  waits_ = true;
  Count(&Traffic::Model::waiting, 1);
}

void Journey::IsDecided(bool admitted, bool unscheduled) {
  if (unscheduled) ++traffic_->unscheduled_;
  if (std::exchange(waits_, false)) Count(&Traffic::Model::waiting, -1);
  if (!admitted && model_ != nullptr) model_->Note({clock_->NowNs(), 0, false});
}

void Journey::IsSent() {
  LeavesEngine();
  runs_ = true;
  Count(&Traffic::Model::running, 1);
}

void Journey::HasFirstToken() {
  if (model_ == nullptr) return;
  const uint64_t now = clock_->NowNs(), ttft_ns = now - slo_begins_ns_;
  const bool on_time = slo_ttft_ns_ == 0 || ttft_ns <= slo_ttft_ns_;
  model_->Note({now, std::max<uint64_t>(ttft_ns, 1), on_time});
}

void Journey::LeavesEngine() {
  if (std::exchange(runs_, false)) Count(&Traffic::Model::running, -1);
}

void Journey::Count(int Traffic::Model::*what, int change) {
  if (model_ != nullptr) model_->*what += change;
}

}  // namespace fineserve::proxy
