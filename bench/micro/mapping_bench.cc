// The cost of building and mapping a pool: see kQuestion.

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/micro/call_counter.h"
#include "bench/micro/gpu_site.h"
#include "bench/micro/published_latency.h"
#include "bench/report/report.h"
#include "daemon/base/clock/clock.h"
#include "daemon/fineserved/backing/cuda_backing.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(What does it cost to build a pool and to see it from an engine?

For pools of 16 and 64 GiB and formats of 1, 64 and 160 planes: handles, driver
calls, and their cost at latencies published for an A100 (kvcached: cuMemCreate
193 us, cuMemSetAccess 36 us), compared with 2 MiB pages mapped on demand, each
with its own handle. The bench also measures the time on the emulated driver and
the memory of a real fineserved with that pool.)";

constexpr uint64_t kGiB = 1ull << 30;
constexpr uint64_t kOnDemandPageBytes = 2ull << 20;
constexpr DriverLatency kLatency;

double Milliseconds(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

// Maps the whole pool plane by plane, as an engine's view of it does: slab s's
// p-th granule is at index s of plane p.
void MapView(const driver::Driver& driver, const backing::Device& device,
             backing::CudaBacking* pool) {
  const slab::PoolGeometry& g = pool->geometry();
  std::vector<driver::Reservation> planes;
  std::vector<driver::Mapping> mappings;
  for (uint32_t p = 0; p < g.granules_per_slab; ++p) {
    planes.push_back(OrDie(
        driver::Reservation::Create(driver, g.slab_count * g.granule_bytes)));
    for (uint32_t s = 0; s < g.slab_count; ++s) {
      const driver::Descriptor exported =
          OrDie(pool->Export(s * g.granules_per_slab + p));
      const driver::Granule granule = OrDie(
          driver::Granule::Import(driver, exported.get(), g.granule_bytes));
      mappings.push_back(OrDie(driver::Mapping::Create(
          driver, planes.back().address() + s * g.granule_bytes, granule)));
    }
    OkOrDie(driver::AllowReadWrite(driver, device.ordinal,
                                   planes.back().address(),
                                   planes.back().bytes()));
  }
  mappings.clear();  // before the reservations that contain them
}

double PeakMiBOf(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return atof(line.c_str() + 6) / 1024;
  }
  Die("no VmHWM");
}

// Returns the peak resident memory of a real daemon with this pool, in MiB.
double DaemonPeakMiB(GpuSite* site, uint64_t pool_bytes, uint32_t planes) {
  site->StartDaemon(
      {"--pool", absl::StrCat(pool_bytes), "--planes", absl::StrCat(planes)});
  const double peak = PeakMiBOf(site->daemon_pid());
  site->StopDaemon();
  return peak;
}

struct Result {
  double handles, calls, published_ms, on_demand_ms, build_ms, view_ms, rss;
};

Result Measure(GpuSite* site, uint64_t pool_bytes, uint32_t planes) {
  const backing::DeviceChoice choice = {"emulated", site->EmulatedFolder()};
  const driver::Driver driver =
      OrDie(driver::Driver::Load(choice.DriverLibrary()));
  const backing::Device device = OrDie(backing::FindDevice(driver, choice));
  const slab::PoolGeometry g = OrDie(slab::ChooseGeometry(
      {pool_bytes, planes, 0, device.granularity, slab::kMaxHandles}));
  const RealClock clock;
  const CallCounter calls(choice.DriverLibrary());
  Result r = {};
  const uint64_t start_ns = clock.NowNs();
  const auto pool = OrDie(backing::CudaBacking::Create(
      driver, device, g, slab::FirstSlabs(g.slab_count),
      absl::UnavailableError("not needed")));
  r.build_ms = Milliseconds(clock.NowNs() - start_ns);
  const uint64_t view_ns = clock.NowNs();
  const double creates = static_cast<double>(calls.Of("cuMemCreate"));
  MapView(driver, device, pool.get());
  r.view_ms = Milliseconds(clock.NowNs() - view_ns);
  r.handles = g.granule_count();
  r.calls = static_cast<double>(calls.All());
  r.published_ms = (creates * kLatency.create_ns +
                    static_cast<double>(calls.Of("cuMemSetAccess")) *
                        kLatency.set_access_ns) /
                   1e6;
  r.on_demand_ms =
      static_cast<double>(pool_bytes) / kOnDemandPageBytes *
      static_cast<double>(kLatency.create_ns + kLatency.set_access_ns) / 1e6;
  return r;
}

void Run(Report* report, GpuSite* site) {
  double most_handles = 0;
  double most_rss = 0;
  for (const uint64_t gib : {16, 64}) {
    for (const uint32_t planes : {1u, 64u, 160u}) {
      Result r = Measure(site, gib * kGiB, planes);
      r.rss = DaemonPeakMiB(site, gib * kGiB, planes);
      const std::string name = absl::StrCat(gib, " GiB, ", planes, " planes");
      report->Figure(name + ": handles", r.handles);
      report->Figure(name + ": driver calls, pool and one view", r.calls);
      report->Figure(name + ": cost at published latencies (ms)",
                     r.published_ms);
      report->Figure(name + ": the same as 2 MiB pages on demand (ms)",
                     r.on_demand_ms);
      report->Figure(name + ": pool built here (ms)", r.build_ms);
      report->Figure(name + ": view mapped and unmapped here (ms)", r.view_ms);
      report->Figure(name + ": daemon peak resident memory (MiB)", r.rss);
      most_handles = std::max(most_handles, r.handles);
      most_rss = std::max(most_rss, r.rss);
    }
  }
  report->Claim("handles of any pool", most_handles, slab::kMaxHandles,
                Compare::kAtMost);
  report->Claim("daemon peak resident memory (MiB)", most_rss, 64,
                Compare::kAtMost);
}

int Main(int argc, char** argv) {
  const Arguments arguments =
      Arguments::ReadOrExit(argc, argv, {"mapping", kQuestion});
  Report report("mapping");
  {
    GpuSite site;
    Run(&report, &site);
  }
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
