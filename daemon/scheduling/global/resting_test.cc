#include "daemon/scheduling/global/resting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/scheduling/global/explain.h"
#include "daemon/scheduling/global/make_plan.h"
#include "daemon/scheduling/global/prices.h"
#include "daemon/scheduling/global/testdata/apex_profiles.h"
#include "daemon/scheduling/global/testdata/quick_options.h"
#include "daemon/scheduling/global/testdata/random_snapshot.h"

namespace fineserve::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Fewer seeds under sanitizers, which look for other errors and take far
// longer.
#if defined(FINESERVE_SANITIZED)
constexpr uint64_t kSeeds = 4;
#else
constexpr uint64_t kSeeds = 60;
#endif

constexpr double kContext = kGib / 2;
constexpr double kProcess = 6 * kGib;
constexpr double kActivations = kGib;
constexpr double kWeights = 15 * kGib;
constexpr double kFirst = kWeights + kActivations + kProcess;  // of the host
constexpr double kNext = kActivations + kProcess;

ModelDemand Model(const std::string& name, double rate) {
  ModelDemand m = {name, "llama", "fp16", 1, rate, 200, 300, 60.0};
  m.replicas = 1;
  m.context_bytes = kContext;
  m.process_bytes = kProcess;
  m.may_rest = true;
  return m;
}

// One node, on whose GPUs rates of a few requests/s leave memory.
Snapshot OneNode(const std::vector<ModelDemand>& models, size_t gpus,
                 double host_bytes) {
  Snapshot s;
  Profile profile = Tp1Profiles()[0];
  profile.architecture = "llama";
  profile.quantisation = "fp16";
  profile.weight_bytes = kWeights;
  profile.activation_bytes = kActivations;
  s.profiles = {profile};
  s.models = models;
  for (size_t g = 0; g < gpus; ++g) {
    s.gpus.push_back({"gpu-" + std::to_string(g), "a", 80 * kGib});
    if (g < models.size()) {
      s.current.push_back({models[g].name, {s.gpus.back().name}});
    }
  }
  if (host_bytes > 0) s.nodes = {{"a", host_bytes}};
  return s;
}

// Returns the plan that leaves models where they are: the i-th on the i-th GPU.
Plan Stays(const Snapshot& s) {
  const auto plan = DescribeCurrent(s, Options());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.value_or(Plan());
}

// Returns "chat on gpu-1" and the like for all places that rest, in their
// order.
std::vector<std::string> Names(const Plan& plan) {
  std::vector<std::string> names;
  for (const RestingPlace& r : plan.resting) {
    names.push_back(r.model + " on " + r.gpu);
  }
  return names;
}

double Sum(const Plan& plan, double RestingPlace::*bytes) {
  double sum = 0;
  for (const RestingPlace& r : plan.resting) sum += r.*bytes;
  return sum;
}

TEST(Resting, HoldsWeightsOnceOnANodeAndAProcessForEachPlace) {
  const Plan plan = Stays(OneNode({Model("chat", 1)}, 3, 100 * kGib));
  EXPECT_THAT(Names(plan), ElementsAre("chat on gpu-1", "chat on gpu-2"));
  ASSERT_THAT(plan.hosts, SizeIs(1));
  EXPECT_EQ(plan.hosts[0].process_bytes, 3 * kProcess);
  EXPECT_EQ(plan.hosts[0].store_bytes, kWeights + 2 * kActivations);
  EXPECT_EQ(Sum(plan, &RestingPlace::context_bytes), 2 * kContext);
  EXPECT_THAT(plan.not_resting, IsEmpty());
}

// Weights that the store of one node keeps are of no use to another node.
TEST(Resting, HoldsWeightsOnEachNode) {
  Snapshot s = OneNode({Model("chat", 1)}, 3, 100 * kGib);
  s.gpus[2].node = "b";
  s.nodes.push_back({"b", 100 * kGib});
  const Plan plan = Stays(s);
  ASSERT_THAT(plan.hosts, SizeIs(2));
  for (const HostUse& host : plan.hosts) {
    EXPECT_EQ(host.store_bytes, kWeights + kActivations) << host.node;
  }
}

TEST(Resting, ABusierModelComesFirstAndEachHasOnePlaceBeforeASecond) {
  const auto rests = [](double host_bytes) {
    return Names(
        Stays(OneNode({Model("idle", 0.5), Model("busy", 2)}, 3, host_bytes)));
  };
  const double running = 2 * kProcess;
  EXPECT_THAT(rests(running + kFirst - 1), IsEmpty());
  EXPECT_THAT(rests(running + kFirst), ElementsAre("busy on gpu-2"));
  EXPECT_THAT(rests(running + 2 * kFirst),
              ElementsAre("busy on gpu-2", "idle on gpu-2"));
  EXPECT_THAT(rests(running + 2 * kFirst + kNext),
              ElementsAre("busy on gpu-2", "idle on gpu-2", "busy on gpu-0"));
}

// At the same rate, a place that takes more bytes saves less per byte.
TEST(Resting, ASmallModelComesBeforeALargeOneOfTheSameRate) {
  ModelDemand large = Model("a", 1), small = Model("b", 1);
  large.process_bytes += 1;
  const Plan plan = Stays(OneNode({large, small}, 3, 100 * kGib));
  EXPECT_THAT(Names(plan)[0], HasSubstr("b on"));
}

TEST(Resting, NothingPassesAPlaceThatTheHostDoesNotHold) {
  ModelDemand busy = Model("busy", 2), idle = Model("idle", 0.1);
  busy.process_bytes = 50 * kGib;
  const double host = 56 * kGib + kFirst;
  const Plan plan = Stays(OneNode({busy, idle}, 2, host));
  EXPECT_THAT(plan.resting, IsEmpty());
  ASSERT_THAT(plan.not_resting, SizeIs(2));
  const auto of_idle = Explain(plan, "idle");
  EXPECT_THAT(*of_idle,
              HasSubstr("1 of its places on node \"a\" does not rest: the host "
                        "memory is 44.0 GiB short for one of busy, which comes "
                        "before."));
  EXPECT_THAT(*Explain(plan, "busy"),
              HasSubstr("the host memory is 44.0 GiB short."));
}

TEST(Resting, AContextTakesOnlyWhatIsLeftBesideTheKvOfABurst) {
  Snapshot s = OneNode({Model("chat", 1), Model("mail", 1)}, 2, 200 * kGib);
  const Plan roomy = Stays(s);
  EXPECT_THAT(roomy.resting, SizeIs(2));
  // Memory for the KV of a burst on gpu-1, and for a little less than a
  // context.
  Options options;
  options.problem.burst = 1;
  const double kv = DescribeCurrent(s, options)->replicas[1].kv_bytes;
  s.gpus[1].memory_bytes = kWeights + kActivations + kContext + kv;
  s.gpus[1].memory_bytes += kContext - 1024;
  const auto short_of_it = DescribeCurrent(s, options);
  EXPECT_THAT(Names(*short_of_it), ElementsAre("mail on gpu-0"));
  EXPECT_THAT(*Explain(*short_of_it, "chat"),
              HasSubstr("gpu-1, which comes nearest, is 0.0 GiB short"));
  s.gpus[1].memory_bytes += 2048;
  EXPECT_THAT(DescribeCurrent(s, options)->resting, SizeIs(2));
  EXPECT_THAT(Stays(s).resting, SizeIs(1)) << "a burst takes more KV";
}

// The F_M of FineServe's released code sets KV aside for longer requests than
// these, and so more KV than a burst takes.
TEST(Resting, AContextLeavesTheFloorThatAPolicyPromises) {
  Snapshot s =
      OneNode({Model("chat", 0.02), Model("mail", 0.01)}, 2, 200 * kGib);
  s.models[1].pins = {"gpu-1"};
  Options options;
  options.policy = "fineserve";
  options.problem.footprint = Tier::kReleased;
  const PlannedReplica mail = MakePlan(s, options)->replicas[1];
  ASSERT_GT(mail.floor_bytes, Stays(s).replicas[1].kv_bytes * 2);
  s.gpus[1].memory_bytes = mail.weight_bytes + mail.activation_bytes +
                           2 * kContext + mail.floor_bytes - 1024;
  EXPECT_THAT(MakePlan(s, options)->resting, IsEmpty());
  s.gpus[1].memory_bytes += 2048;
  EXPECT_THAT(Names(*MakePlan(s, options)), ElementsAre("chat on gpu-1"));
}

TEST(Resting, APoolKeepsItsSizeBesideContexts) {
  Snapshot s = OneNode({Model("chat", 1), Model("mail", 1)}, 2, 200 * kGib);
  s.gpus[1].pool_bytes = 80 * kGib - kWeights - kActivations - 2 * kContext;
  EXPECT_THAT(Stays(s).resting, SizeIs(2));
  s.gpus[1].pool_bytes += 1;
  EXPECT_THAT(Names(Stays(s)), ElementsAre("mail on gpu-0"));
}

TEST(Resting, OnlyPlacesThatAModelHasAndOnlyIfTheyMay) {
  ModelDemand pinned = Model("chat", 1), ends = Model("mail", 1);
  pinned.pins = {"gpu-0", "gpu-2"};
  ends.may_rest = false;
  const Plan plan = Stays(OneNode({pinned, ends}, 4, 500 * kGib));
  EXPECT_THAT(Names(plan), ElementsAre("chat on gpu-2"));
  EXPECT_THAT(*Explain(plan, "chat"),
              HasSubstr("Its place on gpu-2 rests: the GPU keeps 0.5 GiB for "
                        "its context, node \"a\" 6.0 GiB for its process and "
                        "16.0 GiB in the store."));
  EXPECT_THAT(*Explain(plan, "mail"),
              HasSubstr("None of its places rests: may_rest is not set."));
}

TEST(Resting, ANodeWhoseHostMemoryIsNotKnownIsNamed) {
  Snapshot s = OneNode({Model("chat", 1)}, 3, 100 * kGib);
  s.gpus[2].node = "b";
  const Plan plan = Stays(s);
  EXPECT_THAT(Names(plan), ElementsAre("chat on gpu-1"));
  EXPECT_THAT(*Explain(plan, "chat"),
              HasSubstr("1 of its places on node \"b\" does not rest: its host "
                        "memory is not known."));
}

TEST(Resting, AMachineThatGpusDoNotNameHasNoName) {
  Snapshot s = OneNode({Model("chat", 1)}, 2, 100 * kGib);
  for (Gpu& g : s.gpus) g.node = "";
  s.nodes[0].name = "";
  EXPECT_THAT(*Explain(Stays(s), "chat"),
              HasSubstr("the machine 6.0 GiB for its process"));
}

TEST(Host, ProcessesThatItDoesNotHoldAreNotPlaced) {
  Snapshot s =
      OneNode({Model("chat", 1), Model("mail", 1)}, 2, 2 * kProcess - kGib);
  s.current.clear();
  for (const std::string& policy : PolicyNames()) {
    Options options;
    options.policy = policy;
    s.nodes = {{"a", 2 * kProcess - kGib}};
    const auto plan = MakePlan(s, options);
    EXPECT_EQ(plan->worth.hosted, 1u) << policy;
    ASSERT_THAT(plan->troubles, SizeIs(1)) << policy;
    EXPECT_THAT(plan->troubles[0].text,
                HasSubstr("its process takes 6.0 GiB of host memory, and node "
                          "\"a\", which comes nearest, is 1.0 GiB short"))
        << policy;
    EXPECT_THAT(*Explain(*plan, plan->troubles[0].model),
                HasSubstr("no candidate: gpu-1: 1.0 GiB of host memory short"))
        << policy;
    s.nodes = {{"a", 2 * kProcess}};
    EXPECT_EQ(MakePlan(s, options)->worth.hosted, 2u) << policy;
  }
}

// The change that the trouble names, another node, mends the trouble.
TEST(Host, AnotherNodeTakesTheProcess) {
  Snapshot s = OneNode({Model("chat", 1), Model("mail", 1)}, 2, kProcess);
  s.gpus[1].node = "b";
  const auto plan = MakePlan(s, Options());
  EXPECT_EQ(plan->worth.hosted, 2u);
}

TEST(Contexts, AreFixedMemoryOfRunningReplicas) {
  Snapshot s = OneNode({Model("chat", 1)}, 1, 0);
  const double floor = Stays(s).replicas[0].floor_bytes;
  const double least = kWeights + kActivations + floor;
  s.gpus[0].memory_bytes = least + kContext - 1;
  EXPECT_EQ(MakePlan(s, Options())->worth.hosted, 0u);
  s.gpus[0].memory_bytes = least + kContext;
  const auto plan = MakePlan(s, Options());
  EXPECT_EQ(plan->worth.hosted, 1u);
  EXPECT_EQ(plan->replicas[0].activation_bytes, kActivations);
  EXPECT_EQ(plan->replicas[0].context_bytes, kContext);
}

// --- random clusters ---

Snapshot DrawNodes(uint64_t seed) {
  std::mt19937_64 random(seed);
  RandomKind kind;
  kind.models = 2 + random() % 8;
  kind.gpus = 2 + random() % 6;
  kind.gpus_of_node = 1 + random() % 4;
  kind.weights = 0.1 + 0.1 * static_cast<double>(random() % 5);
  kind.pressure = 0.05 * static_cast<double>(1 + random() % 12);
  kind.mixed_gpus = random() % 2 == 0;
  Snapshot s = RandomSnapshot(Tp1Profiles(), kind, seed);
  for (ModelDemand& m : s.models) {
    m.context_bytes = static_cast<double>(random() % 4) * kContext;
    m.process_bytes = static_cast<double>(random() % 8) * kGib;
    m.may_rest = random() % 4 != 0;
    if (random() % 6 == 0) m.pins = {s.gpus[random() % s.gpus.size()].name};
  }
  for (Gpu& g : s.gpus) {
    if (random() % 4 == 0) g.pool_bytes = g.memory_bytes / 2;
  }
  return s;
}

void SetHosts(double bytes, Snapshot* s) {
  std::map<std::string, double> nodes;
  for (const Gpu& g : s->gpus) nodes[g.node] = bytes;
  s->nodes.clear();
  for (const auto& [name, host] : nodes) s->nodes.push_back({name, host});
}

Plan QuickPlan(const Snapshot& s, const std::string& policy = "fineserve-opt") {
  const auto plan = MakePlan(s, Quick(policy));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.value_or(Plan());
}

// Counts from the plan's places alone, not from the sums that the plan gives.
void ExpectHostFits(const Snapshot& s, const Plan& plan) {
  std::map<std::string, std::string> node_of;
  for (const Gpu& g : s.gpus) node_of[g.name] = g.node;
  std::map<std::string, double> used;
  const auto model = [&s](const std::string& name) {
    return *std::find_if(s.models.begin(), s.models.end(),
                         [&](const ModelDemand& m) { return m.name == name; });
  };
  std::map<std::pair<std::string, std::string>, double> weights;
  for (const PlannedReplica& r : plan.replicas) {
    if (!r.gpus.empty()) {
      used[node_of[r.gpus[0]]] += model(r.model).process_bytes;
    }
  }
  for (const RestingPlace& r : plan.resting) {
    EXPECT_TRUE(model(r.model).may_rest) << r.model;
    const Profile& profile = *FindProfile(s.profiles, model(r.model));
    used[node_of[r.gpu]] +=
        model(r.model).process_bytes + profile.activation_bytes;
    weights[{r.model, node_of[r.gpu]}] = profile.weight_bytes;
  }
  for (const auto& [where, bytes] : weights) used[where.second] += bytes;
  for (const Node& n : s.nodes) {
    EXPECT_LE(used[n.name], n.host_bytes * (1 + 1e-9)) << n.name;
  }
  for (const HostUse& h : plan.hosts) {
    EXPECT_NEAR(h.process_bytes + h.store_bytes, used[h.node], 1e-3) << h.node;
  }
}

void ExpectGpusFit(const Snapshot& s, const Plan& plan) {
  std::map<std::string, double> used, kv;
  std::set<std::string> rests;
  for (const Gpu& g : s.gpus) used[g.name] = g.pool_bytes;
  std::map<std::pair<std::string, std::string>, int> there;
  for (const PlannedReplica& r : plan.replicas) {
    for (const std::string& gpu : r.gpus) {
      used[gpu] += r.weight_bytes + r.activation_bytes + r.context_bytes;
      ++there[{r.model, gpu}];
    }
  }
  for (const RestingPlace& r : plan.resting) {
    used[r.gpu] += r.context_bytes;
    if (r.context_bytes > 0) rests.insert(r.gpu);
    EXPECT_EQ(++there[std::pair(r.model, r.gpu)], 1) << r.model << " " << r.gpu;
  }
  // A resting place takes nothing of the KV that the plan expects.
  for (const PlannedReplica& r : plan.replicas) {
    for (const std::string& gpu : r.gpus) {
      kv[gpu] += rests.count(gpu) > 0 ? r.kv_bytes : r.floor_bytes;
    }
  }
  for (const Gpu& g : s.gpus) {
    const double needed = used[g.name] + (g.pool_bytes > 0 ? 0 : kv[g.name]);
    EXPECT_LE(needed, g.Capacity() * (1 + 1e-9)) << g.name;
  }
}

TEST(RestingProperty, NeverMoreHostOrGpuMemoryThanThereIs) {
  size_t rested = 0, left_out = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Snapshot s = DrawNodes(seed);
    SetHosts(static_cast<double>(1 + seed * 7 % 120) * kGib, &s);
    for (const std::string& policy : PolicyNames()) {
      SCOPED_TRACE(policy + ", seed " + std::to_string(seed));
      const Plan plan = QuickPlan(s, policy);
      ExpectHostFits(s, plan);
      ExpectGpusFit(s, plan);
      rested += plan.resting.size();
      left_out += plan.not_resting.size();
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(rested, kSeeds);
  EXPECT_GT(left_out, kSeeds);
}

// The placement does not change: the least of these hosts holds all processes.
TEST(RestingProperty, MoreHostMemoryEndsNoPlaceThatRests) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Snapshot s = DrawNodes(seed);
    s = After(s, QuickPlan(s));
    double all = 0;
    for (const PlannedReplica& r : Stays(s).replicas) {
      for (const ModelDemand& m : s.models) {
        if (m.name == r.model) all += m.process_bytes;
      }
    }
    std::vector<std::string> before;
    for (double more = 1; more < 400; more *= 1.5) {
      SetHosts(all + more * kGib, &s);
      std::vector<std::string> now = Names(Stays(s));
      std::sort(now.begin(), now.end());
      EXPECT_TRUE(
          std::includes(now.begin(), now.end(), before.begin(), before.end()));
      before = std::move(now);
    }
  }
}

TEST(RestingProperty, WithoutHostMemoryItIsThePlanWithout) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Snapshot without = DrawNodes(seed), with = without;
    for (ModelDemand& m : without.models) {
      m.process_bytes = 0;
      m.may_rest = false;
    }
    Snapshot roomy = with;
    SetHosts(1e15, &roomy);
    const Plan plan = QuickPlan(with);
    for (const Plan& other : {QuickPlan(without), QuickPlan(roomy)}) {
      ASSERT_EQ(plan.replicas.size(), other.replicas.size());
      for (size_t i = 0; i < plan.replicas.size(); ++i) {
        EXPECT_EQ(plan.replicas[i].gpus, other.replicas[i].gpus);
        EXPECT_EQ(plan.replicas[i].kv_bytes, other.replicas[i].kv_bytes);
      }
      EXPECT_EQ(plan.worth.goodput, other.worth.goodput) << "seed " << seed;
      EXPECT_EQ(plan.worth.headroom, other.worth.headroom) << "seed " << seed;
    }
    EXPECT_THAT(plan.resting, IsEmpty());
    EXPECT_THAT(plan.not_resting, IsEmpty());
    EXPECT_THAT(plan.hosts, IsEmpty());
  }
}

TEST(RestingProperty, TheOrderOfTheInputMeansNothing) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Snapshot s = DrawNodes(seed);
    SetHosts(60 * kGib, &s);
    Snapshot shuffled = s;
    std::mt19937_64 random(seed);
    std::shuffle(shuffled.models.begin(), shuffled.models.end(), random);
    std::shuffle(shuffled.gpus.begin(), shuffled.gpus.end(), random);
    std::shuffle(shuffled.nodes.begin(), shuffled.nodes.end(), random);
    EXPECT_EQ(Names(QuickPlan(s)), Names(QuickPlan(shuffled)))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace fineserve::plan
