// Measures the time until an engine is active: see kQuestion.

#include <string>

#include "absl/strings/str_cat.h"
#include "bench/micro/gpu_site.h"
#include "bench/micro/published_latency.h"
#include "bench/report/report.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(How long does an engine take from the registration of its KV to being active?

Real engines under the preload, a real fineserved, the emulated device. The
engine's own fill of its tensors, which is the same without FineServe, is left
out. Pools of 16 and 64 GiB; one plane (block-outermost layouts) and 64 planes;
all slabs mapped at the start (view) or only leased ones (guarded).

Costs are at published latencies (kvcached, A100): cuMemSetAccess 36 us,
cuMemUnmap 26 us. The import of a descriptor counts as a cuMemCreate (193 us),
its upper bound. Maps, reservations and releases have no published latency and
are only counted.)";

constexpr uint64_t kGiB = 1ull << 30;
constexpr DriverLatency kLatency;

void Measure(GpuSite* site, Report* report, uint64_t gib, uint32_t planes,
             const std::string& mode) {
  const auto figures =
      site->RunEngines({{"--planes", absl::StrCat(planes), "--mode", mode}})[0];
  const std::string name = absl::StrCat(
      gib, " GiB, ", planes, planes == 1 ? " plane, " : " planes, ", mode);
  report->Figure(name + ": registration to active (ms)",
                 figures.at("start_ms"));
  report->Figure(name + ": of it tensors on scratch (ms)",
                 figures.at("tensors_ms"));
  report->Figure(name + ": of it activation (ms)", figures.at("activate_ms"));
  const double imports = figures.at("cuMemImportFromShareableHandle");
  report->Figure(name + ": handles imported", imports);
  report->Figure(name + ": driver calls",
                 figures.at("driver_calls_to_activate"));
  report->Figure(name + ": cost at published latencies (ms)",
                 ((figures.at("cuMemCreate") + imports) * kLatency.create_ns +
                  figures.at("cuMemSetAccess") * kLatency.set_access_ns +
                  figures.at("cuMemUnmap") * kLatency.unmap_ns) /
                     1e6);
}

int Main(int argc, char** argv) {
  const Arguments arguments =
      Arguments::ReadOrExit(argc, argv, {"start", kQuestion});
  GpuSite site;
  Report report("start");
  for (const uint64_t gib : {16, 64}) {
    for (const uint32_t planes : {1u, 64u}) {
      site.StartDaemon({"--pool", absl::StrCat(gib * kGiB), "--planes",
                        absl::StrCat(planes)});
      for (const char* mode : {"view", "guarded"}) {
        Measure(&site, &report, gib, planes, mode);
      }
      site.StopDaemon();
    }
  }
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
