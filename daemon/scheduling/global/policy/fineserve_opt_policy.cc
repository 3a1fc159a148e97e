#include "daemon/scheduling/global/policy/fineserve_opt_policy.h"

#include <algorithm>
#include <utility>

#include "daemon/scheduling/global/policy/fineserve_policy.h"
#include "daemon/scheduling/global/policy/greedy.h"
#include "daemon/scheduling/global/policy/prism_policy.h"
#include "daemon/scheduling/global/policy/repack_all.h"

namespace fineserve::plan {
namespace {

constexpr About kFineServeOptAbout = {
    "fineserve-opt", Tier::kOurs,
    "best construction, bettered on goodput by moves, "
    "swaps and packing parts of it again"};

// Places the largest replicas first. If `tight`, each goes where the least room
// is left, so that as many as possible find a place; otherwise where the most
// is left, so that the load spreads.
Assignment BySize(const Problem& p, bool tight) {
  Assignment a(p);
  const double sign = tight ? -1 : 1;
  const auto score = [sign](const Replica&, const GroupState& group) {
    return Score{sign * group.room};
  };
  PlaceByState(Descending(p, [](const Replica& r) { return r.tp * r.Least(); }),
               Charge::kLeast, Efficiency::kStructural, score, &a, nullptr);
  return a;
}

// Returns the constructions. `few`: every construction that might help, not
// only the fast ones.
std::vector<Assignment> Constructions(const Problem& p, bool few) {
  // The present placement is first, so that it wins if others are equal, and
  // nothing moves without a gain.
  std::vector<Assignment> all = {AsItIs(p)};
  all.push_back(
      FineServePolicy(FineServePolicy::Scoring::kMean, Efficiency::kStructural)
          .Place(p, nullptr));
  all.push_back(BySize(p, false));
  all.push_back(BySize(p, true));
  if (few) {
    all.push_back(FineServePolicy(FineServePolicy::Scoring::kExact,
                                  Efficiency::kStructural)
                      .Place(p, nullptr));
    all.push_back(PrismPolicy(PrismPolicy::Form::kMended, Pressure::kV3, 0)
                      .Place(p, nullptr));
  }
  return all;
}

}  // namespace

Assignment AsItIs(const Problem& p) {
  Assignment a(p);
  for (uint32_t r = 0; r < p.replicas.size(); ++r) {
    const Group& now = p.current[r];
    if (!now.empty() && a.Takes(now, r, Charge::kLeast)) a.Put(r, now);
  }
  return a;
}

const About& FineServeOptPolicy::about() const { return kFineServeOptAbout; }

Assignment FineServeOptPolicy::Place(const Problem& problem,
                                     Journal* journal) const {
  const bool few = problem.replicas.size() <= limits_.few_replicas;
  std::vector<Assignment> all = Constructions(problem, few);
  const auto better = [](const Assignment& x, const Assignment& y) {
    return Better(WorthOf(x, Sharing::kPool), WorthOf(y, Sharing::kPool));
  };
  if (!few) {
    std::iter_swap(all.begin(),
                   std::min_element(all.begin(), all.end(), better));
    all.resize(1, Assignment(problem));
  }
  for (Assignment& a : all) Improve(limits_, &a);
  Assignment best = *std::min_element(all.begin(), all.end(), better);
  RepackAll(limits_, &best);
  if (journal != nullptr) NoteAlternatives(best, journal);
  return best;
}

void NoteAlternatives(const Assignment& a, Journal* journal) {
  journal->measure = "tokens/s of the whole plan with it there";
  journal->all_fit = true;
  journal->order = "names, after moves and swaps had ended";
  Assignment copy = a;
  Board board(&copy);
  for (uint32_t r = 0; r < a.problem().replicas.size(); ++r) {
    const bool wanted = journal->only_model == Journal::kAll ||
                        journal->only_model == a.problem().replicas[r].model;
    if (!wanted) continue;
    Decision decision{r, {}, {}};
    const Group home = a.GroupOf(r);
    if (!home.empty()) board.Remove(r);
    NoteRejections(copy, r, Charge::kLeast, &decision);
    std::vector<Candidate> candidates;
    ForEachGroup(copy, r, Charge::kLeast, [&](const Group& group) {
      candidates.push_back({group, board.WorthWith(r, group).goodput});
    });
    NoteCandidates(std::move(candidates), false, &decision);
    journal->decisions.push_back(std::move(decision));
    if (!home.empty()) board.Put(r, home);
  }
}

}  // namespace fineserve::plan
