// Measures the cost of a scrape: see kQuestion.

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/micro/gpu_site.h"
#include "bench/micro/process_usage.h"
#include "bench/report/report.h"
#include "daemon/base/unix_socket.h"
#include "daemon/contract/abi/transport.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/figures.h"
#include "tools/lab/stage/fleet_text.h"
#include "tools/lab/stage/http_client.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(What does a scrape of fineserved's metrics cost?

A real fineserved whose fleet has --engines engines of as many models, as many
of them in the pool as it takes (64), is scraped over one connection that
stays. How long does a scrape take, how long does each keep the daemon's main
thread (it says so itself: fineserve_scrape_loop_seconds_total), and how much
processor time does it take in all, beyond what the idle daemon takes? The same
is done with 2 engines, for comparison.)";

using Clock = std::chrono::steady_clock;

constexpr double kMostLoopMs = 1;
constexpr std::chrono::seconds kIdle(4);

About TheBench() {
  return {"scrape",
          kQuestion,
          {{"--engines", "N", "200", "of the fleet"},
           {"--scrapes", "N", "300", "of each fleet"}}};
}

std::string NameOf(uint64_t engine) {
  return absl::StrCat("engine-with-a-name-", engine);
}

stage::FleetText FleetOf(uint64_t engines) {
  stage::FleetText fleet;
  for (uint64_t i = 0; i < engines; ++i) {
    const std::string model = absl::StrCat("model-", i);
    fleet.Model(model, {{"slo_ttft_ms", 1000},
                        {"max_batch", 64},
                        {"profile", stage::TomlValue::Profile(380, 0.8, 3.2)}});
    fleet.Engine(NameOf(i), model, static_cast<uint16_t>(20'000 + i));
  }
  return fleet;
}

// Joins the daemon at `path` as a member of `engine`, and stays connected.
int Member(const std::string& path, const std::string& engine) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (!base::ConnectUnix(fd, path)) return 1;
  auto hello = abi::MakeMessage<abi::Hello>(/*sequence=*/1);
  hello.role = abi::Role::kMember;
  hello.pid = static_cast<uint32_t>(getpid());
  abi::CopyText(hello.engine_name, engine.c_str());
  if (abi::Send(fd, hello) != 0) return 1;
  for (;;) pause();
}

double ValueOf(const std::string& page, const std::string& sample) {
  const double value = stage::MetricOf(page, sample);
  if (value < 0) Die("no " + sample);
  return value;
}

// A daemon with `engines` engines, and the processes that are in its pool.
class Fleet {
 public:
  explicit Fleet(uint64_t engines) {
    const std::string path = site_.folder() + "/fleet.toml";
    FleetOf(engines).WriteTo(path);
    site_.StartDaemon({"--pool", "1GiB", "--slab", "2MiB", "--fleet", path,
                       "--metrics", absl::StrCat(port_)});
    const std::string socket = site_.SocketPath();
    const uint64_t in_pool = std::min<uint64_t>(engines, abi::kEngineCapacity);
    for (uint64_t i = 0; i < in_pool; ++i) {
      members_.push_back(std::make_unique<process::ChildProcess>(
          [&] { return Member(socket, NameOf(i)); }));
    }
    const bool joined = process::Eventually([&] {
      const auto table = site_.TableIfServed();
      return table && table->engines.size() == in_pool;
    });
    if (!joined) Die("not all engines joined the pool");
  }

  uint16_t port() const { return port_; }
  pid_t daemon() const { return site_.daemon_pid(); }

 private:
  const uint16_t port_ = process::FreePort();
  GpuSite site_;
  std::vector<std::unique_ptr<process::ChildProcess>> members_;
};

double Seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Returns the milliseconds of the main thread per scrape.
double Measure(uint64_t engines, uint64_t scrapes, Report* report) {
  const Fleet fleet(engines);
  stage::HttpClient scraper(fleet.port());
  const auto scrape = [&] {
    const stage::HttpResponse answer = scraper.Ask("GET", "/metrics");
    if (answer.status != 200) Die("a scrape failed: " + answer.body);
    return answer.body;
  };
  const std::string first = scrape();
  const double idle_cpu = CpuSecondsOf(fleet.daemon());
  std::this_thread::sleep_for(kIdle);
  const double idle_part =
      (CpuSecondsOf(fleet.daemon()) - idle_cpu) / Seconds(kIdle);
  const double cpu = CpuSecondsOf(fleet.daemon());
  const auto began = Clock::now();
  std::vector<double> ms;
  std::string page;
  for (uint64_t i = 0; i < scrapes; ++i) {
    const auto at = Clock::now();
    page = scrape();
    ms.push_back(Seconds(Clock::now() - at) * 1e3);
  }
  const double beyond_idle = CpuSecondsOf(fleet.daemon()) - cpu -
                             idle_part * Seconds(Clock::now() - began);
  const std::string loop = "fineserve_scrape_loop_seconds_total";
  const double loop_ms = (ValueOf(page, loop) - ValueOf(first, loop)) * 1e3 /
                         static_cast<double>(scrapes);
  const auto figure = [&](const char* name, double value) {
    report->Figure(absl::StrCat(engines, " engines, ", name), value);
  };
  figure("a scrape, P50 (ms)", Percentile(ms, 50));
  figure("a scrape, P99 (ms)", Percentile(ms, 99));
  figure("page (KiB)", static_cast<double>(page.size()) / 1024);
  figure("main thread, a scrape (ms)", loop_ms);
  figure("longest turn of the main thread (ms)",
         ValueOf(page, "fineserve_loop_longest_turn_seconds") * 1e3);
  figure("processor time, a scrape (ms)",
         beyond_idle * 1e3 / static_cast<double>(scrapes));
  figure("processor time of the idle daemon (ms/s)", idle_part * 1e3);
  figure("processor time of one scrape in 15 s (ms/s)",
         beyond_idle * 1e3 / static_cast<double>(scrapes) / 15);
  return loop_ms;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  Report report("scrape");
  const uint64_t scrapes = arguments.Count("--scrapes");
  Measure(2, scrapes, &report);
  const double loop_ms =
      Measure(arguments.Count("--engines"), scrapes, &report);
  report.Claim("main thread, a scrape (ms)", loop_ms, kMostLoopMs,
               Compare::kAtMost);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
