// Tests the service under load and faults: see kQuestion.

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/report/report.h"
#include "bench/soak/daemon_kills.h"
#include "bench/soak/engine_kills.h"
#include "bench/soak/failures.h"
#include "bench/soak/interrupt.h"
#include "bench/soak/progress.h"
#include "bench/soak/stops.h"
#include "bench/soak/stress.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/random_seed.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(Does anything get lost when processes die and are stopped, again and again?

The programs are real: fineserved, fineserve-proxy, tinyserve, view_engine and
stock_engine under the preload, on several emulated GPUs at once. Five phases,
each with its number; 0 leaves it out:

Engines are killed at any moment of their lives, several at a time, some with
device writes that outlive them, in a pool that is too small for all. Each looks
for bytes in its KV that it did not write. After each batch the pool must come
to rest; from time to time all die, and the whole pool must be free, and zero
for the engine that gets it next, and fineserved as large as it was.

fineserved is killed while engines serve and requests come through a proxy, and
started again; engines of a former pool are killed and replaced.

A proxy or fineserved is stopped for 0.5 s and more (SIGSTOP) under load.

Whole slabs are allocated in three ways, by threads that fork, exec and destroy
contexts, while fineserved is killed and its supervisor keeps the pool; and
processes start under such kills. None may find foreign bytes, get an error, or
be outside of the pool without a word; then every slab must be free.

Where requests come, every answer is compared, token by token; each request
must have one within 35 s, and the longest stop, or a refusal that says when to
come back; one whose engine was killed may break off as the proxy says it does.
Then the books must be empty.

The full figures are --engine-kills 10000 --daemon-kills 200 --stops 200 --sites
8 --stress 60 --starts 10000. The exit status is 1 if a claim does not hold; what went wrong is printed,
with the command that repeats the run: what is done to which process is repeated,
times are not.)";

About TheBench() {
  return {
      "soak",
      kQuestion,
      {{"--engine-kills", "N", "240", "kills of engines", /*or_zero=*/true},
       {"--daemon-kills", "N", "8", "kills of fineserved", /*or_zero=*/true},
       {"--stops", "N", "8", "times that a process is stopped",
        /*or_zero=*/true},
       {"--stress", "SECONDS", "10", "of threads that fork and exec",
        /*or_zero=*/true},
       {"--starts", "N", "200", "starts while fineserved is killed",
        /*or_zero=*/true},
       {"--longest-stop", "SECONDS", "10", "of a proxy or fineserved"},
       {"--sites", "N", "4", "emulated machines, side by side"},
       {"--seed", "N", "",
        "which repeats a run; otherwise another each time"}}};
}

class Soak {
 public:
  Soak(const Arguments& arguments, uint64_t seed)
      : arguments_(arguments),
        seed_(seed),
        sites_(arguments.Count("--sites")),
        failures_(Command()) {
    printf("soak: seed %llu\n", static_cast<unsigned long long>(seed_));
    fflush(stdout);
  }

  void KillEngines(Report* report) {
    const uint64_t kills = arguments_.Count("--engine-kills");
    if (kills == 0 || Interrupted()) return;
    Progress progress("engines killed", kills);
    std::vector<EngineKillFigures> all(sites_);
    OnAllSites([&](size_t i) {
      SoakSite site(absl::StrCat("engine kills, site ", i), &failures_);
      all[i] = EngineKills(&site, seed_ + i, &progress).Run(Share(kills, i));
    });
    TellEngineKills(all, report);
    report->Claim(
        "engines killed",
        static_cast<double>(Sum(all, [](auto& f) { return f.kills; })),
        static_cast<double>(kills), Compare::kAtLeast);
  }

  void KillDaemons(Report* report) {
    const uint64_t kills = arguments_.Count("--daemon-kills");
    if (kills == 0 || Interrupted()) return;
    const auto ports = Ports();
    Progress progress("daemons killed", kills);
    std::vector<DaemonKillFigures> all(sites_);
    OnAllSites([&](size_t i) {
      FleetSite fleet(absl::StrCat("daemon kills, site ", i), ports[i],
                      i % 2 == 0 ? "fail_open" : "fail_closed", &failures_);
      all[i] = DaemonKills(&fleet, seed_ + i, &progress).Run(Share(kills, i));
    });
    ClientFigures clients;
    for (const DaemonKillFigures& f : all) clients.Add(f.clients);
    const uint64_t done = Sum(all, [](auto& f) { return f.kills; });
    report->Figure("daemons killed: engines replaced",
                   static_cast<double>(
                       Sum(all, [](auto& f) { return f.engines_replaced; })));
    TellClients("daemons killed", clients, report);
    report->Claim("daemons killed", static_cast<double>(done),
                  static_cast<double>(kills), Compare::kAtLeast);
  }

  void StopSome(Report* report) {
    const uint64_t stops = arguments_.Count("--stops");
    if (stops == 0 || Interrupted()) return;
    const auto ports = Ports();
    Progress progress("stopped", stops);
    std::vector<StopFigures> all(sites_);
    OnAllSites([&](size_t i) {
      FleetSite fleet(absl::StrCat("stops, site ", i), ports[i],
                      i % 2 == 0 ? "fail_open" : "fail_closed", &failures_);
      all[i] = Stops(&fleet, arguments_.Number("--longest-stop"), seed_ + i,
                     &progress)
                   .Run(Share(stops, i));
    });
    ClientFigures clients;
    double seconds = 0;
    for (const StopFigures& f : all) {
      clients.Add(f.clients);
      seconds += f.seconds;
    }
    const uint64_t proxies = Sum(all, [](auto& f) { return f.proxies; });
    const uint64_t daemons = Sum(all, [](auto& f) { return f.daemons; });
    report->Figure("stops: of proxies", static_cast<double>(proxies));
    report->Figure("stops: of fineserved", static_cast<double>(daemons));
    report->Figure("stops: in all (s)", seconds);
    TellClients("stops", clients, report);
    report->Claim("stops", static_cast<double>(proxies + daemons),
                  static_cast<double>(stops), Compare::kAtLeast);
  }

  void StressWholeSlabs(Report* report) {
    const double seconds = arguments_.Number("--stress");
    if (seconds == 0 || Interrupted()) return;
    Progress progress("stress: daemons killed",
                      static_cast<uint64_t>(seconds / .3));
    SoakSite site("stress", &failures_);
    Stress stress(&site, seed_, &progress);
    stress.Run(seconds);
    const StressFigures& f = stress.figures();
    report->Figure("stress: daemons killed", static_cast<double>(f.kills));
    report->Figure("stress: programs", static_cast<double>(f.programs));
    report->Figure("stress: rounds", static_cast<double>(f.rounds));
    report->Figure("stress: refused", static_cast<double>(f.refused));
    report->Figure("stress: outside the pool", static_cast<double>(f.outside));
  }

  void StartMany(Report* report) {
    const uint64_t starts = arguments_.Count("--starts");
    if (starts == 0 || Interrupted()) return;
    Progress progress("started", starts);
    SoakSite site("starts", &failures_);
    Stress stress(&site, seed_, &progress);
    stress.StartMany(starts);
    const StressFigures& f = stress.figures();
    report->Figure("starts: daemons killed", static_cast<double>(f.kills));
    report->Figure("starts: outside the pool, and said so",
                   static_cast<double>(f.warned));
    report->Claim("starts", static_cast<double>(f.starts),
                  static_cast<double>(starts), Compare::kAtLeast);
  }

  void TellFailures(Report* report) const {
    const std::pair<Fault, const char*> faults[] = {
        {Fault::kForeignBytes, "engines that found bytes not their own"},
        {Fault::kEnded, "programs that ended, or did not start, unasked"},
        {Fault::kNotAtRest, "pools or books that did not come to rest"},
        {Fault::kWrongAnswer, "wrong answers"},
        {Fault::kNoAnswer, "requests without an answer"},
        {Fault::kOutside, "processes outside of the pool without a word"}};
    for (const auto& [fault, claim] : faults) {
      report->Claim(claim, static_cast<double>(failures_.Count(fault)), 0,
                    Compare::kAtMost);
    }
  }

 private:
  // Memory that fineserved may gain between two moments with an empty pool: its
  // heap has gaps, which vary. Heuristic.
  static constexpr double kMostGrowthKib = 512;

  std::string Command() const {
    std::string command = absl::StrCat("scripts/bench soak --seed ", seed_);
    for (const char* name :
         {"--engine-kills", "--daemon-kills", "--stops", "--stress", "--starts",
          "--longest-stop", "--sites"}) {
      absl::StrAppend(&command, " ", name, " ", arguments_.Text(name));
    }
    return command;
  }

  uint64_t Share(uint64_t of, size_t site) const {
    return of / sites_ + (site < of % sites_ ? 1 : 0);
  }

  // Runs each site on a separate thread, whose processes end with it.
  void OnAllSites(const std::function<void(size_t)>& run) const {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < sites_; ++i) threads.emplace_back(run, i);
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<std::array<uint16_t, FleetSite::kServing>> Ports() const {
    std::vector<std::array<uint16_t, FleetSite::kServing>> ports(sites_);
    for (auto& of_site : ports) {
      for (uint16_t& port : of_site) port = process::FreePort();
    }
    return ports;
  }

  template <typename Figures, typename Field>
  static uint64_t Sum(const std::vector<Figures>& all, Field field) {
    uint64_t sum = 0;
    for (const Figures& figures : all) sum += field(figures);
    return sum;
  }

  static void TellEngineKills(const std::vector<EngineKillFigures>& all,
                              Report* report) {
    const auto tell = [&](const char* what, auto field) {
      report->Figure(absl::StrCat("engines killed: ", what),
                     static_cast<double>(Sum(all, field)));
    };
    tell("while starting", [](auto& f) { return f.starting; });
    tell("with slabs", [](auto& f) { return f.holding; });
    tell("with slabs that were asked back",
         [](auto& f) { return f.asked_back; });
    tell("on a device that lingers", [](auto& f) { return f.lingering; });
    tell("others that ended by themselves", [](auto& f) { return f.exited; });
    tell("others that found no slabs", [](auto& f) { return f.refused; });
    tell("slabs quarantined", [](auto& f) { return f.slabs_quarantined; });
    tell("slabs returned by the living",
         [](auto& f) { return f.slabs_returned; });
    double rest_s = 0, more_descriptors = 0, more_kib = 0;
    for (const EngineKillFigures& f : all) {
      const auto grown = [](size_t first, size_t last) {
        return static_cast<double>(last) - static_cast<double>(first);
      };
      rest_s = std::max(rest_s, f.longest_rest_s);
      more_descriptors = std::max(
          more_descriptors, grown(f.first.descriptors, f.last.descriptors));
      more_kib =
          std::max(more_kib, grown(f.first.private_kib, f.last.private_kib));
    }
    report->Figure("engines killed: longest way to rest (s)", rest_s);
    report->Claim("descriptors that fineserved gained", more_descriptors, 0,
                  Compare::kAtMost);
    report->Claim("memory that fineserved gained (KiB)", more_kib,
                  kMostGrowthKib, Compare::kAtMost);
  }

  static void TellClients(const std::string& phase, const ClientFigures& f,
                          Report* report) {
    const auto tell = [&](const char* what, Ending ending) {
      report->Figure(absl::StrCat(phase, ": ", what),
                     static_cast<double>(f.Count(ending)));
    };
    tell("right answers", Ending::kRight);
    tell("refusals, too late (429)", Ending::kLate);
    tell("refusals, no engine there (503)", Ending::kNone);
    tell("answers that broke off with their engine", Ending::kBroken);
    tell("clients that went away", Ending::kLeft);
    report->Figure(phase + ": longest wait for a whole answer (s)",
                   f.longest_s);
  }

  const Arguments& arguments_;
  const uint64_t seed_;
  const size_t sites_;
  Failures failures_;
};

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  const std::string& seed = arguments.Text("--seed");
  Soak soak(arguments, seed.empty() ? process::RandomSeed()
                                    : strtoull(seed.c_str(), nullptr, 10));
  CatchInterrupts();
  Report report("soak");
  soak.KillEngines(&report);
  soak.KillDaemons(&report);
  soak.StopSome(&report);
  soak.StressWholeSlabs(&report);
  soak.StartMany(&report);
  soak.TellFailures(&report);
  if (Interrupted())
    fputs("soak: interrupted; this is what was done\n", stderr);
  const int written = Finish(report, arguments);
  return report.AllClaimsHold() ? written : 1;
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
