#include "daemon/lead/plan_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fineserve::lead {
namespace {

// Lines of history that are kept: when there are twice as many, the older half
// goes.
constexpr size_t kHistoryLines = 1000;

std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// A reader finds the old file or the new one, whole.
absl::Status Replace(const std::string& path, const std::string& text) {
  const std::string next = path + ".new";
  std::ofstream file(next, std::ios::trunc);
  file << text;
  file.close();
  if (file && rename(next.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<PlanStore> PlanStore::Open(const std::string& folder) {
  const std::string path = folder + "/leader.lock";
  driver::Descriptor lock(
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) {
    return absl::UnavailableError(
        absl::StrCat("cannot open ", path, ": ", strerror(errno)));
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError("another daemon leads");
  }
  return PlanStore(std::move(lock), folder);
}

absl::StatusOr<StandingPlan> PlanStore::Read() const {
  if (folder_.empty()) return absl::NotFoundError("no plan is kept");
  const std::string path = folder_ + "/plan.json";
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no ", path));
  std::ostringstream text;
  text << file.rdbuf();
  absl::StatusOr<StandingPlan> plan = ParsePlan(text.str());
  if (plan.ok()) return plan;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", plan.status().message()));
}

PlanStore::PlanStore(driver::Descriptor lock, std::string folder)
    : lock_(std::move(lock)),
      folder_(std::move(folder)),
      history_(folder_.empty() ? std::vector<std::string>()
                               : Lines(folder_ + "/plan.history")) {}

absl::Status PlanStore::Write(const StandingPlan& plan,
                              const std::string& history_line) {
  const absl::Status s = folder_.empty()
                             ? absl::OkStatus()
                             : Replace(folder_ + "/plan.json", PlanText(plan));
  if (s.ok() && !history_line.empty()) Remember(history_line);
  return s;
}

// A line that cannot be written is lost: the plan itself is what counts.
void PlanStore::Remember(const std::string& line) {
  const std::string path = folder_ + "/plan.history";
  history_.push_back(line);
  const bool is_full = history_.size() >= 2 * kHistoryLines;
  if (is_full) history_ = History(kHistoryLines);
  if (folder_.empty()) return;
  if (!is_full) {
    std::ofstream(path, std::ios::app) << line << "\n";
    return;
  }
  Replace(path, absl::StrJoin(history_, "\n") + "\n").IgnoreError();
}

std::vector<std::string> PlanStore::History(size_t most) const {
  const size_t told = std::min(most, history_.size());
  return {history_.end() - static_cast<std::ptrdiff_t>(told), history_.end()};
}

}  // namespace fineserve::lead
