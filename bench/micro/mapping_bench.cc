// What does it cost to build a pool and to see it from an engine? For pools of
// 16 and 64 GiB and formats of 1, 64 and 160 planes: handles, driver calls and
// what those cost at latencies published for an A100 (kvcached: cuMemCreate
// 193 µs, cuMemSetAccess 36 µs), next to 2 MiB pages mapped on demand, where
// every page is a handle of its own; the time measured here on the emulated
// driver; and the memory of a real fineserved with that pool.

#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/micro/report.h"
#include "daemon/abi/client.h"
#include "daemon/abi/table_reader.h"
#include "daemon/backing/cuda_backing.h"
#include "daemon/clock/clock.h"

extern "C" char** environ;

namespace fineserve::bench {
namespace {

constexpr uint64_t kGiB = 1ull << 30;
constexpr uint64_t kOnDemandPageBytes = 2ull << 20;
constexpr double kCreateUs = 193;
constexpr double kSetAccessUs = 36;

[[noreturn]] void Die(const std::string& what) {
  fprintf(stderr, "bench_mapping: %s\n", what.c_str());
  exit(1);
}

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (!result.ok()) Die(std::string(result.status().message()));
  return *std::move(result);
}

void OkOrDie(const absl::Status& s) {
  if (!s.ok()) Die(std::string(s.message()));
}

// Counts the driver calls of this process, by the emulated driver's own count.
class CallCounter {
 public:
  explicit CallCounter(const std::string& library) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
    count_ = reinterpret_cast<uint64_t (*)(const char*)>(
        dlsym(handle, "emucuda_call_count"));
    if (count_ == nullptr) Die("no emucuda_call_count");
    Restart();
  }
  void Restart() {
    for (size_t i = 0; i < std::size(kNames); ++i)
      start_[i] = count_(kNames[i]);
  }
  uint64_t Of(const std::string& name) const {
    for (size_t i = 0; i < std::size(kNames); ++i) {
      if (name == kNames[i]) return count_(kNames[i]) - start_[i];
    }
    Die("uncounted " + name);
  }
  uint64_t All() const {
    uint64_t sum = 0;
    for (const char* name : kNames) sum += Of(name);
    return sum;
  }

 private:
  static constexpr const char* kNames[] = {
      "cuMemCreate",     "cuMemMap",
      "cuMemSetAccess",  "cuMemAddressReserve",
      "cuMemRelease",    "cuMemExportToShareableHandle",
      "cuMemUnmap",      "cuMemImportFromShareableHandle",
      "cuMemAddressFree"};
  uint64_t (*count_)(const char*);
  uint64_t start_[std::size(kNames)];
};

double Milliseconds(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

struct Site {
  std::string folder;    // runtime folder
  std::string programs;  // where fineserved lies
  backing::DeviceChoice choice;
};

// Maps the whole pool plane by plane, as an engine's view of it: slab s's
// p-th granule lies at index s of plane p.
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
  mappings.clear();  // before what they lie in
}

double PeakMiBOf(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return atof(line.c_str() + 6) / 1024;
  }
  Die("no VmHWM");
}

bool ServesAllZeroed(const std::string& runtime_folder) {
  for (const std::string& socket : abi::ListSockets(runtime_folder)) {
    const auto link = abi::ConnectObserver(socket);
    if (!link.ok()) continue;
    const auto table =
        OrDie(OrDie(abi::TableReader::Map(link->table.get())).Read());
    return std::all_of(table.slabs.begin(), table.slabs.end(), [](auto& s) {
      return s.word.state == abi::SlabState::kFree;
    });
  }
  return false;
}

// The peak resident memory of a real daemon with this pool, in MiB.
double DaemonPeakMiB(const Site& site, uint64_t pool_bytes, uint32_t planes) {
  const std::string program = site.programs + "/fineserved";
  const std::vector<std::string> words = {program,
                                          "--gpu",
                                          "emulated",
                                          "--log-level",
                                          "error",
                                          "--pool",
                                          absl::StrCat(pool_bytes),
                                          "--planes",
                                          absl::StrCat(planes)};
  std::vector<char*> argv;
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  pid_t pid;
  if (posix_spawn(&pid, program.c_str(), nullptr, nullptr, argv.data(),
                  environ) != 0) {
    Die("cannot start " + program);
  }
  for (int tries = 0; !ServesAllZeroed(site.folder); ++tries) {
    if (tries == 1000) Die("fineserved does not come up");
    usleep(20'000);
  }
  const double peak = PeakMiBOf(pid);
  kill(pid, SIGTERM);
  waitpid(pid, nullptr, 0);
  return peak;
}

struct Result {
  double handles, calls, published_ms, on_demand_ms, build_ms, view_ms, rss;
};

Result Measure(const Site& site, uint64_t pool_bytes, uint32_t planes) {
  const driver::Driver driver =
      OrDie(driver::Driver::Load(site.choice.DriverLibrary()));
  const backing::Device device =
      OrDie(backing::FindDevice(driver, site.choice));
  const slab::PoolGeometry g = OrDie(slab::ChooseGeometry(
      {pool_bytes, planes, 0, device.granularity, slab::kMaxHandles}));
  const RealClock clock;
  CallCounter calls(site.choice.DriverLibrary());
  Result r = {};
  const uint64_t start_ns = clock.NowNs();
  const auto pool = OrDie(backing::CudaBacking::Create(
      driver, device, g, g.slab_count, absl::UnavailableError("not needed")));
  r.build_ms = Milliseconds(clock.NowNs() - start_ns);
  const uint64_t view_ns = clock.NowNs();
  const double creates = static_cast<double>(calls.Of("cuMemCreate"));
  MapView(driver, device, pool.get());
  r.view_ms = Milliseconds(clock.NowNs() - view_ns);
  r.handles = g.granule_count();
  r.calls = static_cast<double>(calls.All());
  r.published_ms =
      (creates * kCreateUs +
       static_cast<double>(calls.Of("cuMemSetAccess")) * kSetAccessUs) /
      1000;
  r.on_demand_ms = static_cast<double>(pool_bytes) / kOnDemandPageBytes *
                   (kCreateUs + kSetAccessUs) / 1000;
  return r;
}

void Run(Report* report, const Site& site) {
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

std::string MakeFolder(std::string pattern) {
  if (mkdtemp(pattern.data()) == nullptr) Die("mkdtemp " + pattern);
  return pattern;
}

int Main(int argc, char** argv) {
  const std::string device = MakeFolder("/dev/shm/fineserve-bench-XXXXXX");
  const std::string runtime = MakeFolder("/tmp/fineserve-bench-XXXXXX");
  setenv("EMUCUDA_DIR", device.c_str(), 1);
  setenv("EMUCUDA_MEMORY", "80GiB", 1);
  setenv("FINESERVE_RUNTIME_DIR", runtime.c_str(), 1);
  const std::string programs =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  Report report("mapping");
  Run(&report, {runtime, programs, {"emulated", programs + "/../lib/emucuda"}});
  std::filesystem::remove_all(device);
  std::filesystem::remove_all(runtime);
  return Finish(report, argc, argv);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
