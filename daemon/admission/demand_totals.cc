#include "daemon/admission/demand_totals.h"

#include <utility>

#include "daemon/wire/message.h"

namespace fineserve::admission {

DemandTotals::DemandTotals(const std::vector<std::string>& models) {
  for (const std::string& model : models) totals_[model] = {};
}

void DemandTotals::Told(const std::string& peer, const wire::HelloT& hello) {
  const auto [last, is_first] = told_.try_emplace(peer);
  for (const auto& demand : hello.demand) {
    const auto total = totals_.find(demand->model);
    if (total == totals_.end()) continue;
    const wire::DemandCounts now = wire::CountsOf(*demand);
    // A model that the peer did not name before had not been asked for.
    const wire::DemandCounts before =
        std::exchange(last->second[demand->model], now);
    if (!is_first && now.GoesOnFrom(before)) {
      total->second += now.Since(before);
    }
  }
}

void DemandTotals::CountOnFrom(const DemandTotals& before) {
  for (const auto& [model, counts] : before.totals_) {
    const auto total = totals_.find(model);
    if (total != totals_.end()) total->second += counts;
  }
}

DemandTotals::ByModel DemandTotals::Known() const {
  ByModel known = totals_;
  std::erase_if(known, [](const auto& entry) {
    return entry.second == wire::DemandCounts();
  });
  return known;
}

void DemandTotals::Tell(wire::ReportT* report) const {
  for (const auto& [model, counts] : Known()) {
    report->demand.push_back(wire::DemandOf(model, counts));
  }
}

}  // namespace fineserve::admission
