#include "daemon/scheduling/global/policy/prism_policy.h"

#include <algorithm>
#include <utility>

#include "daemon/scheduling/global/model/groups.h"
#include "daemon/scheduling/global/policy/greedy.h"

namespace fineserve::plan {
namespace {

constexpr About kPrinted = {"prism", Tier::kPaper,
                            "Prism, Algorithm 1 as printed"};
constexpr About kMended = {"prism-mended", Tier::kOurs,
                           "Prism, Algorithm 1 with KVPR after placement, a "
                           "fit check and a threshold"};

}  // namespace

const About& PrismPolicy::about() const {
  return form_ == Form::kPrinted ? kPrinted : kMended;
}

double PrismPolicy::Ratio(const Assignment& a, uint32_t replica,
                          uint32_t gpu) const {
  const GpuPressure now = PressureOn(a, gpu, pressure_);
  if (form_ == Form::kPrinted) return now.Ratio();
  return now.With(a.problem().replicas[replica], pressure_).Ratio();
}

double PrismPolicy::Highest(const Assignment& a, uint32_t replica,
                            const Group& group) const {
  double highest = 0;
  for (const uint32_t g : group) {
    highest = std::max(highest, Ratio(a, replica, g));
  }
  return highest;
}

// Returns, for each choice of GPUs, the `tp` GPUs with the lowest KVPR.
std::vector<Candidate> PrismPolicy::Candidates(const Assignment& a,
                                               uint32_t replica) const {
  const Problem& p = a.problem();
  const Replica& r = p.replicas[replica];
  std::vector<Candidate> candidates;
  ForEachChoice(p, r, [&](absl::Span<const uint32_t> gpus) {
    std::vector<std::pair<double, uint32_t>> open;
    for (const uint32_t g : gpus) {
      const bool may = form_ == Form::kMended
                           ? a.Takes(g, replica, Charge::kLeast)
                           : !a.Sibling(replica, g);
      if (may) open.push_back({Ratio(a, replica, g), g});
    }
    if (open.size() < r.tp) return;
    std::sort(open.begin(), open.end());
    // With TP 1 every GPU is a candidate, so that the journal shows them all.
    const size_t starts = r.tp == 1 ? open.size() : 1;
    for (size_t s = 0; s < starts; ++s) {
      Group group;
      for (size_t i = s; i < s + r.tp; ++i) group.push_back(open[i].second);
      std::sort(group.begin(), group.end());
      // As printed, entries come one after another, so the KVPR of the first
      // one decides. In the mended form, a group is as bad as its worst GPU.
      candidates.push_back({group, form_ == Form::kPrinted
                                       ? open[s].first
                                       : Highest(a, replica, group)});
    }
  });
  return candidates;
}

Assignment PrismPolicy::Place(const Problem& problem, Journal* journal) const {
  if (journal != nullptr) {
    journal->measure = form_ == Form::kPrinted ? "KVPR before the model comes"
                                               : "KVPR with the model";
    journal->order = "SLO-weighted rate";
    journal->least_is_best = true;
  }
  Assignment a(problem);
  const auto order = Descending(
      problem, [this](const Replica& r) { return PressureOf(r, pressure_); });
  for (const uint32_t r : order) {
    std::vector<Candidate> candidates = Candidates(a, r);
    const auto best = std::min_element(
        candidates.begin(), candidates.end(),
        [](const Candidate& x, const Candidate& y) {
          return std::pair(x.score, x.group) < std::pair(y.score, y.group);
        });
    Decision decision{r, {}, {}};
    if (journal != nullptr) NoteRejections(a, r, Charge::kLeast, &decision);
    if (best != candidates.end()) {
      const Group& now = problem.current[r];
      const bool stays = !now.empty() && a.Takes(now, r, Charge::kLeast) &&
                         Highest(a, r, now) * (1 - stay_share_) <= best->score;
      const Group& chosen = stays ? now : best->group;
      if (a.Takes(chosen, r, Charge::kLeast)) a.Put(r, chosen);
    }
    if (journal == nullptr) continue;
    NoteCandidates(std::move(candidates), true, &decision);
    journal->decisions.push_back(std::move(decision));
  }
  return a;
}

}  // namespace fineserve::plan
