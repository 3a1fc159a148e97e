#include "daemon/scheduling/lead/demand_window.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/contract/wire/message.h"

namespace fineserve::admission {
namespace {

// Age at which a daemon's last report is considered stale.
constexpr uint64_t kStaleNs = 10'000'000'000;

DemandCounts In(const std::map<std::string, DemandCounts>& counts,
                const std::string& model) {
  const auto found = counts.find(model);
  return found == counts.end() ? DemandCounts() : found->second;
}

// True if no count decreased.
bool GoesOn(const std::map<std::string, DemandCounts>& before,
            const std::map<std::string, DemandCounts>& now) {
  return std::all_of(before.begin(), before.end(), [&](const auto& entry) {
    return In(now, entry.first).GoesOnFrom(entry.second);
  });
}

double Ratio(uint64_t part, uint64_t whole, double of_none) {
  return whole == 0 ? of_none
                    : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

void DemandWindow::Add(const std::string& daemon, uint64_t now_ns,
                       const std::map<std::string, DemandCounts>& counts) {
  Samples& samples = samples_[daemon];
  // Otherwise requests that came during the silence would count as the rate of
  // the last window.
  const bool was_silent =
      !samples.empty() && now_ns - samples.back().at_ns >= kStaleNs;
  if (was_silent ||
      (!samples.empty() && !GoesOn(samples.back().counts, counts))) {
    samples.clear();
  }
  samples.push_back({now_ns, counts});
  // Keeps one sample that is at least as old as the window, as its beginning.
  const auto window_ns = static_cast<uint64_t>(window_s_ * kNsPerSecond);
  while (samples.size() > 2 && now_ns - samples[1].at_ns >= window_ns) {
    samples.pop_front();
  }
  for (auto it = samples_.begin(); it != samples_.end();) {
    const bool stale = now_ns - it->second.back().at_ns >= kStaleNs;
    it = stale ? samples_.erase(it) : std::next(it);
  }
}

Demand DemandWindow::Of(const std::string& model) const {
  Demand best;
  for (const auto& [daemon, samples] : samples_) {
    if (samples.size() < 2) continue;
    const double seconds =
        static_cast<double>(samples.back().at_ns - samples.front().at_ns) /
        kNsPerSecond;
    const DemandCounts came = In(samples.back().counts, model)
                                  .Since(In(samples.front().counts, model));
    const double rate =
        seconds > 0 ? static_cast<double>(came.arrived) / seconds : 0;
    if (best.seconds > 0 && rate <= best.rate) continue;
    best.seconds = seconds;
    best.rate = rate;
    best.prompt_tokens = Ratio(came.prompt_tokens, came.arrived, 0);
    best.output_tokens = Ratio(came.output_tokens, came.answered, 0);
    best.attainment = Ratio(came.on_time, came.on_time + came.late, -1);
  }
  return best;
}

double DemandWindow::Reach() const {
  double reach = 0;
  for (const auto& [daemon, samples] : samples_) {
    reach = std::max(reach, static_cast<double>(samples.back().at_ns -
                                                samples.front().at_ns) /
                                kNsPerSecond);
  }
  return reach;
}

DemandTotals::DemandTotals(const std::vector<std::string>& models) {
  for (const std::string& model : models) totals_[model] = {};
}

void DemandTotals::Count(const std::string& peer, const wire::HelloT& hello) {
  const auto [last, is_first] = told_.try_emplace(peer);
  for (const auto& demand : hello.demand) {
    const auto total = totals_.find(demand->model);
    if (total == totals_.end()) continue;
    const wire::DemandCounts now = wire::CountsOf(*demand);
    // If the peer did not name a model before, there had been no requests for
    // the model.
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
