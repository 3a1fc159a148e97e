#include "bench/serving/clients.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/lab/loadgen/run.h"

namespace fineserve::bench {
namespace {

constexpr std::chrono::seconds kPatience(60);
// A probe that started too early may wait for an engine that will never come,
// so its time is limited.
constexpr Sending kProbe = {{60, 0}, /*timeout_s=*/5};
constexpr unsigned kPauseUs = 100'000;

}  // namespace

RunOutcome Send(uint16_t port, const workload::Trace& trace,
                const Sending& sending) {
  loadgen::Options options;
  options.target = {"127.0.0.1", absl::StrCat(port), "/v1/completions", ""};
  options.progress = sending.progress;
  options.send_slo = true;
  options.slo = sending.slo;
  options.timeout_s = sending.timeout_s;
  const HostCpu before = HostCpu::Now();
  loadgen::RunResult result = loadgen::Run(options, trace);
  return {std::move(result.outcomes), result.seconds,
          BusyPart(before, HostCpu::Now()), result.interrupted};
}

bool AwaitAnswers(uint16_t port, const std::vector<std::string>& models) {
  workload::Trace probe;
  probe.models = models;
  for (uint32_t model = 0; model < models.size(); ++model) {
    probe.arrivals.push_back({0, model, {1, 1}});
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    const RunOutcome r = Send(port, probe, kProbe);
    if (r.interrupted) return false;
    if (std::all_of(r.outcomes.begin(), r.outcomes.end(), [](const auto& o) {
          return o.end == workload::End::kDone;
        })) {
      return true;
    }
    usleep(kPauseUs);
  }
  return false;
}

HostCpu HostCpu::Now() {
  std::ifstream in("/proc/stat");
  std::string name;
  in >> name;
  HostCpu t;
  double value;
  for (int field = 0; field < 8 && in >> value; ++field) {
    t.all += value;
    if (field != 3 && field != 4) t.busy += value;  // idle, iowait
  }
  return t;
}

double BusyPart(const HostCpu& before, const HostCpu& after) {
  return (after.busy - before.busy) / std::max(1.0, after.all - before.all);
}

}  // namespace fineserve::bench
