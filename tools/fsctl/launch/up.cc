// `fsctl up`: supervises the engines of a fleet until a signal arrives.

#include <errno.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "daemon/abi/observer_link.h"
#include "daemon/cluster/this_machine.h"
#include "daemon/config/fleet.h"
#include "tools/fsctl/launch/engine_register.h"
#include "tools/fsctl/launch/fleet_supervisor.h"
#include "tools/fsctl/launch/launch_commands.h"
#include "tools/fsctl/launch/mps.h"
#include "tools/fsctl/launch/supervised_engine.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/process/child.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/globals.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/signal_watch.h"

namespace fineserve::fsctl {
namespace {

constexpr uint64_t kTurnNs = 200'000'000;

// The whole UUID of a GPU without a daemon: the name, if that is whole, or what
// a daemon's socket that was left behind is called. Empty if neither tells.
std::string UuidWithoutDaemon(const std::string& gpu) {
  constexpr size_t kWholeUuid = 40;  // GPU-8-4-4-4-12
  if (gpu.size() == kWholeUuid) return gpu;
  for (const std::string& path : abi::ListSockets(SocketFolder())) {
    const absl::string_view file =
        absl::string_view(path).substr(path.rfind('/') + 1);
    if (!gpu.empty() && absl::StartsWith(file, gpu)) {
      return std::string(absl::StripSuffix(file, ".sock"));
    }
  }
  return "";
}

struct FoundGpu {
  std::string uuid;      // whole; empty: not known
  absl::Status missing;  // why no daemon serves it, if none does
};

FoundGpu FindGpu(const std::string& gpu) {
  const absl::StatusOr<Pool> pool = ChoosePool(gpu);
  if (pool.ok()) {
    return {GpuName(pool->table.gpu_uuid),
            pool->daemon_answers() ? absl::OkStatus()
                                   : absl::NotFoundError(DaemonTrouble(*pool))};
  }
  return {
      absl::IsNotFound(pool.status()) ? UuidWithoutDaemon(gpu) : std::string(),
      pool.status()};
}

// Completes the UUIDs of the fleet's GPUs. 0 if a daemon answers for every one;
// else prints why and returns the exit code. If the fleet has a planner, one
// daemon is enough: engines of the other GPUs start when theirs are back.
int FindDaemons(const Globals& globals, config::Fleet* fleet) {
  std::map<std::string, std::string> uuids;  // by what the fleet calls it
  absl::Status missing;
  bool any_answers = false;
  for (config::FleetEngine& engine : fleet->engines) {
    std::string& uuid = uuids[engine.gpu];
    if (uuid.empty()) {
      const FoundGpu found =
          FindGpu(engine.gpu.empty() ? globals.gpu : engine.gpu);
      any_answers |= found.missing.ok();
      if (!found.missing.ok()) {
        missing = found.missing;
        if (!fleet->planner.on || found.uuid.empty()) {
          return FailWithoutPool(missing);
        }
        Fail(0, absl::StrCat("warning: ", found.uuid, ": ", missing.message()));
      }
      uuid = found.uuid;
    }
    if (!engine.gpu.empty()) engine.gpu = uuid;
  }
  return any_answers ? kExitOk : FailWithoutPool(missing);
}

// Whether the program of each engine is there: one that is not would be started
// in vain again and again.
absl::Status CheckCommands(const config::Fleet& fleet) {
  for (const config::FleetEngine& engine : fleet.engines) {
    if (engine.command.empty() || IsProgram(engine.command[0])) continue;
    return absl::NotFoundError(
        absl::StrCat("engine ", engine.name, ": ", engine.command[0],
                     ": command not found; install it, or correct the "
                     "engine's command"));
  }
  return absl::OkStatus();
}

// The folder of the engines' output, which is made if --logs names one that is
// missing.
absl::StatusOr<std::string> LogFolder(const UpOptions& options) {
  if (options.log_folder.empty()) return SocketFolder();
  std::error_code error;
  std::filesystem::create_directories(options.log_folder, error);
  if (!error && access(options.log_folder.c_str(), W_OK | X_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (!error) return options.log_folder;
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

}  // namespace

int RunUp(const Globals& globals, const UpOptions& options) {
  absl::StatusOr<config::Fleet> fleet = config::ReadFleet(options.fleet_path);
  if (!fleet.ok()) return Fail(kExitUsage, fleet.status());
  fleet = cluster::OwnPart(*std::move(fleet));
  if (!fleet.ok()) return Fail(kExitUsage, fleet.status());
  const absl::Status commands = CheckCommands(*fleet);
  if (!commands.ok()) return Fail(kExitUsage, commands);
  const absl::StatusOr<std::string> logs = LogFolder(options);
  if (!logs.ok()) return Fail(kExitUsage, logs.status());
  if (const int code = FindDaemons(globals, &*fleet)) return code;
  FleetSupervisor engines(globals, *std::move(fleet), *logs);
  if (engines.size() == 0) {
    return Fail(kExitUsage,
                absl::StrCat(options.fleet_path,
                             ": no [[engine]] has a command; add one, like "
                             "command = [\"vllm\", \"serve\", \"MODEL\"]"));
  }
  absl::StatusOr<EngineRegister> running =
      EngineRegister::Claim(SocketFolder(), options.fleet_path);
  if (!running.ok()) return Fail(kExitBadAnswer, running.status());
  absl::optional<Mps> mps;
  if (options.mps) {
    absl::StatusOr<Mps> started = Mps::Start(SocketFolder());
    if (!started.ok()) return Fail(kExitBadAnswer, started.status());
    mps.emplace(*std::move(started));
    engines.SetEngineEnvironment(mps->environment());
  }
  SignalWatch signals;
  engines.Adopt(*std::move(running));
  const absl::Status free = AwaitAddresses(engines, &signals);
  if (!free.ok()) return Fail(kExitBadAnswer, free);
  while (signals.ending() == 0) {
    engines.Turn();
    signals.WaitFor(-1, kTurnNs);
  }
  engines.Stop();
  return kExitOk;
}

}  // namespace fineserve::fsctl
