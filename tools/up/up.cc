// `fsctl up`: supervises the engines of a fleet until a signal arrives.

#include <errno.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "daemon/apply/door.h"
#include "daemon/config/fleet.h"
#include "daemon/config/fleet_path.h"
#include "daemon/finding/daemon_sockets.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/globals.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/signal_watch.h"
#include "tools/up/engine_register.h"
#include "tools/up/fleet_check.h"
#include "tools/up/fleet_supervisor.h"
#include "tools/up/mps.h"
#include "tools/up/supervised_engine.h"
#include "tools/up/up_command.h"
#include "tools/up/up_fleet.h"
#include "tools/up/up_preview.h"

namespace fineserve::fsctl {
namespace {

constexpr uint64_t kTurnNs = 200'000'000;
constexpr uint64_t kDaemonStartNs = 10'000'000'000;

// The folder of the engines' output, which is made if --logs names one that is
// missing.
absl::StatusOr<std::string> LogFolder(const UpOptions& options) {
  if (options.log_folder.empty()) return finding::RuntimeFolder();
  std::error_code error;
  std::filesystem::create_directories(options.log_folder, error);
  if (!error && access(options.log_folder.c_str(), W_OK | X_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (!error) return std::filesystem::absolute(options.log_folder).string();
  return absl::InvalidArgumentError(
      absl::StrCat("--logs ", options.log_folder, ": ", error.message()));
}

// Engines of an `up` that was killed a moment ago may still be ending.
absl::Status AwaitAddresses(const FleetSupervisor& engines,
                            SignalWatch* signals) {
  const uint64_t start_ns = Now().monotonic_ns;
  for (;;) {
    absl::Status s = engines.CheckAddresses();
    const bool late =
        Now().monotonic_ns - start_ns > SupervisedEngine::kPatienceNs;
    if (s.ok() || late || signals->ending() != 0) return s;
    signals->WaitFor(-1, kTurnNs);
  }
}

// A daemon that was started a moment before this may still make its pool.
absl::Status AwaitDaemons(const Globals& globals, config::Fleet* fleet,
                          std::vector<std::string>* warnings) {
  const uint64_t start_ns = Now().monotonic_ns;
  bool told = false;
  for (;;) {
    config::Fleet completed = *fleet;
    warnings->clear();
    const absl::Status found = CompleteGpus(globals, &completed, warnings);
    if (found.ok()) *fleet = std::move(completed);
    if (!absl::IsNotFound(found) ||
        Now().monotonic_ns - start_ns > kDaemonStartNs) {
      return found;
    }
    if (!std::exchange(told, true)) {
      Fail(0, absl::StrCat(found.message(), "; waiting 10 s for it"));
    }
    absl::SleepFor(absl::Nanoseconds(kTurnNs));
  }
}

// Reads the fleet for the first time. 0, or prints why not and returns the exit
// code.
int ReadFirst(const Globals& globals, const UpOptions& options,
              FleetToRun* read) {
  absl::StatusOr<FleetToRun> found = ReadFleetOfUp(options.fleet_path);
  if (!found.ok()) return Fail(kExitUsage, found.status());
  std::vector<std::string> warnings;
  const absl::Status daemons = AwaitDaemons(globals, &found->fleet, &warnings);
  for (const std::string& warning : warnings) Fail(0, "warning: " + warning);
  if (!daemons.ok()) return FailWithoutPool(daemons);
  *read = *std::move(found);
  return kExitOk;
}

// Needs no daemon.
int Preview(const Globals& globals, const UpOptions& options) {
  const absl::StatusOr<FleetToRun> found = ReadFleetOfUp(options.fleet_path);
  if (!found.ok()) return Fail(kExitUsage, found.status());
  return Print(globals.json ? PreviewJson(found->fleet)
                            : PreviewText(found->fleet));
}

// Runs until it is asked to end.
void Watch(SignalWatch* signals, UpFleet* fleet, apply::Door* door,
           FleetSupervisor* engines) {
  const bool had_terminal = isatty(STDOUT_FILENO) != 0;
  while (signals->ending() == 0) {
    engines->Turn();
    signals->WaitFor(door == nullptr ? -1 : door->descriptor(), kTurnNs);
    if (door != nullptr) door->Turn();
    if (!signals->TakeHangup()) continue;
    // The shell of a terminal that goes away sends SIGHUP, too.
    if (had_terminal && isatty(STDOUT_FILENO) == 0) return;
    const absl::Status taken = fleet->TakeAgain();
    if (!taken.ok()) {
      Fail(0, absl::StrCat("keeping the present fleet: ", taken.message()));
    }
  }
}

// Null, with a warning, if it cannot be opened.
std::unique_ptr<apply::Door> OpenDoor(UpFleet* fleet) {
  auto door = apply::Door::Open(
      finding::RuntimeFolder(), apply::ProcessDoor("up"),
      [fleet](const apply::Question& q) { return fleet->Reply(q); });
  if (door.ok()) return *std::move(door);
  Fail(0, absl::StrCat("warning: fsctl apply cannot reach this fsctl up: ",
                       door.status().message()));
  return nullptr;
}

}  // namespace

int RunUp(const Globals& globals, const UpOptions& options) {
  if (options.dry_run) return Preview(globals, options);
  const absl::StatusOr<std::string> logs = LogFolder(options);
  if (!logs.ok()) return Fail(kExitUsage, logs.status());
  FleetToRun first;
  if (const int code = ReadFirst(globals, options, &first)) return code;
  const std::string path = config::FleetPath(options.fleet_path);
  FleetSupervisor engines(
      globals, std::move(first),
      {path, *logs, options.timestamps, options.keep_orphans});
  if (engines.size() == 0) {
    return Fail(kExitUsage,
                absl::StrCat(options.fleet_path,
                             ": no [[engine]] has a command; add one, like "
                             "engine = \"vllm\" and checkpoint = \"MODEL\""));
  }
  absl::StatusOr<EngineRegister> running =
      EngineRegister::Claim(finding::RuntimeFolder(), options.fleet_path);
  if (!running.ok()) return Fail(kExitBadAnswer, running.status());
  absl::optional<Mps> mps;
  if (options.mps) {
    absl::StatusOr<Mps> started = Mps::Start(finding::RuntimeFolder());
    if (!started.ok()) return Fail(kExitBadAnswer, started.status());
    mps.emplace(*std::move(started));
    fprintf(stderr,
            "fsctl: --mps is experimental: no GPU has shown yet that the work "
            "of a killed engine ends with it (gpu_check --mps asks that)\n");
    engines.SetEngineEnvironment(mps->environment());
  }
  SignalWatch signals(SignalWatch::Hangup::kIsTold);
  engines.Adopt(*std::move(running));
  const absl::Status free = AwaitAddresses(engines, &signals);
  if (!free.ok()) return Fail(kExitBadAnswer, free);
  UpFleet fleet(globals, path, &engines);
  const std::unique_ptr<apply::Door> door = OpenDoor(&fleet);
  Watch(&signals, &fleet, door.get(), &engines);
  engines.Stop();
  return kExitOk;
}

}  // namespace fineserve::fsctl
