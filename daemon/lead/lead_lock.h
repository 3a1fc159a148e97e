#ifndef DAEMON_LEAD_LEAD_LOCK_H_
#define DAEMON_LEAD_LEAD_LOCK_H_

#include <sys/types.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::lead {

// Who leads, or would.
struct Contender {
  pid_t pid = 0;
  std::string gpu;    // UUID of its daemon's GPU
  std::string fleet;  // config::FleetPath
};

// The lead of a runtime folder: its file leader.lock, locked (flock) by the one
// process that leads; the kernel releases it when that process ends. The file
// says who that is, "PID GPU\nFLEET\n", and who it was once nobody leads.
// Confined to a thread.
class LeadLock {
 public:
  // Takes the lead for `who`, whose pid is this process's. FailedPrecondition
  // if another process has it.
  static absl::StatusOr<LeadLock> Take(const std::string& folder,
                                       const Contender& who);

  // Whether who led last led another fleet.
  bool follows_another_fleet() const { return follows_another_fleet_; }

 private:
  LeadLock(driver::Descriptor lock, bool follows_another_fleet)
      : lock_(std::move(lock)), follows_another_fleet_(follows_another_fleet) {}

  driver::Descriptor lock_;
  bool follows_another_fleet_;
};

// Who leads, or led last. All empty if nobody ever did.
Contender LeaderNamed(const std::string& folder);
// Whether somebody leads now.
bool IsLed(const std::string& folder);
// Whether `leader` leads, or led, another fleet than `who` would.
bool LeadsAnotherFleet(const Contender& leader, const Contender& who);

}  // namespace fineserve::lead

#endif  // DAEMON_LEAD_LEAD_LOCK_H_
