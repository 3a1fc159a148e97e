// Measures the cost of a hook: see kQuestion. The parent starts itself once per
// driver, with the shim preloaded; the child measures and prints "name value"
// lines.

#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/micro/figure_lines.h"
#include "bench/report/report.h"
#include "daemon/contract/abi/engine_scoreboard.h"
#include "kernels/driver/entry_points.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(What does an intercepted but uninteresting call cost?

The baseline is the same call through an address that no preload can change, in
the same process. On a driver that does nothing, what is left is the hook. The
emulated driver, where it was built, gives the ratio for a call that does
something.

A launch passes the gate in an engine that may be evicted; in any other it is one
jump, which is the baseline of the gate.)";

using driver::CUdeviceptr;
using MemAlloc = decltype(driver::EntryPoints::cuMemAlloc_v2);
using MemFree = decltype(driver::EntryPoints::cuMemFree_v2);
using EventQuery = decltype(driver::EntryPoints::cuEventQuery);
using Launch = decltype(driver::EntryPoints::cuLaunchKernel);
using EntryPoint = void* (*)(const char* symbol);

constexpr int kPairs = 31;
constexpr size_t kSmallBytes = 512;
constexpr CUdeviceptr kForeign = 0x7000'0000'0000;

// One way to call the driver.
struct Way {
  MemAlloc alloc;
  MemFree free;
  EventQuery query;
  Launch launch;
};

// Runs `calls` calls in the calling thread.
using Work = std::function<void(const Way& way, int calls)>;

void AllocSmall(const Way& way, int calls) {
  for (int i = 0; i < calls; ++i) {
    CUdeviceptr address = 0;
    benchmark::DoNotOptimize(way.alloc(&address, kSmallBytes));
    benchmark::DoNotOptimize(address);
  }
}

void FreeForeign(const Way& way, int calls) {
  for (int i = 0; i < calls; ++i) {
    benchmark::DoNotOptimize(way.free(kForeign));
  }
}

// Engines may call this many times a step. It is hooked for deferred frees
// only.
void QueryEvent(const Way& way, int calls) {
  for (int i = 0; i < calls; ++i) benchmark::DoNotOptimize(way.query(nullptr));
}

void LaunchKernel(const Way& way, int calls) {
  for (int i = 0; i < calls; ++i) {
    benchmark::DoNotOptimize(
        way.launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  }
}

// Frees each allocation at once, for a driver that really allocates.
void AllocThenFree(const Way& way, int calls) {
  for (int i = 0; i < calls; ++i) {
    CUdeviceptr address = 0;
    benchmark::DoNotOptimize(way.alloc(&address, kSmallBytes));
    benchmark::DoNotOptimize(way.free(address));
  }
}

double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  return taken.count();
}

// Returns the mean ns per call over the threads, which all start together.
double NsPerCall(const Work& work, const Way& way, int threads, int calls) {
  std::atomic<int> waiting{threads};
  std::vector<double> seconds(threads);
  std::vector<std::thread> others;
  const auto one = [&](int index) {
    work(way, 1000);  // registers the thread, warms what it touches
    waiting.fetch_sub(1);
    while (waiting.load() > 0) std::this_thread::yield();
    seconds[index] = Seconds([&] { work(way, calls); });
  };
  for (int i = 1; i < threads; ++i) others.emplace_back(one, i);
  one(0);
  for (std::thread& t : others) t.join();
  double sum = 0;
  for (double s : seconds) sum += s;
  return sum / threads / calls * 1e9;
}

// Measures pairs of direct and hooked runs in alternating order, so that a slow
// phase of the machine affects both.
void Measure(const char* key, const Work& work, const Way& direct,
             const Way& hooked, int threads, int calls) {
  std::vector<double> d, h, ratio;
  for (int i = 0; i < kPairs; ++i) {
    const bool direct_first = i % 2 == 0;
    const double a =
        NsPerCall(work, direct_first ? direct : hooked, threads, calls);
    const double b =
        NsPerCall(work, direct_first ? hooked : direct, threads, calls);
    d.push_back(direct_first ? a : b);
    h.push_back(direct_first ? b : a);
    ratio.push_back(h.back() / d.back());
  }
  printf("%s.direct %.4f\n%s.hooked %.4f\n%s.ratio %.4f\n", key, Median(d), key,
         Median(h), key, Median(ratio));
}

// Finds this process's engine scoreboard under /proc/self/fd, as fsctl would.
const abi::ScoreboardHeader* OwnScoreboard() {
  for (int fd = 0; fd < 256; ++fd) {
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    char target[PATH_MAX] = "";
    if (readlink(link.c_str(), target, sizeof(target) - 1) < 0) continue;
    if (strstr(target, abi::kScoreboardMemfdName) == nullptr) continue;
    void* scoreboard =
        mmap(nullptr, abi::kScoreboardBytes, PROT_READ, MAP_SHARED, fd, 0);
    if (scoreboard != MAP_FAILED)
      return static_cast<abi::ScoreboardHeader*>(scoreboard);
  }
  return nullptr;
}

// Makes one large allocation, so that the shim creates its scoreboard. Discards
// the shim's warning that it finds no daemon.
const abi::ScoreboardHeader* MakeScoreboard(const Way& hooked) {
  fflush(stdout);
  const int kept = dup(STDERR_FILENO);
  const int silent = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(silent, STDERR_FILENO);
  CUdeviceptr large = 0;
  if (hooked.alloc(&large, size_t{4} << 20) == driver::CUDA_SUCCESS) {
    hooked.free(large);
  }
  dup2(kept, STDERR_FILENO);
  close(kept);
  close(silent);
  return OwnScoreboard();
}

// Initialises the driver and makes a context current.
bool Begin(void* library) {
  const auto find = [library](const char* symbol) {
    return dlsym(library, symbol);
  };
  const auto init =
      reinterpret_cast<decltype(driver::EntryPoints::cuInit)>(find("cuInit"));
  const auto retain =
      reinterpret_cast<decltype(driver::EntryPoints::cuDevicePrimaryCtxRetain)>(
          find("cuDevicePrimaryCtxRetain"));
  const auto set =
      reinterpret_cast<decltype(driver::EntryPoints::cuCtxSetCurrent)>(
          find("cuCtxSetCurrent"));
  driver::CUcontext context = nullptr;
  return init(0) == driver::CUDA_SUCCESS &&
         retain(&context, 0) == driver::CUDA_SUCCESS &&
         set(context) == driver::CUDA_SUCCESS;
}

int Complain(const char* what) {
  fprintf(stderr, "intercept: %s\n", what);
  return 1;
}

void MeasureNull(const Way& direct, const Way& hooked) {
  constexpr int kCalls = 500'000;
  Measure("alloc.1", AllocSmall, direct, hooked, 1, kCalls);
  Measure("alloc.2", AllocSmall, direct, hooked, 2, kCalls);
  Measure("free.1", FreeForeign, direct, hooked, 1, kCalls);
  Measure("free.2", FreeForeign, direct, hooked, 2, kCalls);
  Measure("query.1", QueryEvent, direct, hooked, 1, kCalls);
  Measure("launch.1", LaunchKernel, direct, hooked, 1, kCalls);
}

int RunChild(const std::string& driver_name) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return Complain(dlerror());
  const auto entry = reinterpret_cast<EntryPoint>(
      dlsym(library, (driver_name + "_entry_point").c_str()));
  if (entry == nullptr) return Complain("another libcuda.so.1 was found");
  const Way direct = {reinterpret_cast<MemAlloc>(entry("cuMemAlloc_v2")),
                      reinterpret_cast<MemFree>(entry("cuMemFree_v2")),
                      reinterpret_cast<EventQuery>(entry("cuEventQuery")),
                      reinterpret_cast<Launch>(entry("cuLaunchKernel"))};
  const Way hooked = {
      reinterpret_cast<MemAlloc>(dlsym(library, "cuMemAlloc_v2")),
      reinterpret_cast<MemFree>(dlsym(library, "cuMemFree_v2")),
      reinterpret_cast<EventQuery>(dlsym(library, "cuEventQuery")),
      // The symbol that a program linked to the driver would get.
      reinterpret_cast<Launch>(dlsym(RTLD_DEFAULT, "cuLaunchKernel"))};
  if (direct.alloc == hooked.alloc) return Complain("the shim is not loaded");
  if (!Begin(library)) return Complain("the driver cannot be initialised");
  const abi::ScoreboardHeader* scoreboard = MakeScoreboard(hooked);
  if (scoreboard == nullptr)
    return Complain("the shim has no engine scoreboard");
  const uint64_t stacks_before = scoreboard->stacks_captured;
  if (driver_name == "nulldriver") {
    MeasureNull(direct, hooked);
  } else {
    Measure("pair.1", AllocThenFree, direct, hooked, 1, 2'000);
  }
  printf("stacks %llu\n", static_cast<unsigned long long>(
                              scoreboard->stacks_captured - stacks_before));
  return 0;
}

// Starts this program as a child on one driver and reads its lines.
FigureLines Ask(const std::string& driver_name, const std::string& folder,
                const std::string& evict = "never") {
  const std::string lib = process::ProgramFolder() + "/../lib";
  return FigureProgram(
             {.words = {"/proc/self/exe", "--child", driver_name},
              // The runtime folder does not exist, so the shim finds no daemon.
              .environment = {{"LD_PRELOAD", lib + "/libfineserve_shim.so"},
                              {"LD_LIBRARY_PATH", lib + "/" + folder},
                              {"FINESERVE_EVICT", evict},
                              {"FINESERVE_RUNTIME_DIR", "/nonexistent"}}})
      .Finish();
}

struct Row {
  const char* key;
  const char* text;
};

void Add(const FigureLines& v, const Row& row, Report* report) {
  const std::string key = row.key, text = row.text;
  report->Figure("direct " + text + " (ns/call)", v.at(key + ".direct"));
  report->Figure("hooked " + text + " (ns/call)", v.at(key + ".hooked"));
  report->Figure("hooked / direct " + text + " (ratio)", v.at(key + ".ratio"));
}

constexpr std::array<Row, 5> kNullRows = {{
    {"alloc.1", "cuMemAlloc of 512 B, null driver, 1 thread"},
    {"alloc.2", "cuMemAlloc of 512 B, null driver, 2 threads"},
    {"free.1", "cuMemFree of a foreign address, null driver, 1 thread"},
    {"free.2", "cuMemFree of a foreign address, null driver, 2 threads"},
    {"query.1", "cuEventQuery, null driver, 1 thread"},
}};

int RunParent(int argc, char** argv) {
  const Arguments arguments =
      Arguments::ReadOrExit(argc, argv, {"intercept", kQuestion});
  const FigureLines null_driver = Ask("nulldriver", "nulldriver");
  Report report("intercept");
  for (const Row& row : kNullRows) Add(null_driver, row, &report);
  for (const Row& row : kNullRows) {
    report.Claim(std::string("hooked / direct ") + row.text,
                 null_driver.at(std::string(row.key) + ".ratio"), 2,
                 Compare::kAtMost);
  }
  const FigureLines evictable = Ask("nulldriver", "nulldriver", "auto");
  constexpr Row kBare = {"launch.1", "cuLaunchKernel, never evicted"};
  constexpr Row kGated = {"launch.1", "cuLaunchKernel, through the open gate"};
  Add(null_driver, kBare, &report);
  Add(evictable, kGated, &report);
  const auto added = [](const FigureLines& v) {
    return v.at("launch.1.hooked") - v.at("launch.1.direct");
  };
  report.Claim("the gate over the bare hook (ns/launch)",
               added(evictable) - added(null_driver), 0.5, Compare::kAtMost);
  report.Claim("stacks captured by small allocations", null_driver.at("stacks"),
               0, Compare::kAtMost);
  const std::string emulated =
      process::ProgramFolder() + "/../lib/emucuda/libcuda.so.1";
  if (access(emulated.c_str(), R_OK) == 0) {
    Add(Ask("emucuda", "emucuda"),
        {"pair.1", "cuMemAlloc + cuMemFree, emulated driver, 1 thread"},
        &report);
  }
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--child") == 0) {
    return fineserve::bench::RunChild(argv[2]);
  }
  return fineserve::bench::RunParent(argc, argv);
}
