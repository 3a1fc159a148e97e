#ifndef DAEMON_ADMISSION_DRAINED_ENGINES_H_
#define DAEMON_ADMISSION_DRAINED_ENGINES_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace fineserve::admission {

// The engines that get no new requests because an operator said so (fsctl
// drain), by name, or all of this GPU, those that come later too. A drain ends
// when it is undone: it is kept in a file, one name a line, and so outlives
// other fleets and this daemon, but not the folder in which it lies. Confined
// to a thread.
class DrainedEngines {
 public:
  // Reads the file at `path`, if there is one. Empty: nothing is kept.
  explicit DrainedEngines(std::string path);

  bool Has(const std::string& engine) const {
    return has_all() || names_.count(engine) > 0;
  }
  // Whether the GPU as a whole is drained.
  bool has_all() const { return names_.count(kAll) > 0; }

  // Drains these engines, or ends their drain, and that of the GPU as a whole.
  // Unavailable, and nothing is changed, if it cannot be kept.
  absl::Status Set(const std::vector<std::string>& engines, bool on);
  // Drains the GPU, or ends that and each of its engines' drain. `engines`:
  // those that it has now.
  absl::Status SetAll(std::vector<std::string> engines, bool on);

 private:
  // No engine's name. A daemon of the former release takes it for one, and goes
  // by the names beside it.
  static constexpr char kAll[] = "*";

  absl::Status Keep(const std::set<std::string>& names) const;

  const std::string path_;
  std::set<std::string> names_;
};

}  // namespace fineserve::admission

#endif  // DAEMON_ADMISSION_DRAINED_ENGINES_H_
