#ifndef DAEMON_FINESERVED_ADMISSION_DRAINED_ENGINES_H_
#define DAEMON_FINESERVED_ADMISSION_DRAINED_ENGINES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace fineserve::admission {

// The engines that get no new requests because an operator said so (fsctl
// drain), by name, and whether the GPU is to be emptied. A drain ends when it
// is undone: it is kept in a file, one name a line, and so outlives other
// fleets and this daemon, but not the file's folder. Confined to a thread.
class DrainedEngines {
 public:
  // Reads the file at `path`, if there is one. Empty: nothing is kept.
  explicit DrainedEngines(std::string path);

  bool Has(const std::string& engine) const { return names_.count(engine) > 0; }
  // True if the planner is to move all models away from this GPU.
  bool empties() const { return names_.count(kGpu) > 0; }
  // Since when the engine is drained by SteadyNow's clock, by itself or with
  // the GPU; of a drain that a former daemon was given, when the last one of
  // these was. nullopt: it is not.
  absl::optional<absl::Time> Since(const std::string& engine) const;

  // Drains these engines, or ends their drain and that of the GPU. Unavailable,
  // and nothing is changed, if it cannot be kept.
  absl::Status Set(const std::vector<std::string>& engines, bool on);
  // Drains the GPU. `at_once`: engines that get no requests from now on.
  absl::Status Empty(std::vector<std::string> at_once);

 private:
  // No engine's name. A daemon of the former release takes it for one.
  static constexpr char kGpu[] = "*";

  using Names = std::map<std::string, absl::Time>;  // and since when
  absl::Status Keep(const Names& names) const;

  const std::string path_;
  Names names_;
};

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_DRAINED_ENGINES_H_
