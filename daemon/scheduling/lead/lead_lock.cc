#include "daemon/scheduling/lead/lead_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::lead {
namespace {

FileMark Of(const struct stat& st) {
  return {st.st_dev, st.st_ino,
          st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec};
}

std::string PathIn(const std::string& folder) {
  return folder + "/leader.lock";
}

absl::Status Sign(const driver::Descriptor& lock, const Contender& who,
                  const std::string& path) {
  const std::string text =
      absl::StrCat(getpid(), " ", who.gpu, "\n", who.fleet, "\n");
  if (ftruncate(lock.get(), 0) != 0 ||
      pwrite(lock.get(), text.data(), text.size(), 0) < 0) {
    return base::Cannot("write", path);
  }
  return absl::OkStatus();
}

}  // namespace

FileMark MarkOf(const std::string& path) {
  struct stat st;
  return lstat(path.c_str(), &st) == 0 ? Of(st) : FileMark();
}

FileMark MarkOf(int descriptor) {
  struct stat st;
  return fstat(descriptor, &st) == 0 ? Of(st) : FileMark();
}

absl::StatusOr<LeadLock> LeadLock::Take(const std::string& folder,
                                        const Contender& who) {
  const std::string path = PathIn(folder);
  driver::Descriptor lock(
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return base::Cannot("open", path);
  const bool is_free = flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
  // The file that was opened may have been replaced in the meantime.
  if (!is_free || !MarkOf(lock.get()).IsSameFile(MarkOf(path))) {
    return absl::FailedPreconditionError("another daemon leads");
  }
  const bool follows_another = LeadsAnotherFleet(LeaderNamed(folder), who);
  if (absl::Status s = Sign(lock, who, path); !s.ok()) return s;
  LeadLock lead(std::move(lock), folder, who);
  lead.follows_another_fleet_ = follows_another;
  return lead;
}

absl::StatusOr<LeadLock> LeadLock::TakeFromStopped(const std::string& folder,
                                                   const Contender& who,
                                                   const FileMark& seen) {
  const std::string path = PathIn(folder), next = path + ".next";
  // Only one of several contenders takes the lead; it releases this lock once
  // it has the lead.
  const driver::Descriptor turn(open((path + ".turn").c_str(),
                                     O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                                     0600));
  if (!turn.valid()) return base::Cannot("open", path + ".turn");
  if (flock(turn.get(), LOCK_EX | LOCK_NB) != 0 || MarkOf(path) != seen) {
    return absl::FailedPreconditionError("another daemon leads");
  }
  unlink(next.c_str());
  driver::Descriptor lock(open(
      next.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid() || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return base::Cannot("lock", next);
  }
  if (absl::Status s = Sign(lock, who, next); !s.ok()) return s;
  if (rename(next.c_str(), path.c_str()) != 0)
    return base::Cannot("make", path);
  LeadLock lead(std::move(lock), folder, who);
  lead.was_taken_from_stopped_ = true;
  return lead;
}

absl::Status LeadLock::Hold() {
  const FileMark there = MarkOf(PathIn(folder_));
  if (there.IsSameFile(MarkOf(lock_.get()))) {
    futimens(lock_.get(), nullptr);
    return absl::OkStatus();
  }
  if (there != FileMark()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "pid ", LeaderNamed(folder_).pid, " has taken the lead since"));
  }
  absl::StatusOr<LeadLock> again = Take(folder_, who_);
  if (!again.ok()) return again.status();
  lock_ = std::move(again->lock_);
  return absl::OkStatus();
}

FileMark MarkOfLead(const std::string& folder) {
  return MarkOf(PathIn(folder));
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
  // If a contender tries while this lock is held, for some µs, it tries again.
  return lock.valid() && flock(lock.get(), LOCK_SH | LOCK_NB) != 0;
}

bool LeadsAnotherFleet(const Contender& leader, const Contender& who) {
  return leader.pid != 0 && !config::IsSameFleet(leader.fleet, who.fleet);
}

}  // namespace fineserve::lead
