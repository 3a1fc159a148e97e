#ifndef DAEMON_SCHEDULING_LEAD_LEAD_LOCK_H_
#define DAEMON_SCHEDULING_LEAD_LEAD_LOCK_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::lead {

// Identifies a file and its last write. Two successive files with the same path
// have different marks. All fields are 0 if there is no file.
struct FileMark {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t written_ns = 0;  // by the clock of the day: only to be compared
  bool operator==(const FileMark&) const = default;

  bool IsSameFile(const FileMark& other) const {
    return inode != 0 && device == other.device && inode == other.inode;
  }
};

FileMark MarkOf(const std::string& path);
FileMark MarkOf(int descriptor);

// A process that leads or tries to.
struct Contender {
  pid_t pid = 0;
  std::string gpu;    // UUID of its daemon's GPU
  std::string fleet;  // config::FleetPath
};

// The lead of a runtime folder: its file leader.lock, locked (flock) by the one
// process that leads; the kernel releases the lock when that process ends. The
// file names the leader, "PID GPU\nFLEET\n", and still names the last leader
// when the lead is free. Its modification time changes as long as the leader is
// healthy. A process whose lock is on a file that has been replaced does not
// lead. Confined to a thread.
class LeadLock {
 public:
  // Takes the lead for `who`, whose pid is this process's. FailedPrecondition
  // if another process has it.
  static absl::StatusOr<LeadLock> Take(const std::string& folder,
                                       const Contender& who);
  // Takes the lead from a process that holds it but does nothing: the file must
  // still be as it was at `seen`. FailedPrecondition if it has changed, or
  // another process is about to take the lead.
  static absl::StatusOr<LeadLock> TakeFromStopped(const std::string& folder,
                                                  const Contender& who,
                                                  const FileMark& seen);

  // Shows that the leader is healthy; to be called once a second. Creates the
  // file again if it was removed. FailedPrecondition if another process leads
  // now.
  absl::Status Hold();
  bool was_taken_from_stopped() const { return was_taken_from_stopped_; }

  // True if the last leader led another fleet.
  bool follows_another_fleet() const { return follows_another_fleet_; }

 private:
  LeadLock(driver::Descriptor lock, std::string folder, Contender who)
      : lock_(std::move(lock)),
        folder_(std::move(folder)),
        who_(std::move(who)) {}

  driver::Descriptor lock_;
  std::string folder_;
  Contender who_;
  bool follows_another_fleet_ = false;
  bool was_taken_from_stopped_ = false;
};

// The lock's file as it is now.
FileMark MarkOfLead(const std::string& folder);
// Returns the leader or, if there is none, the last one. All fields are empty
// if there never was one.
Contender LeaderNamed(const std::string& folder);
// True if a process leads now.
bool IsLed(const std::string& folder);
// True if `leader` leads, or led, a different fleet than `who` would.
bool LeadsAnotherFleet(const Contender& leader, const Contender& who);

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_LEAD_LOCK_H_
