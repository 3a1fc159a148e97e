#include "daemon/lead/plan_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"

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

absl::Status PlanStore::Write(const StandingPlan& plan,
                              const std::string& history_line) {
  const absl::Status s = Replace(folder_ + "/plan.json", PlanText(plan));
  if (!s.ok() || history_line.empty()) return s;
  const std::string path = folder_ + "/plan.history";
  std::vector<std::string> lines = Lines(path);
  lines.push_back(history_line);
  const size_t keep =
      lines.size() < 2 * kHistoryLines ? lines.size() : kHistoryLines;
  if (keep == lines.size()) {
    // A line that cannot be added is lost: the plan itself is what counts.
    std::ofstream(path, std::ios::app) << history_line << "\n";
    return s;
  }
  std::string text;
  for (auto it = lines.end() - static_cast<std::ptrdiff_t>(keep);
       it != lines.end(); ++it) {
    absl::StrAppend(&text, *it, "\n");
  }
  // Not reported, as above.
  Replace(path, text).IgnoreError();
  return s;
}

std::vector<std::string> PlanStore::History(size_t most) const {
  std::vector<std::string> lines = Lines(folder_ + "/plan.history");
  if (lines.size() > most) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
  }
  return lines;
}

}  // namespace fineserve::lead
