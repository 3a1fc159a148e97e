#ifndef DAEMON_FLEET_DOOR_FLEET_HOLDER_H_
#define DAEMON_FLEET_DOOR_FLEET_HOLDER_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/fleet/door/message.h"

namespace fineserve::apply {

// A process that runs by a fleet file and can reload it while it runs:
// fineserved, fineserve-proxy and fsctl up. This class holds what all three
// share, so that SIGHUP and `fsctl apply` have the same effect: the file is
// read and checked whole, and if anything is wrong the process keeps its former
// fleet.
class FleetHolder {
 public:
  virtual ~FleetHolder() = default;

  // Answers a question from the door.
  Answer Reply(const Question& question);

  // Handles SIGHUP: takes the file again, whatever its digest. An error says
  // why the process keeps its former fleet.
  absl::Status TakeAgain() { return Take(""); }

 protected:
  // Fills in the process's identity, its fleet's path and description, and its
  // state.
  virtual void DescribeTo(Answer* answer) const = 0;
  // Reads the file, makes all checks that need no change, and keeps the result
  // for TakeRead. `notes` receives the changes that TakeRead does not make.
  virtual absl::StatusOr<config::FleetDescription> Read(
      std::vector<std::string>* notes) = 0;
  // Uses the result of the last Read from now on.
  virtual absl::Status TakeRead() = 0;
  // Sets the time that engines may take to end, from now on.
  virtual void SetDrain(double seconds) {}
  // Answers the other questions. Unimplemented if it does not know one.
  virtual absl::Status Other(const Question& question);

 private:
  Answer Describe() const;
  // Carries out a question that changes something.
  absl::Status Do(const Question& question);
  // `digest` is the digest of the intended fleet; empty if any fleet will do.
  absl::Status Check(const std::string& digest,
                     std::vector<std::string>* notes);
  absl::Status Take(const std::string& digest);

  const std::chrono::steady_clock::time_point started_ =
      std::chrono::steady_clock::now();
};

}  // namespace fineserve::apply

#endif  // DAEMON_FLEET_DOOR_FLEET_HOLDER_H_
