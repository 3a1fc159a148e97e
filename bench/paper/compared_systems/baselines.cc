#include "bench/paper/compared_systems/baselines.h"

#include <algorithm>
#include <utility>

#include "daemon/scheduling/global/model/groups.h"
#include "daemon/scheduling/global/policy/fineserve_policy.h"
#include "daemon/scheduling/global/policy/greedy.h"
#include "daemon/scheduling/global/score/goodput.h"

namespace fineserve::bench {

using plan::About;
using plan::Assignment;
using plan::Charge;
using plan::Descending;
using plan::Group;
using plan::Journal;
using plan::PlaceInOrder;
using plan::Problem;
using plan::Replica;
using plan::Score;
using plan::Sharing;
using plan::Tier;

namespace {

constexpr About kStatic = {"static", Tier::kPaper,
                           "FineServe's Static*: its placement, partitioned",
                           Sharing::kFootprint, Charge::kFootprint};
constexpr About kPartition = {"s-partition", Tier::kPaper,
                              "Prism's S-Partition; placement ours",
                              Sharing::kEqual};
constexpr About kMuxServe = {"muxserve", Tier::kPaper,
                             "MuxServe, Algorithm 1, at the given TP"};
constexpr About kQlm = {"qlm", Tier::kPaper,
                        "QLM as Prism describes it: turns on a whole GPU",
                        Sharing::kTime};

void Say(Journal* journal, const char* measure, const char* order) {
  if (journal == nullptr) return;
  journal->measure = measure;
  journal->order = order;
}

}  // namespace

const About& StaticPolicy::about() const { return kStatic; }

Assignment StaticPolicy::Place(const Problem& problem, Journal* journal) const {
  return plan::FineServePolicy(plan::FineServePolicy::Scoring::kMean,
                               plan::Efficiency::kStructural)
      .Place(problem, journal);
}

const About& PartitionPolicy::about() const { return kPartition; }

Assignment PartitionPolicy::Place(const Problem& problem,
                                  Journal* journal) const {
  Say(journal, "models there (fewest win)", "weights");
  Assignment a(problem);
  const auto score = [](const Assignment& now, uint32_t,
                        const Group& group) -> absl::optional<Score> {
    return Score{-static_cast<double>(plan::Crowd(now, group)),
                 plan::LeastRoom(now, group)};
  };
  PlaceInOrder(
      Descending(problem,
                 [](const Replica& r) { return r.tp * r.weight_bytes; }),
      Charge::kLeast, score, &a, journal);
  return a;
}

const About& MuxServePolicy::about() const { return kMuxServe; }

Assignment MuxServePolicy::Place(const Problem& problem,
                                 Journal* journal) const {
  Say(journal, "tokens/s that it adds", "computation asked for");
  Assignment a(problem);
  Assignment trial(problem);
  plan::Board board(&trial);
  uint32_t last = 0;  // the replica that was asked about last
  const auto score = [&](const Assignment& now, uint32_t r,
                         const Group& group) -> absl::optional<Score> {
    // Applies the last decision to `trial`.
    if (last != r && now.Hosted(last)) board.Put(last, now.GroupOf(last));
    last = r;
    const plan::Worth before = board.worth();
    const plan::Worth after = board.WorthWith(r, group);
    return Score{after.goodput - before.goodput,
                 after.headroom - before.headroom};
  };
  const auto computation = [&](const Replica& r) {
    const plan::ModelDemand& m = problem.models[r.model];
    return r.rate * (m.prompt_tokens + m.output_tokens) * r.tp * r.weight_bytes;
  };
  PlaceInOrder(Descending(problem, computation), Charge::kLeast, score, &a,
               journal);
  return a;
}

const About& QlmPolicy::about() const { return kQlm; }

Assignment QlmPolicy::Place(const Problem& problem, Journal* journal) const {
  Say(journal, "work already there", "work");
  if (journal != nullptr) journal->least_is_best = true;
  Assignment a(problem);
  const Assignment alone(problem);
  std::vector<double> work(problem.gpus.size());
  const auto work_of = [](const Replica& r) {
    return r.curve.demand / r.curve.Speed(r.curve.max_batch, 1);
  };
  for (const uint32_t r : Descending(problem, work_of)) {
    const Replica& replica = problem.replicas[r];
    plan::Decision decision{r, {}, {}};
    std::vector<plan::Candidate> candidates;
    plan::ForEachChoice(problem, replica, [&](absl::Span<const uint32_t> gpus) {
      std::vector<std::pair<double, uint32_t>> open;
      for (const uint32_t g : gpus) {
        const bool fits = alone.Missing(g, r, Charge::kLeast) <= 0;
        if (fits && !a.Sibling(r, g)) open.push_back({work[g], g});
      }
      if (open.size() < replica.tp) return;
      std::sort(open.begin(), open.end());
      plan::Candidate c;
      for (size_t i = 0; i < replica.tp; ++i) {
        c.group.push_back(open[i].second);
        c.score = open[i].first;
      }
      std::sort(c.group.begin(), c.group.end());
      candidates.push_back(c);
    });
    plan::NoteCandidates(std::move(candidates), true, &decision);
    if (!decision.candidates.empty()) {
      a.Put(r, decision.candidates[0].group);
      for (const uint32_t g : a.GroupOf(r)) work[g] += work_of(replica);
    }
    if (journal != nullptr) journal->decisions.push_back(std::move(decision));
  }
  return a;
}

absl::StatusOr<std::unique_ptr<plan::Policy>> MakePlacement(
    const std::string& name) {
  if (name == kStatic.name) return std::make_unique<StaticPolicy>();
  if (name == kPartition.name) return std::make_unique<PartitionPolicy>();
  if (name == kMuxServe.name) return std::make_unique<MuxServePolicy>();
  if (name == kQlm.name) return std::make_unique<QlmPolicy>();
  return plan::MakePolicy(name, plan::PolicyOptions());
}

std::vector<std::string> PlacementNames() {
  std::vector<std::string> names = {kStatic.name, kPartition.name,
                                    kMuxServe.name, kQlm.name};
  for (std::string& name : plan::PolicyNames()) names.push_back(name);
  return names;
}

}  // namespace fineserve::bench
