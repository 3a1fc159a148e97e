#include "bench/soak/stops.h"

#include <signal.h>
#include <unistd.h>

#include <cmath>

#include "bench/soak/rounds.h"

namespace fineserve::bench {
namespace {

constexpr size_t kProxies = 2;
constexpr double kShortestStop = 0.5;  // seconds

void Sleep(double seconds) { usleep(static_cast<useconds_t>(1e6 * seconds)); }

}  // namespace

StopFigures Stops::Run(uint64_t stops) {
  const std::chrono::seconds stop(static_cast<int64_t>(ceil(longest_s_)));
  figures_.clients = RunRounds(&fleet_, kProxies, stop + Clients::kLimit,
                               random_(), stops, &progress_, [&](Clients*) {
                                 StopOnce();
                                 return true;
                               });
  return figures_;
}

double Stops::Seconds(double least, double most) {
  return std::uniform_real_distribution<double>(least, most)(random_);
}

void Stops::StopOnce() {
  Sleep(Seconds(0.1, 1));
  const size_t which = random_() % (kProxies + 1);
  const bool is_proxy = which < kProxies;
  Process& stopped = is_proxy ? fleet_.proxy(which) : fleet_.site().daemon();
  const double seconds = Seconds(kShortestStop, longest_s_);
  stopped.Signal(SIGSTOP);
  Sleep(seconds);
  stopped.Signal(SIGCONT);
  ++(is_proxy ? figures_.proxies : figures_.daemons);
  figures_.seconds += seconds;
  Sleep(Seconds(0.1, 1));
}

}  // namespace fineserve::bench
