#include "daemon/scheduling/lead/plan_store.h"

#include <stdio.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/whole_file.h"

namespace fineserve::lead {
namespace {

// Lines of history that are kept: when there are twice as many, the older half
// is removed.
constexpr size_t kHistoryLines = 1000;

std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

PlanStore PlanStore::Open(const std::string& folder, LeadLock lead) {
  if (lead.follows_another_fleet()) {
    const std::string path = folder + "/plan.json";
    rename(path.c_str(), (path + ".other").c_str());
  }
  return PlanStore(std::move(lead), folder);
}

absl::StatusOr<PlanStore> PlanStore::Open(const std::string& folder) {
  absl::StatusOr<LeadLock> lead = LeadLock::Take(folder, {});
  if (!lead.ok()) return lead.status();
  return Open(folder, *std::move(lead));
}

absl::StatusOr<StandingPlan> PlanStore::Read() const {
  if (!lead_) return absl::NotFoundError("no plan is kept");
  const std::string path = folder_ + "/plan.json";
  const absl::StatusOr<std::string> text = base::ReadWholeFile(path);
  if (!text.ok()) return text.status();
  absl::StatusOr<StandingPlan> plan = ParsePlan(*text);
  if (plan.ok()) return plan;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", plan.status().message()));
}

PlanStore::PlanStore(absl::optional<LeadLock> lead, std::string folder)
    : lead_(std::move(lead)), folder_(std::move(folder)) {
  if (lead_) history_ = Lines(folder_ + "/plan.history");
}

absl::Status PlanStore::Write(const StandingPlan& plan,
                              const std::string& history_line) {
  absl::Status s;
  if (lead_) s = lead_->Hold();
  if (s.ok() && lead_) s = Put(PlanText(plan));
  if (s.ok() && !history_line.empty()) Remember(history_line);
  return s;
}

absl::Status PlanStore::Put(const std::string& text) {
  const std::string path = folder_ + "/plan.json";
  const absl::Status s = base::ReplaceFile(path, text);
  if (!s.ok()) return s;
  text_ = text;
  written_ = MarkOf(path);
  return s;
}

absl::Status PlanStore::Hold() {
  if (!lead_) return absl::OkStatus();
  if (absl::Status s = lead_->Hold(); !s.ok()) return s;
  if (text_.empty() || MarkOf(folder_ + "/plan.json") == written_) {
    return absl::OkStatus();
  }
  Put(text_).IgnoreError();  // else with the next call
  return absl::OkStatus();
}

// If a line cannot be written, it is lost: only the plan itself matters.
void PlanStore::Remember(const std::string& line) {
  const std::string path = folder_ + "/plan.history";
  history_.push_back(line);
  if (history_.size() < 2 * kHistoryLines) {
    if (lead_) std::ofstream(path, std::ios::app) << line << "\n";
    return;
  }
  history_ = History(kHistoryLines);
  if (!lead_) return;
  base::ReplaceFile(path, absl::StrJoin(history_, "\n") + "\n").IgnoreError();
}

std::vector<std::string> PlanStore::History(size_t most) const {
  const size_t reported = std::min(most, history_.size());
  return {history_.end() - static_cast<std::ptrdiff_t>(reported),
          history_.end()};
}

}  // namespace fineserve::lead
