#ifndef DAEMON_FLEET_CONFIG_FLEET_PLACES_H_
#define DAEMON_FLEET_CONFIG_FLEET_PLACES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::config {

// A GPU as written in a fleet file, "GPU-…" or "MIG-…".
struct NamedGpu {
  // Begins with GPU-, since fineserved knows a MIG instance only by the bytes
  // of its UUID; may be only the beginning of the UUID.
  std::string uuid;
  bool is_mig = false;
};
NamedGpu GpuOf(absl::string_view text);
// The GPUs of an engine's ranks, in order of rank.
using NamedGroup = std::vector<NamedGpu>;

// Sets the engine's `gpu` and `rank_gpus`. Returns InvalidArgument in one line
// with the fix, if one engine cannot use these GPUs.
absl::Status SetGpus(const NamedGroup& group, FleetEngine* engine);

// Returns InvalidArgument, "engine "NAME": what".
absl::Status WrongEngine(const FleetEngine& engine, absl::string_view what);

// Replaces {name}, {port} and {gpu} in the engine's command and environment by
// its values. If it has no GPU, {gpu} stays.
void FillInOwn(FleetEngine* engine);

// Expands an [[engine]] that lists `gpus` into one engine on each group of
// them, in their order. The engine on gpus[i] is called NAME-i and has port +
// i; its command gets its own {name}, {port} and {gpu}. Errors are
// InvalidArgument in one line with the fix.
absl::StatusOr<std::vector<FleetEngine>> PlacesOf(
    const FleetEngine& engine, const std::vector<NamedGroup>& gpus);

// Returns InvalidArgument in one line with the fix if the engine's name is not
// allowed: names are part of file names, of metrics and of fsctl's output.
absl::Status CheckName(const FleetEngine& engine);

// Returns InvalidArgument in one line if the fleet has an engine of this name,
// or if it has an engine of the same URL and one of the two is a place.
absl::Status CheckApart(const FleetEngine& engine, const Fleet& fleet);

// Checks that the engine's address is not one on which the proxy itself
// listens: the proxy would send each request back to itself.
absl::Status CheckIsNoProxy(const FleetEngine& engine,
                            const ProxySettings& proxy);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_FLEET_PLACES_H_
