#ifndef DAEMON_FINESERVED_ADMISSION_DRAINED_ENGINES_H_
#define DAEMON_FINESERVED_ADMISSION_DRAINED_ENGINES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace fineserve::admission {

// The engines that get no new requests because an operator drained them (fsctl
// drain), by name, and whether the GPU must be emptied. A drain lasts until it
// is undone. It is kept in a file, with one name on each line, so it outlives
// this daemon and a change of the fleet, but not the file's folder. Confined to
// a thread.
class DrainedEngines {
 public:
  // Reads the file at `path`, if it exists. If `path` is empty, nothing is
  // kept.
  explicit DrainedEngines(std::string path);

  bool Has(const std::string& engine) const { return names_.count(engine) > 0; }
  // True if the planner must move all models away from this GPU.
  bool empties() const { return names_.count(kGpu) > 0; }
  // Returns the start of the engine's drain by SteadyNow's clock, whether the
  // engine or the whole GPU is drained. For a drain from a former daemon, it is
  // the start of that daemon's last drain. nullopt if the engine is not
  // drained.
  absl::optional<absl::Time> Since(const std::string& engine) const;

  // Drains these engines, or ends their drains and the GPU's. Unavailable, with
  // nothing changed, if the file cannot be written.
  absl::Status Set(const std::vector<std::string>& engines, bool on);
  // Drains the GPU. `at_once`: engines that get no requests from now on.
  absl::Status Empty(std::vector<std::string> at_once);

 private:
  // Denotes the whole GPU in the file. A daemon of the previous release takes
  // it for an engine's name.
  static constexpr char kGpu[] = "*";

  using Names = std::map<std::string, absl::Time>;  // and since when
  absl::Status Keep(const Names& names) const;

  const std::string path_;
  Names names_;
};

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_DRAINED_ENGINES_H_
