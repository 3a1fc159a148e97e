#include "tools/lab/workload/arrivals.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fineserve::workload {
namespace {

// std::uniform_real_distribution and similar classes differ between standard
// libraries, but a seed must give the same trace everywhere.
double Uniform(std::mt19937_64* random) {  // [0, 1)
  return static_cast<double>((*random)() >> 11) * 0x1p-53;
}

size_t Below(std::mt19937_64* random, size_t n) {
  return static_cast<size_t>(Uniform(random) * static_cast<double>(n));
}

void SortByTime(Trace* trace) {
  std::stable_sort(
      trace->arrivals.begin(), trace->arrivals.end(),
      [](const Arrival& a, const Arrival& b) { return a.at_s < b.at_s; });
}

}  // namespace

Trace Poisson(const std::vector<Stream>& streams, double seconds,
              const std::vector<Lengths>& lengths, uint64_t seed) {
  Trace trace;
  std::mt19937_64 random(seed);
  for (size_t m = 0; m < streams.size(); ++m) {
    trace.models.push_back(streams[m].model);
    if (streams[m].per_second <= 0) continue;
    double at_s = 0;
    while (true) {
      at_s -= std::log1p(-Uniform(&random)) / streams[m].per_second;
      if (at_s >= seconds) break;
      trace.arrivals.push_back({at_s, static_cast<uint32_t>(m),
                                lengths[Below(&random, lengths.size())]});
    }
  }
  SortByTime(&trace);
  return trace;
}

Trace Scale(const Trace& trace, double factor, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<Lengths>> of_model(trace.models.size());
  for (const Arrival& a : trace.arrivals) {
    of_model[a.model].push_back(a.lengths);
  }
  Trace scaled;
  scaled.models = trace.models;
  for (const Arrival& a : trace.arrivals) {
    const double rest = factor - std::floor(factor);
    const int copies =
        static_cast<int>(factor) + (Uniform(&random) < rest ? 1 : 0);
    if (copies > 0) scaled.arrivals.push_back(a);
    for (int i = 1; i < copies; ++i) {
      const auto& lengths = of_model[a.model];
      scaled.arrivals.push_back(
          {std::min(std::floor(a.at_s) + Uniform(&random), trace.seconds()),
           a.model, lengths[Below(&random, lengths.size())]});
    }
  }
  SortByTime(&scaled);
  return scaled;
}

Trace Beside(const Trace& a, const Trace& b) {
  Trace both = a;
  both.models.insert(both.models.end(), b.models.begin(), b.models.end());
  for (Arrival arrival : b.arrivals) {
    arrival.model += static_cast<uint32_t>(a.models.size());
    both.arrivals.push_back(arrival);
  }
  SortByTime(&both);
  return both;
}

Trace FirstSeconds(const Trace& trace, double seconds) {
  return Window(trace, 0, seconds);
}

Trace Window(const Trace& trace, double from_s, double seconds) {
  Trace window;
  window.models = trace.models;
  for (Arrival a : trace.arrivals) {
    a.at_s -= from_s;
    if (a.at_s >= 0 && a.at_s < seconds) window.arrivals.push_back(a);
  }
  return window;
}

Trace Faster(const Trace& trace, double speed) {
  Trace faster = trace;
  for (Arrival& a : faster.arrivals) a.at_s /= speed;
  return faster;
}

absl::StatusOr<Trace> Rename(const Trace& trace,
                             const std::vector<Renamed>& names) {
  Trace renamed;
  std::map<uint32_t, uint32_t> model;  // of trace → of renamed
  for (const Renamed& n : names) {
    const auto from =
        std::find(trace.models.begin(), trace.models.end(), n.from);
    if (from == trace.models.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the trace has no model \"", n.from, "\""));
    }
    const auto to =
        std::find(renamed.models.begin(), renamed.models.end(), n.to);
    model[static_cast<uint32_t>(from - trace.models.begin())] =
        static_cast<uint32_t>(to - renamed.models.begin());
    if (to == renamed.models.end()) renamed.models.push_back(n.to);
  }
  for (Arrival a : trace.arrivals) {
    const auto to = model.find(a.model);
    if (to == model.end()) continue;
    a.model = to->second;
    renamed.arrivals.push_back(a);
  }
  return renamed;
}

}  // namespace fineserve::workload
