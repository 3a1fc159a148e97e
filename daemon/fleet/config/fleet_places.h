#ifndef DAEMON_FLEET_CONFIG_FLEET_PLACES_H_
#define DAEMON_FLEET_CONFIG_FLEET_PLACES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::config {

// A GPU as a fleet file names it, "GPU-…" or "MIG-…".
struct NamedGpu {
  // GPU-…, since fineserved knows a MIG instance by the bytes of its UUID
  // alone; maybe only how it begins.
  std::string uuid;
  bool is_mig = false;
};
NamedGpu GpuOf(absl::string_view text);
// The GPUs of an engine's ranks, the first rank's first.
using NamedGroup = std::vector<NamedGpu>;

// InvalidArgument in one line with the fix, if the GPUs are not those of an
// engine. Sets its `gpu` and `rank_gpus`.
absl::Status SetGpus(const NamedGroup& group, FleetEngine* engine);

// InvalidArgument: engine "NAME": what.
absl::Status WrongEngine(const FleetEngine& engine, absl::string_view what);

// Replaces {name}, {port} and {gpu} in its command and environment by its own.
// If it has no GPU, {gpu} stays.
void FillInOwn(FleetEngine* engine);

// Expands an [[engine]] that lists `gpus` into one engine on each group of
// them, in their order. The one on gpus[i] is called NAME-i and has port + i;
// its command gets its own {name}, {port} and {gpu}. InvalidArgument in one
// line with the fix.
absl::StatusOr<std::vector<FleetEngine>> PlacesOf(
    const FleetEngine& engine, const std::vector<NamedGroup>& gpus);

// InvalidArgument in one line with the fix if the engine cannot be called so:
// names are part of file names, of metrics and of what fsctl prints.
absl::Status CheckName(const FleetEngine& engine);

// InvalidArgument in one line if the fleet has an engine of this name, or if
// one of the two is a place and they have one URL.
absl::Status CheckApart(const FleetEngine& engine, const Fleet& fleet);

// Checks that the engine's address is not one on which the proxy itself
// listens: the proxy would send each request back to itself.
absl::Status CheckIsNoProxy(const FleetEngine& engine,
                            const ProxySettings& proxy);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_FLEET_PLACES_H_
