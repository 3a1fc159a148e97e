#include "tools/lab/workload/rates.h"

#include <stdio.h>
#include <zlib.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fineserve::workload {

absl::StatusOr<RateShapes> ReadRateShapes(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(
      gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, " cannot be read"));
  }
  RateShapes shapes;
  char line[256];
  gzgets(file.get(), line, sizeof(line));  // the header
  while (gzgets(file.get(), line, sizeof(line)) != nullptr) {
    char model[64];
    double rate = 0;
    if (sscanf(line, "%*f,%63[^,],%lf", model, &rate) != 2) {
      return absl::DataLossError(absl::StrCat(path, ": bad row ", line));
    }
    shapes[model].push_back(rate);
  }
  if (shapes.empty()) {
    return absl::DataLossError(absl::StrCat(path, " has no rates"));
  }
  for (auto& [model, shape] : shapes) {
    double mean = 0;
    for (const double rate : shape) {
      mean += rate / static_cast<double>(shape.size());
    }
    for (double& rate : shape) rate /= mean;
  }
  return shapes;
}

Trace PoissonBySlots(const Slots& slots, double seconds,
                     const std::vector<Lengths>& lengths, uint64_t seed) {
  Trace trace;
  for (size_t slot = 0; slot < slots.streams.size(); ++slot) {
    const double from = static_cast<double>(slot) * slots.seconds;
    if (from >= seconds) break;
    Trace part =
        Poisson(slots.streams[slot], std::min(slots.seconds, seconds - from),
                lengths, seed + slot);
    for (Arrival& a : part.arrivals) {
      a.at_s += from;
      trace.arrivals.push_back(a);
    }
    trace.models = std::move(part.models);
  }
  return trace;
}

}  // namespace fineserve::workload
