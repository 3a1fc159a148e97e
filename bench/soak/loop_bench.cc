// Measures whether a slow driver holds up fineserved: see kQuestion.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/micro/run_first.h"
#include "bench/report/report.h"
#include "bench/soak/failures.h"
#include "bench/soak/soak_site.h"
#include "daemon/contract/abi/observer_link.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(How long does fineserved keep one waiting whose question needs no device?

Each call of the driver takes it 20 ms and each of NVML 50 ms, as when contexts
are torn down. Engines start, register views (each exports every
granule of the pool), lease and return slabs, and are killed; the pool grows and
shrinks. At random moments a client connects and asks for the slab table, as
fsctl does: how long until it has it? The same is done with a driver that takes
no time, for comparison: what both have in common is this machine's doing.

The daemon says itself how long one event has kept its thread at most
(loop_longest_turn_us in the slab table). Its loop and the client run before all
other processes of the machine (SCHED_FIFO) where that is permitted, so that
neither waits for a processor.)";

using Clock = std::chrono::steady_clock;

constexpr size_t kSeats = 6;
constexpr uint64_t kLongestPauseUs = 10'000;  // between two questions
constexpr double kMostTurnMs = 5;

About TheBench() {
  return {
      "loop",
      kQuestion,
      {{"--questions", "N", "3000", "asked under each of the two drivers"}}};
}

// Runs engines that come, lease and go, and changes the size of the pool, until
// it is stopped.
class Load {
 public:
  Load(SoakSite* site, const std::string& config)
      : site_(*site), config_(config) {}

  // One thing happens.
  void Step() {
    usleep(static_cast<useconds_t>(random_() % 100'000));
    Seat& seat = seats_[random_() % kSeats];
    if (random_() % 12 == 0) return Resize();
    if (seat.engine != nullptr && seat.engine->alive()) {
      seat.engine->Signal(SIGKILL);
      ++kills_;
    }
    seat.engine = Start();
  }
  uint64_t kills() const { return kills_; }
  uint64_t resizes() const { return resizes_; }
  uint64_t views() const { return views_; }

  static void WriteConfig(const std::string& path, int mib) {
    std::ofstream(path) << "[pool]\nsize = \"" << mib
                        << "MiB\"\nmax = \"256MiB\"\nslab = \"4MiB\"\n";
  }

 private:
  struct Seat {
    std::unique_ptr<Process> engine;
  };

  void Resize() {
    WriteConfig(config_, resizes_++ % 2 == 0 ? 256 : 160);
    site_.daemon().Signal(SIGHUP);
  }

  std::unique_ptr<Process> Start() {
    const std::string name = absl::StrCat("engine-", ++started_);
    if (random_() % 3 == 0) {
      return site_.StartEngine(
          name,
          {"stock_engine", "--kv", "4MiB", "--layers", "2", "--weights", "1MiB",
           "--workspace", "1MiB", "--rounds", "20"},
          {{"FINESERVE_KV_SIZES", "4MiB"}});
    }
    ++views_;
    return site_.StartEngine(
        name, {"view_engine", "--random", "3600", "--seed",
               absl::StrCat(started_), "--watermark", "100", "--most", "800"});
  }

  SoakSite& site_;
  const std::string config_;
  std::mt19937_64 random_{1};
  Seat seats_[kSeats];
  uint64_t started_ = 0, kills_ = 0, resizes_ = 0, views_ = 0;
};

struct Outcome {
  bool runs_first = false;
  std::vector<double> answers_ms;  // sorted
  double longest_turn_ms = 0;
  uint64_t kills = 0, views = 0, resizes = 0;
  uint64_t creates = 0, exports = 0, zeroed = 0;  // by the daemon
};

// Asks as fsctl does, `count` times.
std::vector<double> Ask(const std::string& socket, uint64_t count) {
  std::mt19937_64 random(2);
  std::vector<double> answers_ms;
  while (answers_ms.size() < count) {
    usleep(static_cast<useconds_t>(random() % kLongestPauseUs));
    const auto start = Clock::now();
    const auto link = abi::ConnectObserver(socket, absl::Seconds(60));
    if (!link.ok()) Die(std::string(link.status().message()));
    answers_ms.push_back(
        std::chrono::duration<double, std::milli>(Clock::now() - start)
            .count());
  }
  std::sort(answers_ms.begin(), answers_ms.end());
  return answers_ms;
}

// Counts the lines of the emulated driver's log about calls of this function.
uint64_t CallsOf(const std::string& function, const std::string& log) {
  std::ifstream file(log);
  uint64_t calls = 0;
  for (std::string line; std::getline(file, line);) {
    calls += line.find(" " + function + "(") != std::string::npos ? 1 : 0;
  }
  return calls;
}

Outcome Measure(process::Environment driver, uint64_t questions) {
  Failures failures("scripts/bench loop");
  SoakSite site("loop", &failures);
  const std::string config = site.folder() + "/fineserved.toml";
  Load::WriteConfig(config, 160);
  const std::string log = site.folder() + "/calls";
  driver["EMUCUDA_LOG"] = log;
  if (!site.StartDaemon({"--config", config}, driver)) {
    Die("fineserved does not start");
  }
  Outcome outcome;
  // Only the daemon's first thread, which runs the loop, runs before others.
  outcome.runs_first = RunThreadFirst(site.daemon().pid());
  Load load(&site, config);
  std::atomic<bool> asking = true;
  std::thread asker([&] {
    RunThreadFirst(0);
    outcome.answers_ms = Ask(site.SocketPath(), questions);
    asking = false;
  });
  while (asking) load.Step();
  asker.join();
  const auto table = site.Table();
  if (!table) Die("fineserved has gone");
  outcome.longest_turn_ms =
      1e-3 * static_cast<double>(table->counters.loop_longest_turn_us);
  outcome.kills = load.kills();
  outcome.views = load.views();
  outcome.resizes = load.resizes();
  outcome.zeroed = table->counters.slabs_zeroed;
  outcome.creates = CallsOf("cuMemCreate", log);
  outcome.exports = CallsOf("cuMemExportToShareableHandle", log);
  return outcome;
}

void Tell(const std::string& driver, const Outcome& outcome, Report* report) {
  const auto tell = [&](const char* what, double value) {
    report->Figure(driver + ": " + what, value);
  };
  tell("answer, median (ms)", Percentile(outcome.answers_ms, 50));
  tell("answer, P99 (ms)", Percentile(outcome.answers_ms, 99));
  tell("answer, longest (ms)", outcome.answers_ms.back());
  tell("longest event (ms)", outcome.longest_turn_ms);
  tell("runs before all others (1: yes)", outcome.runs_first ? 1 : 0);
  tell("views asked for", static_cast<double>(outcome.views));
  tell("engines killed", static_cast<double>(outcome.kills));
  tell("granules created", static_cast<double>(outcome.creates));
  tell("granules exported", static_cast<double>(outcome.exports));
  tell("slabs zeroed", static_cast<double>(outcome.zeroed));
  tell("changes of the pool's size", static_cast<double>(outcome.resizes));
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  const uint64_t questions = arguments.Count("--questions");
  Report report("loop");
  const Outcome fast = Measure({}, questions);
  const Outcome slow = Measure(
      {{"EMUCUDA_LATENCY_US", "*=20000"}, {"EMUCUDA_NVML_LATENCY_US", "50000"}},
      questions);
  Tell("fast driver", fast, &report);
  Tell("slow driver", slow, &report);
  report.Claim("longest event with a slow driver (ms)", slow.longest_turn_ms,
               kMostTurnMs, Compare::kAtMost);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
