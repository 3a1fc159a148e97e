#include "tools/lab/workload/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fineserve::workload {
namespace {

constexpr size_t kDeciles = 10;

double AttainmentOf(const std::vector<Outcome>& outcomes, size_t begin,
                    size_t end) {
  const auto first = outcomes.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = outcomes.begin() + static_cast<std::ptrdiff_t>(end);
  if (first == last) return 0;
  const auto attained =
      std::count_if(first, last, [](const Outcome& o) { return o.attained(); });
  return static_cast<double>(attained) / static_cast<double>(end - begin);
}

std::vector<double> TtftsOfDone(const std::vector<Outcome>& outcomes) {
  std::vector<double> all;
  for (const Outcome& o : outcomes) {
    if (o.end == End::kDone) all.push_back(o.ttft_s());
  }
  return all;
}

std::vector<double> TpotsOfDone(const std::vector<Outcome>& outcomes) {
  std::vector<double> all;
  for (const Outcome& o : outcomes) {
    if (o.end == End::kDone && o.lengths.output > 1) all.push_back(o.tpot_s());
  }
  return all;
}

void Count(const Outcome& o, Summary* summary) {
  switch (o.end) {
    case End::kDone:
      ++summary->done;
      break;
    case End::kDropped:
      ++summary->dropped;
      break;
    case End::kFailed:
      ++summary->failed;
      break;
  }
}

}  // namespace

double Outcome::tpot_s() const {
  if (lengths.output < 2) return 0;
  return (end_s - first_token_s) / (lengths.output - 1);
}

bool Outcome::attained() const {
  if (end != End::kDone || ttft_s() > slo.ttft_s) return false;
  return slo.tpot_s == 0 || tpot_s() <= slo.tpot_s;
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto count = static_cast<double>(values.size());
  // Tolerates a q · count that exceeds a whole number by a rounding error.
  const double rank = std::ceil(q * count - 1e-9);
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(
                                        std::clamp(rank, 1.0, count) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

Percentiles PercentilesOf(const std::vector<double>& values) {
  return {Quantile(values, 0.5), Quantile(values, 0.9), Quantile(values, 0.95),
          Quantile(values, 0.99), Quantile(values, 0.999)};
}

double BusySeconds(std::vector<Outcome> outcomes) {
  std::sort(
      outcomes.begin(), outcomes.end(),
      [](const Outcome& a, const Outcome& b) { return a.begin_s < b.begin_s; });
  double busy = 0;
  double until = -std::numeric_limits<double>::infinity();
  for (const Outcome& o : outcomes) {
    busy += std::max(0.0, o.end_s - std::max(until, o.begin_s));
    until = std::max(until, o.end_s);
  }
  return busy;
}

Summary Summarize(const std::vector<Outcome>& outcomes, double seconds) {
  Summary s;
  s.requests = outcomes.size();
  double decoded = 0, attained = 0;
  std::vector<double> all_ttft;
  for (const Outcome& o : outcomes) {
    Count(o, &s);
    attained += o.attained() ? 1 : 0;
    const bool done = o.end == End::kDone;
    all_ttft.push_back(done ? o.ttft_s()
                            : std::numeric_limits<double>::infinity());
    if (done && o.lengths.output > 0) decoded += o.lengths.output - 1;
  }
  s.attainment = AttainmentOf(outcomes, 0, outcomes.size());
  if (seconds > 0) {
    s.requests_per_second = static_cast<double>(s.done) / seconds;
    s.goodput = attained / seconds;
    s.decode_tokens_per_second = decoded / seconds;
  }
  const double busy = BusySeconds(outcomes);
  if (busy > 0) s.idle_free_tokens_per_second = decoded / busy;
  s.ttft_s = PercentilesOf(TtftsOfDone(outcomes));
  s.tpot_s = PercentilesOf(TpotsOfDone(outcomes));
  s.all_ttft_s = PercentilesOf(all_ttft);
  return s;
}

std::vector<double> AttainmentByLengthDecile(std::vector<Outcome> outcomes) {
  if (outcomes.size() < kDeciles) return {};
  std::stable_sort(outcomes.begin(), outcomes.end(),
                   [](const Outcome& a, const Outcome& b) {
                     return a.lengths.input < b.lengths.input;
                   });
  std::vector<double> deciles;
  for (size_t d = 0; d < kDeciles; ++d) {
    deciles.push_back(AttainmentOf(outcomes, outcomes.size() * d / kDeciles,
                                   outcomes.size() * (d + 1) / kDeciles));
  }
  return deciles;
}

const std::vector<SloBasis>& SloBases() {
  static const auto* const bases =
      new std::vector<SloBasis>{{"fs", 0.95, 0},
                                {"fs13", 0.90, 0},
                                {"prism", 0.95, 0.95},
                                {"kunserve", 0.50, 0.50}};
  return *bases;
}

const SloBasis* FindSloBasis(const std::string& name) {
  for (const SloBasis& basis : SloBases()) {
    if (name == basis.name) return &basis;
  }
  return nullptr;
}

Slo SloFrom(const SloBasis& basis, const std::vector<Outcome>& baseline,
            double scale) {
  Slo slo;
  slo.ttft_s = scale * Quantile(TtftsOfDone(baseline), basis.ttft_quantile);
  if (basis.tpot_quantile > 0) {
    slo.tpot_s = scale * Quantile(TpotsOfDone(baseline), basis.tpot_quantile);
  }
  return slo;
}

}  // namespace fineserve::workload
