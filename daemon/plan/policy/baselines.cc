#include "daemon/plan/policy/baselines.h"

#include <algorithm>
#include <limits>

#include "daemon/plan/policy/fineserve_policy.h"
#include "daemon/plan/policy/greedy.h"
#include "daemon/plan/score/goodput.h"

namespace fineserve::plan {
namespace {

constexpr About kStatic = {"static", Tier::kPaper,
                           "FineServe's Static*: its placement, partitioned",
                           Sharing::kFootprint, Charge::kFootprint};
constexpr About kDedicated = {"dedicated", Tier::kPaper,
                              "a GPU for each model"};
constexpr About kPartition = {"s-partition", Tier::kPaper,
                              "Prism's S-Partition; placement ours",
                              Sharing::kEqual};
constexpr About kMuxServe = {"muxserve", Tier::kPaper,
                             "MuxServe, Algorithm 1, at the given TP"};
constexpr About kQlm = {"qlm", Tier::kPaper,
                        "QLM as Prism describes it: turns on a whole GPU",
                        Sharing::kTime};

size_t Crowd(const Assignment& a, const Group& group) {
  size_t most = 0;
  for (const uint32_t g : group) most = std::max(most, a.On(g).size());
  return most;
}

double LeastRoom(const Assignment& a, const Group& group) {
  double room = std::numeric_limits<double>::infinity();
  for (const uint32_t g : group) {
    room = std::min(room, a.Room(g, Charge::kLeast));
  }
  return room;
}

void Say(Journal* journal, const char* measure, const char* order) {
  if (journal == nullptr) return;
  journal->measure = measure;
  journal->order = order;
}

}  // namespace

const About& StaticPolicy::about() const { return kStatic; }

Assignment StaticPolicy::Place(const Problem& problem, Journal* journal) const {
  return FineServePolicy(FineServePolicy::Scoring::kMean,
                         Efficiency::kStructural)
      .Place(problem, journal);
}

const About& DedicatedPolicy::about() const { return kDedicated; }

Assignment DedicatedPolicy::Place(const Problem& problem,
                                  Journal* journal) const {
  Say(journal, "free bytes, of empty groups (least wins)",
      "base footprint F_M");
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

const About& PartitionPolicy::about() const { return kPartition; }

Assignment PartitionPolicy::Place(const Problem& problem,
                                  Journal* journal) const {
  Say(journal, "models there (fewest win)", "weights");
  Assignment a(problem);
  const auto score = [](const Assignment& now, uint32_t,
                        const Group& group) -> absl::optional<Score> {
    return Score{-static_cast<double>(Crowd(now, group)),
                 LeastRoom(now, group)};
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
  Board board(&trial);
  uint32_t last = 0;  // the replica that was asked about last
  const auto score = [&](const Assignment& now, uint32_t r,
                         const Group& group) -> absl::optional<Score> {
    // `trial` follows what was decided.
    if (last != r && now.Hosted(last)) board.Put(last, now.GroupOf(last));
    last = r;
    const Worth before = board.worth();
    const Worth after = board.WorthWith(r, group);
    return Score{after.goodput - before.goodput,
                 after.headroom - before.headroom};
  };
  const auto computation = [&](const Replica& r) {
    const ModelDemand& m = problem.models[r.model];
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
    Decision decision{r, {}, {}};
    std::vector<Candidate> candidates;
    for (uint32_t n = 0; n + 1 < problem.node_begins.size(); ++n) {
      std::vector<std::pair<double, uint32_t>> open;
      for (uint32_t g = problem.node_begins[n]; g < problem.node_begins[n + 1];
           ++g) {
        const bool fits = alone.Missing(g, r, Charge::kLeast) <= 0;
        if (fits && problem.MayUse(replica, g) && !a.Sibling(r, g)) {
          open.push_back({work[g], g});
        }
      }
      if (open.size() < replica.tp) continue;
      std::sort(open.begin(), open.end());
      Candidate c;
      for (size_t i = 0; i < replica.tp; ++i) {
        c.group.push_back(open[i].second);
        c.score = open[i].first;
      }
      std::sort(c.group.begin(), c.group.end());
      candidates.push_back(c);
    }
    NoteCandidates(std::move(candidates), true, &decision);
    if (!decision.candidates.empty()) {
      a.Put(r, decision.candidates[0].group);
      for (const uint32_t g : a.GroupOf(r)) work[g] += work_of(replica);
    }
    if (journal != nullptr) journal->decisions.push_back(std::move(decision));
  }
  return a;
}

}  // namespace fineserve::plan
