#include "daemon/scheduling/global/policy/dedicated_policy.h"

#include "daemon/scheduling/global/policy/greedy.h"

namespace fineserve::plan {
namespace {

constexpr About kDedicated = {"dedicated", Tier::kPaper,
                              "a GPU for each model"};

}  // namespace

const About& DedicatedPolicy::about() const { return kDedicated; }

Assignment DedicatedPolicy::Place(const Problem& problem,
                                  Journal* journal) const {
  if (journal != nullptr) {
    journal->measure = "free bytes, of empty groups (least wins)";
    journal->order = "base footprint F_M";
  }
  Assignment a(problem);
  const auto score = [](const Assignment& now, uint32_t,
                        const Group& group) -> absl::optional<Score> {
    if (Crowd(now, group) > 0) return absl::nullopt;
    return Score{-LeastRoom(now, group)};
  };
  PlaceInOrder(
      Descending(problem,
                 [](const Replica& r) { return r.tp * r.Footprint(); }),
      Charge::kLeast, score, &a, journal);
  return a;
}

}  // namespace fineserve::plan
