// `fsctl up`: supervises the engines of a fleet until a signal arrives.

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "daemon/config/fleet.h"
#include "tools/fsctl/launch/fleet_supervisor.h"
#include "tools/fsctl/launch/launch_commands.h"
#include "tools/fsctl/launch/mps.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/globals.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/signal_watch.h"

namespace fineserve::fsctl {
namespace {

constexpr uint64_t kTurnNs = 200'000'000;

// Completes the UUIDs of the fleet's GPUs. 0 if a daemon answers for every one;
// else prints why and returns the exit code.
int FindDaemons(const Globals& globals, config::Fleet* fleet) {
  std::map<std::string, std::string> uuids;  // by what the fleet calls it
  for (config::FleetEngine& engine : fleet->engines) {
    std::string& uuid = uuids[engine.gpu];
    if (uuid.empty()) {
      const absl::StatusOr<Pool> pool =
          ChoosePool(engine.gpu.empty() ? globals.gpu : engine.gpu);
      if (!pool.ok()) return FailWithoutPool(pool.status());
      if (!pool->daemon_answers()) {
        return Fail(kExitNoDaemon, DaemonTrouble(*pool));
      }
      uuid = GpuName(pool->table.gpu_uuid);
    }
    if (!engine.gpu.empty()) engine.gpu = uuid;
  }
  return kExitOk;
}

}  // namespace

int RunUp(const Globals& globals, const UpOptions& options) {
  absl::StatusOr<config::Fleet> fleet = config::ReadFleet(options.fleet_path);
  if (!fleet.ok()) return Fail(kExitUsage, fleet.status());
  if (const int code = FindDaemons(globals, &*fleet)) return code;
  FleetSupervisor engines(
      globals, *std::move(fleet),
      options.log_folder.empty() ? SocketFolder() : options.log_folder);
  if (engines.size() == 0) {
    return Fail(kExitUsage,
                absl::StrCat(options.fleet_path,
                             ": no [[engine]] has a command; add one, like "
                             "command = [\"vllm\", \"serve\", \"MODEL\"]"));
  }
  absl::optional<Mps> mps;
  if (options.mps) {
    absl::StatusOr<Mps> started = Mps::Start(SocketFolder());
    if (!started.ok()) return Fail(kExitBadAnswer, started.status());
    mps.emplace(*std::move(started));
    engines.SetEngineEnvironment(mps->environment());
  }
  SignalWatch signals;
  while (signals.ending() == 0) {
    engines.Turn();
    signals.WaitFor(-1, kTurnNs);
  }
  engines.Stop();
  return kExitOk;
}

}  // namespace fineserve::fsctl
