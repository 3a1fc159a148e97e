#include "bench/compare/loads.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tools/lab/workload/arrivals.h"

namespace fineserve::bench {
namespace {

using Fleet = ComparedFleet;

// Returns the KV that a request books, times the duration.
double ByteSeconds(const workload::Arrival& a) {
  const uint32_t tokens = a.lengths.input + a.lengths.output;
  const uint32_t blocks =
      (tokens + Fleet::kBlockTokens - 1) / Fleet::kBlockTokens;
  return 1024.0 * kComparedModels[a.model].token_kib * Fleet::kBlockTokens *
         blocks * Fleet::AnswerSeconds(a.lengths);
}

}  // namespace

workload::Lengths Cut(workload::Lengths lengths) {
  return {std::min(lengths.input, Fleet::kMostInput),
          std::min(lengths.output, Fleet::kMostOutput)};
}

double LoadOf(const workload::Trace& trace, double seconds,
              const FleetShape& shape) {
  const double pool_bytes =
      1024.0 * 1024 * Fleet::kPoolMib * static_cast<double>(shape.gpus);
  double booked = 0;
  for (const workload::Arrival& a : trace.arrivals) booked += ByteSeconds(a);
  return booked / (seconds * pool_bytes);
}

workload::Trace Steady(const std::vector<workload::Lengths>& lengths,
                       double load, double seconds, uint64_t seed,
                       const FleetShape& shape) {
  // A trace with one request a second for each model.
  workload::Trace once;
  std::vector<workload::Lengths> cut;
  for (const workload::Lengths& l : lengths) {
    cut.push_back(Cut(l));
    for (uint32_t m = 0; m < shape.models; ++m) {
      once.arrivals.push_back({0, m, cut.back()});
    }
  }
  const double rate =
      load / LoadOf(once, static_cast<double>(lengths.size()), shape);
  std::vector<workload::Stream> streams;
  for (const std::string& model : Fleet::Models(shape)) {
    streams.push_back({model, rate});
  }
  return workload::Poisson(streams, seconds, cut, seed);
}

workload::Trace Bursty(const workload::Trace& real, double load, double seconds,
                       uint64_t seed, const FleetShape& shape) {
  workload::Trace dealt;
  dealt.models = Fleet::Models(shape);
  for (uint32_t m = 0; m < shape.models; ++m) {
    const double begin = real.seconds() * m / static_cast<double>(shape.models);
    for (const workload::Arrival& a : real.arrivals) {
      if (a.at_s < begin || a.at_s >= begin + seconds) continue;
      dealt.arrivals.push_back({a.at_s - begin, m, Cut(a.lengths)});
    }
  }
  std::stable_sort(
      dealt.arrivals.begin(), dealt.arrivals.end(),
      [](const auto& a, const auto& b) { return a.at_s < b.at_s; });
  return workload::Scale(dealt, load / LoadOf(dealt, seconds, shape), seed);
}

workload::Trace Busiest(const workload::Trace& real, double from_s, double load,
                        double seconds, uint64_t seed,
                        const FleetShape& shape) {
  const workload::Trace window = workload::Window(real, from_s, seconds);
  std::vector<std::pair<size_t, uint32_t>> asked;  // how often, model
  for (uint32_t m = 0; m < window.models.size(); ++m) asked.push_back({0, m});
  for (const workload::Arrival& a : window.arrivals) ++asked[a.model].first;
  std::sort(asked.rbegin(), asked.rend());
  workload::Trace busiest;
  busiest.models = Fleet::Models(shape);
  std::vector<uint32_t> places(window.models.size(), UINT32_MAX);
  for (uint32_t p = 0; p < std::min(asked.size(), shape.models); ++p) {
    places[asked[p].second] = p;
  }
  for (const workload::Arrival& a : window.arrivals) {
    const uint32_t place = places[a.model];
    if (place == UINT32_MAX) continue;
    busiest.arrivals.push_back({a.at_s, place, Cut(a.lengths)});
  }
  return workload::Scale(busiest, load / LoadOf(busiest, seconds, shape), seed);
}

}  // namespace fineserve::bench
