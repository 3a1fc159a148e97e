#include "bench/soak/stress.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <chrono>
#include <deque>

#include "absl/strings/str_cat.h"
#include "bench/soak/interrupt.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEngines = 2;
constexpr useconds_t kBetweenKillsUs = 300'000;
constexpr uint64_t kStartsAtOnce = 4;
constexpr uint64_t kStartsAKill = 40;

}  // namespace

// With two planes, the size of every allocation is a whole number of granules.
bool Stress::StartDaemon() {
  return site_.StartDaemon(
      {"--supervise", "--pool", "256MiB", "--slab", "4MiB", "--planes", "2"});
}

// Kills the daemon that serves, not its supervisor.
void Stress::KillDaemon() {
  const auto table = site_.Table();
  if (!table) return site_.Fail(Fault::kEnded, "no fineserved takes over");
  if (kill(static_cast<pid_t>(table->daemon_pid), SIGKILL) == 0) {
    ++figures_.kills;
  }
}

std::unique_ptr<Process> Stress::StartEngine(std::vector<std::string> flags) {
  const std::string seed = absl::StrCat(random_() % 1'000'000);
  return site_.StartEngine(
      absl::StrCat("stress-", ++started_),
      process::With({"stress_engine", "--seed", seed}, flags),
      {{"FINESERVE_KV_SIZES", "4MiB,6MiB,8MiB"}, {"EMUCUDA_POISON", "165"}});
}

void Stress::Run(double seconds) {
  if (!StartDaemon()) return;
  std::vector<std::unique_ptr<Process>> engines;
  for (int i = 0; i < kEngines; ++i) {
    engines.push_back(
        StartEngine({"--threads", "4", "--seconds", absl::StrCat(seconds)}));
  }
  const auto end =
      Clock::now() + std::chrono::milliseconds(static_cast<int>(seconds * 1e3));
  while (Clock::now() < end && !Interrupted()) {
    usleep(kBetweenKillsUs);
    KillDaemon();
    progress_.Add(1);
  }
  for (const auto& engine : engines) Judge(engine.get());
  site_.AwaitEmpty();
}

void Stress::Judge(Process* engine) {
  if (!engine->EndsWithin(process::kPatience)) {
    return site_.Fail(Fault::kNotAtRest, "does not end: " + engine->About());
  }
  const int code = engine->Wait();
  const std::string printed = engine->Stderr();
  uint64_t programs = 0, outside = 0;
  for (size_t at = 0; (at = printed.find("ended ", at)) != std::string::npos;
       ++at) {
    unsigned long long rounds, refused, not_leased;
    if (sscanf(printed.c_str() + at,
               "ended rounds=%llu refused=%llu outside=%llu", &rounds, &refused,
               &not_leased) != 3) {
      continue;
    }
    ++programs;
    outside += not_leased;
    figures_.rounds += rounds;
    figures_.refused += refused;
  }
  if (code != 0 || programs == 0) {
    const bool foreign = printed.find("mismatch") != std::string::npos;
    return site_.Fail(foreign ? Fault::kForeignBytes : Fault::kEnded,
                      absl::StrCat("status ", code, ": ", engine->About()));
  }
  figures_.programs += programs;
  figures_.outside += outside;
  // Messages of the shim about a daemon that was not there, or has ended.
  const bool warned = printed.find("without FineServe") != std::string::npos ||
                      printed.find("driver's memory") != std::string::npos;
  if (outside > 0 && !warned) {
    site_.Fail(Fault::kOutside, "without a word: " + engine->About());
  }
  if (outside > 0 && warned) ++figures_.warned;
}

void Stress::StartMany(uint64_t starts) {
  if (!StartDaemon()) return;
  std::deque<std::unique_ptr<Process>> running;
  while (figures_.starts < starts && !Interrupted()) {
    running.push_back(StartEngine({"--rounds", "1"}));
    ++figures_.starts;
    progress_.Add(1);
    if (random_() % kStartsAKill == 0) {
      usleep(static_cast<useconds_t>(random_() % 20'000));
      KillDaemon();
    }
    if (running.size() < kStartsAtOnce) continue;
    Judge(running.front().get());
    running.pop_front();
  }
  for (const auto& engine : running) Judge(engine.get());
  site_.AwaitEmpty();
}

}  // namespace fineserve::bench
