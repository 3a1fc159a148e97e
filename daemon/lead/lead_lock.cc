#include "daemon/lead/lead_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "daemon/config/fleet_path.h"

namespace fineserve::lead {
namespace {

std::string PathIn(const std::string& folder) {
  return folder + "/leader.lock";
}

}  // namespace

absl::StatusOr<LeadLock> LeadLock::Take(const std::string& folder,
                                        const Contender& who) {
  const std::string path = PathIn(folder);
  driver::Descriptor lock(
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) {
    return absl::UnavailableError(
        absl::StrCat("cannot open ", path, ": ", strerror(errno)));
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError("another daemon leads");
  }
  const bool follows_another = LeadsAnotherFleet(LeaderNamed(folder), who);
  const std::string text =
      absl::StrCat(getpid(), " ", who.gpu, "\n", who.fleet, "\n");
  if (ftruncate(lock.get(), 0) != 0 ||
      pwrite(lock.get(), text.data(), text.size(), 0) < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot write ", path, ": ", strerror(errno)));
  }
  return LeadLock(std::move(lock), follows_another);
}

Contender LeaderNamed(const std::string& folder) {
  Contender leader;
  std::ifstream file(PathIn(folder));
  std::string first;
  std::getline(file, first);
  std::getline(file, leader.fleet);
  std::istringstream(first) >> leader.pid >> leader.gpu;
  return leader;
}

bool IsLed(const std::string& folder) {
  const driver::Descriptor lock(
      open(PathIn(folder).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  // Who else tries in these µs tries again.
  return lock.valid() && flock(lock.get(), LOCK_SH | LOCK_NB) != 0;
}

bool LeadsAnotherFleet(const Contender& leader, const Contender& who) {
  return leader.pid != 0 && !config::IsSameFleet(leader.fleet, who.fleet);
}

}  // namespace fineserve::lead
