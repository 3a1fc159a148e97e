#include "daemon/scheduling/global/policy/fineserve_policy.h"

#include "daemon/scheduling/global/policy/greedy.h"
#include "daemon/scheduling/global/score/contested_score.h"

namespace fineserve::plan {
namespace {

constexpr About kMean = {"fineserve", Tier::kPaper,
                         "FineServe, Algorithm 1 with Eq. 3", Sharing::kPool,
                         Charge::kFootprint};
constexpr About kExact = {
    "fineserve-exact", Tier::kOurs,
    "FineServe, Algorithm 1 with Eqs. 1-2 by water-filling", Sharing::kPool,
    Charge::kFootprint};

}  // namespace

const About& FineServePolicy::about() const {
  return scoring_ == Scoring::kMean ? kMean : kExact;
}

Assignment FineServePolicy::Place(const Problem& problem,
                                  Journal* journal) const {
  if (journal != nullptr) {
    journal->measure = scoring_ == Scoring::kMean
                           ? "mean MME times contested memory"
                           : "tokens/s that contested memory adds";
    journal->order = "base footprint F_M";
  }
  Assignment a(problem);
  const auto order = Descending(
      problem, [](const Replica& r) { return r.tp * r.Footprint(); });
  if (scoring_ == Scoring::kMean) {
    const auto score = [this](const Replica& comes, const GroupState& group) {
      return Score{MeanScore(comes, group, efficiency_),
                   group.Contested(comes)};
    };
    PlaceByState(order, Charge::kFootprint, efficiency_, score, &a, journal);
    return a;
  }
  const auto score = [](const Assignment& now, uint32_t r,
                        const Group& group) -> absl::optional<Score> {
    return Score{ExactScore(now, r, group), ContestedBytes(now, r, group)};
  };
  PlaceInOrder(order, Charge::kFootprint, score, &a, journal);
  return a;
}

}  // namespace fineserve::plan
