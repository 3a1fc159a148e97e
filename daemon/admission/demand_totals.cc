#include "daemon/admission/demand_totals.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "daemon/wire/message.h"

namespace fineserve::admission {

DemandTotals::DemandTotals(const std::vector<std::string>& models) {
  for (const std::string& model : models) totals_[model] = {};
}

DemandTotals::Counts DemandTotals::CountsOf(const wire::ModelDemandT& demand) {
  return {demand.arrived,       demand.prompt_tokens, demand.answered,
          demand.output_tokens, demand.on_time,       demand.late};
}

// A total stops at the largest number there is.
void DemandTotals::Add(const Counts& before, const Counts& now, Counts* total) {
  for (size_t i = 0; i < kCounts; ++i) {
    if (now[i] < before[i]) return;
  }
  for (size_t i = 0; i < kCounts; ++i) {
    uint64_t& sum = (*total)[i];
    sum += std::min(now[i] - before[i], UINT64_MAX - sum);
  }
}

void DemandTotals::Told(const std::string& peer, const wire::HelloT& hello) {
  const auto [last, is_first] = told_.try_emplace(peer);
  for (const auto& demand : hello.demand) {
    const auto total = totals_.find(demand->model);
    if (total == totals_.end()) continue;
    const Counts now = CountsOf(*demand);
    // A model that the peer did not name before had not been asked for.
    const Counts before = std::exchange(last->second[demand->model], now);
    if (!is_first) Add(before, now, &total->second);
  }
}

void DemandTotals::Tell(wire::ReportT* report) const {
  for (const auto& [model, counts] : totals_) {
    if (counts == Counts()) continue;
    auto told = std::make_unique<wire::ModelDemandT>();
    told->model = model;
    told->arrived = counts[0];
    told->prompt_tokens = counts[1];
    told->answered = counts[2];
    told->output_tokens = counts[3];
    told->on_time = counts[4];
    told->late = counts[5];
    report->demand.push_back(std::move(told));
  }
}

}  // namespace fineserve::admission
