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
// fineserved, fineserve-proxy and fsctl up. This class holds the part that all
// three share, so that SIGHUP and `fsctl apply` mean one thing: the file is
// read and checked whole, and if anything is wrong the process stays as it was.
class FleetHolder {
 public:
  virtual ~FleetHolder() = default;

  // Answers a question from the door.
  Answer Reply(const Question& question);

  // For SIGHUP: takes the file again, whatever its digest. An error says why
  // the process stays as it was.
  absl::Status TakeAgain() { return Take(""); }

 protected:
  // Fills in the process's identity, its fleet's path and description, and its
  // state.
  virtual void DescribeTo(Answer* answer) const = 0;
  // Reads the file, checks all that can be checked without a change, and keeps
  // the result for TakeRead. `notes` get the changes that TakeRead does not
  // make.
  virtual absl::StatusOr<config::FleetDescription> Read(
      std::vector<std::string>* notes) = 0;
  // From now on uses the result of the last Read.
  virtual absl::Status TakeRead() = 0;
  // Sets the time that engines that must end may take from now on.
  virtual void SetDrain(double seconds) {}
  // The other questions. Unimplemented unless it knows them.
  virtual absl::Status Other(const Question& question);

 private:
  Answer Describe() const;
  // Carries out a question that changes something.
  absl::Status Do(const Question& question);
  // `digest` is that of the intended fleet; empty: any.
  absl::Status Check(const std::string& digest,
                     std::vector<std::string>* notes);
  absl::Status Take(const std::string& digest);

  const std::chrono::steady_clock::time_point started_ =
      std::chrono::steady_clock::now();
};

}  // namespace fineserve::apply

#endif  // DAEMON_FLEET_DOOR_FLEET_HOLDER_H_
