#include "daemon/scheduling/global/explain.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace fineserve::plan {
namespace {

std::string Ordinal(uint32_t n) {
  const uint32_t last = n % 10, tens = n / 10 % 10;
  if (tens == 1 || last == 0 || last > 3) return absl::StrCat(n, "th");
  return absl::StrCat(n, last == 1 ? "st" : last == 2 ? "nd" : "rd");
}

std::string Names(const std::vector<std::string>& gpus) {
  return absl::StrJoin(gpus, " + ");
}

const PlannedReplica* Find(const Plan& plan, const Reason& reason) {
  for (const PlannedReplica& r : plan.replicas) {
    if (r.model != reason.model) continue;
    if (reason.replica == r.model ||
        reason.replica == absl::StrCat(r.model, "#", r.number)) {
      return &r;
    }
  }
  return nullptr;
}

// Returns the names of the other replicas on the first GPU of `self`.
std::string Neighbours(const Plan& plan, const PlannedReplica& self) {
  std::vector<std::string> names;
  for (const PlannedReplica& r : plan.replicas) {
    if (&r == &self || r.gpus.empty()) continue;
    const bool meets = std::any_of(
        r.gpus.begin(), r.gpus.end(), [&self](const std::string& g) {
          return std::find(self.gpus.begin(), self.gpus.end(), g) !=
                 self.gpus.end();
        });
    if (meets) names.push_back(r.model);
  }
  if (names.empty()) return "alone";
  return absl::StrCat("with ", absl::StrJoin(names, ", "));
}

// Says by how much the group lost to the chosen one.
std::string Lost(const Reason& reason, double chosen, double score) {
  const double by = reason.least_is_best ? score - chosen : chosen - score;
  if (by == 0) return "as good; the tie goes to the chosen one";
  if (by < 0) return "better, but it does not fit";
  const double base = std::abs(reason.least_is_best ? score : chosen);
  if (base == 0 || !std::isfinite(by)) return "worse";
  return absl::StrFormat("%.1f %% worse", 100 * by / base);
}

// Says why a replica without a place did not take this group.
std::string Unused(const Reason& reason) {
  return reason.all_fit ? "not worth it" : "best, but it does not fit";
}

// Appends why fewer replicas are placed than were asked for.
void AppendNumber(const Plan& plan, const Reason& reason, std::string* text) {
  if (!reason.all_fit || reason.considered.empty()) return;
  int asked = 0, placed = 0;
  for (const PlannedReplica& r : plan.replicas) {
    if (r.model != reason.model) continue;
    ++asked;
    placed += !r.gpus.empty();
  }
  if (placed == 0) return;
  const ConsideredGroup& best = reason.considered.front();
  const double more = best.score - plan.worth.goodput;
  absl::StrAppendFormat(
      text, "  %d replicas asked for, %d placed: one more on %s would ", asked,
      placed, Names(best.gpus));
  if (more < -1e-9 * plan.worth.goodput) {
    absl::StrAppendFormat(text, "cost the plan %.4g tokens/s of %.6g.\n", -more,
                          plan.worth.goodput);
  } else {
    absl::StrAppend(text, "add no tokens/s, and leave less for bursts.\n");
  }
}

void AppendScores(const Reason& reason, const PlannedReplica& r,
                  std::string* text) {
  double chosen = 0;
  for (const ConsideredGroup& c : reason.considered) {
    if (c.gpus == r.gpus) chosen = c.score;
  }
  absl::StrAppendFormat(text, "  scores are %s, the %s wins:\n", reason.measure,
                        reason.least_is_best ? "lowest" : "highest");
  for (const ConsideredGroup& c : reason.considered) {
    absl::StrAppendFormat(text, "    %-24s %14.6g  %s\n", Names(c.gpus),
                          c.score,
                          c.gpus == r.gpus ? "chosen"
                          : r.gpus.empty() ? Unused(reason)
                                           : Lost(reason, chosen, c.score));
  }
  if (reason.more_considered > 0) {
    absl::StrAppendFormat(text, "    and %d that are worse\n",
                          reason.more_considered);
  }
}

void Append(const Plan& plan, const Reason& reason, std::string* text) {
  const PlannedReplica* r = Find(plan, reason);
  if (r == nullptr) return;
  if (r->gpus.empty()) {
    absl::StrAppend(text, reason.replica, " has no place.\n");
    AppendNumber(plan, reason, text);
  } else {
    absl::StrAppend(text, reason.replica, " is on ", Names(r->gpus), ", ",
                    Neighbours(plan, *r), ".\n");
  }
  absl::StrAppend(text, "  It came ", Ordinal(reason.turn),
                  ", in the order of ", reason.order, ".\n");
  if (!reason.considered.empty()) AppendScores(reason, *r, text);
  for (const std::string& no : reason.rejected) {
    absl::StrAppend(text, "    no candidate: ", no, "\n");
  }
  if (reason.more_rejected > 0) {
    absl::StrAppendFormat(text, "    and %d more are no candidates\n",
                          reason.more_rejected);
  }
}

void Append(const RestingPlace& r, std::string* text) {
  absl::StrAppendFormat(
      text,
      "  Its place on %s rests: the GPU keeps %.1f GiB for its context, %s "
      "%.1f GiB for its process and %.1f GiB in the store.\n",
      r.gpu, r.context_bytes / kGib, NodeTitle(r.node), r.process_bytes / kGib,
      r.store_bytes / kGib);
}

std::string Because(const NotResting& n) {
  switch (n.why) {
    case NotResting::Why::kHostMemory:
      if (n.culprit == n.model) {
        return absl::StrFormat("the host memory is %.1f GiB short",
                               n.missing_bytes / kGib);
      }
      return absl::StrFormat(
          "the host memory is %.1f GiB short for one of %s, which comes before",
          n.missing_bytes / kGib, n.culprit);
    case NotResting::Why::kGpuMemory:
      return absl::StrFormat(
          "%s, which comes nearest, is %.1f GiB short for a context beside the "
          "KV of a burst",
          n.culprit, n.missing_bytes / kGib);
    case NotResting::Why::kHostUnknown:
      return "its host memory is not known";
    case NotResting::Why::kMayNot:
      return "may_rest is not set";
  }
  return "";
}

void Append(const NotResting& n, std::string* text) {
  if (n.why == NotResting::Why::kMayNot) {
    absl::StrAppend(text, "  None of its places rests");
  } else {
    absl::StrAppendFormat(text, "  %d of its places on %s %s not rest",
                          n.places, NodeTitle(n.node),
                          n.places == 1 ? "does" : "do");
  }
  absl::StrAppend(text, ": ", Because(n), ".\n");
}

}  // namespace

absl::StatusOr<std::string> Explain(const Plan& plan,
                                    const std::string& model) {
  std::string text;
  std::vector<std::string> models;
  for (const PlannedReplica& r : plan.replicas) {
    if (models.empty() || models.back() != r.model) models.push_back(r.model);
  }
  if (std::find(models.begin(), models.end(), model) == models.end()) {
    return absl::NotFoundError(absl::StrCat("there is no model \"", model,
                                            "\" in the plan; there are ",
                                            absl::StrJoin(models, ", ")));
  }
  absl::StrAppend(&text, "Placed by ", plan.policy, " (", TierName(plan.tier),
                  ": ", plan.source, ").\n");
  for (const Reason& reason : plan.reasons) {
    if (reason.model == model) Append(plan, reason, &text);
  }
  for (const RestingPlace& r : plan.resting) {
    if (r.model == model) Append(r, &text);
  }
  for (const NotResting& n : plan.not_resting) {
    if (n.model == model) Append(n, &text);
  }
  for (const Trouble& t : plan.troubles) {
    if (t.model == model) absl::StrAppend(&text, t.text, "\n");
  }
  return text;
}

}  // namespace fineserve::plan
