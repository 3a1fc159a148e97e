// Measures the time in which a slab goes from one engine to another: see
// kQuestion.

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "bench/micro/gpu_site.h"
#include "bench/micro/run_first.h"
#include "bench/report/report.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/contract/finding/daemon_sockets.h"

namespace fineserve::bench {
namespace {

// Durations, in ms, for slabs that went from one engine to another because they
// were asked back, by the times in the slab table.
struct HandOvers {
  std::vector<double> whole_ms;   // asked back to leased
  std::vector<double> return_ms;  // asked back to returned
  std::vector<double> zero_ms;    // returned to leased: its zero fill
  uint64_t asked_back = 0;        // as the daemon counts
};

using abi::SlabState;

constexpr useconds_t kLookEveryUs = 20;

// The events seen of a slab since it was asked back. 0: not seen.
struct Passage {
  abi::SlabSnapshot now;
  uint32_t from = 0;  // the engine that was asked
  uint64_t asked_ns = 0, returned_ns = 0;
};

double Ms(uint64_t from_ns, uint64_t to_ns) {
  return 1e-6 * static_cast<double>(to_ns - from_ns);
}

void NoteLease(const Passage& p, HandOvers* seen) {
  const uint64_t leased_ns = p.now.since_ns;
  if (p.asked_ns == 0 || p.now.word.engine == p.from) return;
  seen->whole_ms.push_back(Ms(p.asked_ns, leased_ns));
  if (p.returned_ns == 0) return;
  seen->return_ms.push_back(Ms(p.asked_ns, p.returned_ns));
  seen->zero_ms.push_back(Ms(p.returned_ns, leased_ns));
}

void Look(const abi::SlabSnapshot& slab, Passage* p, HandOvers* seen) {
  if (abi::SlabWord::Pack(slab.word) == abi::SlabWord::Pack(p->now.word)) {
    return;
  }
  p->now = slab;
  switch (slab.word.state) {
    case SlabState::kReturning:
      *p = {slab, slab.word.engine, slab.since_ns, 0};
      break;
    case SlabState::kZeroing:
      p->returned_ns = slab.since_ns;
      break;
    case SlabState::kFree:
      break;
    default:
      NoteLease(*p, seen);
      *p = {slab, 0, 0, 0};
  }
}

// Watches the only daemon in the runtime folder until `ending`. Omits a
// hand-over whose steps follow one another too fast to be seen.
HandOvers Watch(const std::atomic<bool>* ending) {
  const auto sockets = finding::ListSockets(getenv("FINESERVE_RUNTIME_DIR"));
  if (sockets.size() != 1) Die("there is not one fineserved");
  const auto link = abi::ConnectObserver(sockets[0]);
  if (!link.ok()) Die(std::string(link.status().message()));
  const auto reader = abi::TableReader::Map(link->table.get());
  if (!reader.ok()) Die(std::string(reader.status().message()));
  HandOvers seen;
  std::vector<Passage> passages;
  while (!*ending) {
    usleep(kLookEveryUs);
    const auto table = reader->Read();
    if (!table.ok()) Die(std::string(table.status().message()));
    passages.resize(table->slabs.size());
    for (size_t i = 0; i < passages.size(); ++i) {
      Look(table->slabs[i], &passages[i], &seen);
    }
    seen.asked_back = table->counters.slabs_asked_back;
  }
  return seen;
}

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

void Tell(const std::string& what, std::vector<double> ms, Report* report) {
  report->Figure(what + ", median (ms)", Percentile(ms, 50));
  report->Figure(what + ", P99 (ms)", Percentile(ms, 99));
}

void Measure(const std::string& kind, double seconds, Report* report) {
  GpuSite site;
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
