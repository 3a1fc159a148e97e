// Measures the time in which a slab goes from one engine to another: see
// kQuestion.

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "bench/micro/arguments.h"
#include "bench/micro/handover_watch.h"
#include "bench/micro/report.h"
#include "bench/micro/run_first.h"
#include "bench/micro/view_site.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(How long does a slab take from the engine that is asked for it to the other?

Two engines with views of one pool of 8 slabs, which both want all of, in turn.
"idle": the holder has freed its blocks and makes no call. "waiting": it has
freed them and waits for changes of its leases. "busy": it serves on, and a slab
leaves it when the last of its blocks is freed and the step has ended; sequences
live 64 ms on average. The slab table's times count, which
fineserved writes: when a slab was asked back, when it was returned, and when,
after a zero fill of 4 MiB by the emulated device, it was leased to the other
engine. The engines say how long an allocation that found too few blocks had to
wait.

All of this runs before other processes (SCHED_FIFO) where that is permitted, so
that a busy machine does not show. It takes a small part of one processor.)";

About TheBench() {
  return {"handover",
          kQuestion,
          {{"--seconds", "N", "20", "for each kind of holder"}}};
}

double At(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  return sorted[static_cast<size_t>(percent / 100 *
                                    static_cast<double>(sorted.size() - 1))];
}

void Tell(const std::string& what, std::vector<double> ms, Report* report) {
  std::sort(ms.begin(), ms.end());
  report->Figure(what + ", median (ms)", At(ms, 50));
  report->Figure(what + ", P99 (ms)", At(ms, 99));
}

void Measure(const std::string& kind, double seconds, Report* report) {
  ViewSite site;
  site.StartDaemon({"--pool", "32MiB", "--slab", "4MiB"});
  std::atomic<bool> ending = false;
  HandOvers seen;
  std::thread watch([&] { seen = Watch(&ending); });
  const std::string duration = std::to_string(seconds);
  const auto engines = site.RunPrograms(
      "bench_handover_engine", {{kind, "0", duration}, {kind, "1", duration}});
  ending = true;
  watch.join();
  Tell(kind + ": asked back to leased", seen.whole_ms, report);
  Tell(kind + ": asked back to returned", seen.return_ms, report);
  Tell(kind + ": returned to leased", seen.zero_ms, report);
  report->Figure(kind + ": hand-overs seen",
                 static_cast<double>(seen.whole_ms.size()));
  report->Figure(kind + ": slabs asked back",
                 static_cast<double>(seen.asked_back));
  for (size_t i = 0; i < engines.size(); ++i) {
    for (const auto& [name, value] : engines[i]) {
      report->Figure(kind + ", engine " + std::to_string(i + 1) + ": " + name,
                     value);
    }
  }
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  const double seconds = arguments.Number("--seconds");
  Report report("handover");
  report.Figure("runs before all others (1: yes)", RunFirst() ? 1 : 0);
  for (const char* kind : {"idle", "waiting", "busy"}) {
    Measure(kind, seconds, &report);
  }
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
