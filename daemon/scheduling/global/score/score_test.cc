// Tests scores of small clusters whose figures can be worked out by hand.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "daemon/scheduling/global/score/contested_score.h"
#include "daemon/scheduling/global/score/goodput.h"
#include "daemon/scheduling/global/score/kv_pressure.h"
#include "daemon/scheduling/global/score/sharing.h"

namespace fineserve::plan {
namespace {

Replica Made(uint32_t model, uint32_t tp = 1) {
  Replica r;
  r.model = model;
  r.tp = tp;
  r.rate = 1;
  r.fixed_bytes = r.weight_bytes = 10;
  r.floor_bytes = 1;
  r.base_kv_bytes = 4;
  // Each sequence makes 100 tokens/s and takes 1 byte; 20 sequences would meet
  // the demand.
  r.curve = {0.01, 1e-8, 1, 100, 2000};
  r.structural_mu = 1;
  r.pressure_v1 = 2;
  r.pressure_v3 = 6;
  return r;
}

// Replicas of different models on GPUs of 40 bytes, all of one node.
Problem Cluster(std::vector<Replica> replicas, uint32_t gpus) {
  Problem p;
  p.replicas = std::move(replicas);
  for (uint32_t m = 0; m < p.replicas.size(); ++m) {
    p.replicas[m].model = m;
    p.first_replica.push_back(m);
    p.sizings.emplace_back();
    p.models.emplace_back();
    p.models.back().name = std::string(1, static_cast<char>('a' + m));
  }
  p.first_replica.push_back(static_cast<uint32_t>(p.replicas.size()));
  p.gpus.assign(gpus, {"g", "n", 40, 0});
  p.node_of.assign(gpus, 0);
  p.node_begins = {0, gpus};
  p.host_bytes = {0};
  p.pin_class.assign(gpus, 0);
  p.current.resize(p.replicas.size());
  return p;
}

TEST(Goodput, OneAloneHasItsDemandOrWhatMemoryGives) {
  Problem p = Cluster({Made(0)}, 1);
  Assignment a(p);
  a.Put(0, {0});
  EXPECT_NEAR(WorthOf(a, Sharing::kPool).goodput, 2000, 0.1);
  p.gpus[0].memory_bytes = 15;  // 5 sequences
  EXPECT_NEAR(WorthOf(a, Sharing::kPool).goodput, 500, 0.1);
}

TEST(Goodput, MemoryGoesWhereItMakesMoreTokens) {
  Replica fast = Made(0), slow = Made(1);
  slow.curve.c0 = 0.02;  // half the tokens a byte
  const Problem p = Cluster({fast, slow}, 1);
  Assignment a(p);
  a.Put(0, {0});
  a.Put(1, {0});
  // There are 20 bytes of KV, of which the slow replica keeps its floor.
  const std::vector<Share> shares = SharesOf(a, Sharing::kPool, 1);
  EXPECT_NEAR(shares[0].kv_bytes, 19, 1e-3);
  EXPECT_NEAR(shares[1].kv_bytes, 1, 1e-3);
  EXPECT_NEAR(WorthOf(a, Sharing::kPool).goodput, 1900 + 50, 1);
}

// A model over both GPUs gets what the fuller GPU gives, and the resident of
// the other GPU gets what is left there.
TEST(Goodput, AnEngineThatSpansGpusGetsWhatTheMeanestGives) {
  Replica wide = Made(0, 2), neighbour = Made(1), guest = Made(2);
  neighbour.curve.c0 = 0.001;  // takes all it can: 19 of 20 bytes
  neighbour.curve.demand = 1e5;
  guest.curve.c0 = 0.02;  // worth less than the wide one
  const Problem p = Cluster({wide, neighbour, guest}, 2);
  Assignment a(p);
  a.Put(0, {0, 1});
  a.Put(1, {0});
  a.Put(2, {1});
  const std::vector<Share> shares = SharesOf(a, Sharing::kPool, 1);
  EXPECT_NEAR(shares[0].kv_bytes, 1, 1e-3);
  EXPECT_NEAR(shares[1].kv_bytes, 19, 1e-3);
  EXPECT_NEAR(shares[2].kv_bytes, 19, 1e-3);
}

TEST(Goodput, NeighboursSlowEachOtherByTheGivenAmount) {
  Problem p = Cluster({Made(0), Made(1)}, 1);
  p.co_tenant_slowdown = 0.5;
  p.gpus[0].memory_bytes = 30;
  Assignment a(p);
  a.Put(0, {0});
  a.Put(1, {0});
  EXPECT_NEAR(WorthOf(a, Sharing::kPool).goodput, 1000 / 1.5, 0.1);
}

// One model of two replicas, and a model beside them that fills the memory that
// is left.
Problem TwoReplicas() {
  Problem p = Cluster({Made(0), Made(0), Made(1)}, 2);
  p.replicas[1].model = 0;
  p.replicas[1].number = 1;
  p.replicas[2].model = 1;
  p.replicas[2].curve.demand = 1e5;
  p.models.resize(2);
  p.sizings.resize(2);
  p.sizings[0].replicas = 2;
  p.first_replica = {0, 2, 3};
  p.gpus[1].memory_bytes = 60;
  return p;
}

TEST(Goodput, OneReplicaServesTheRateOfAllUnlessTheirNumberIsSet) {
  Problem p = TwoReplicas();
  Assignment a(p);
  a.Put(0, {1});
  EXPECT_NEAR(WorthOf(a, Sharing::kPool).goodput, 4000, 1);
  p.models[0].replicas = 2;
  EXPECT_NEAR(WorthOf(a, Sharing::kPool).goodput, 2000, 1);
}

// The second replica brings its weights, but serves nothing that the first one
// could not serve.
TEST(Goodput, AReplicaThatOnlyTakesMemoryIsWorthLess) {
  const Problem p = TwoReplicas();
  Assignment one(p), two(p);
  for (Assignment* a : {&one, &two}) {
    a->Put(0, {1});
    a->Put(2, {0});
  }
  two.Put(1, {0});
  EXPECT_TRUE(
      Better(WorthOf(one, Sharing::kPool), WorthOf(two, Sharing::kPool)));
}

TEST(Goodput, TheBoardFollowsAReplicaThatTakesAPartOfItsSiblingsRate) {
  const Problem p = TwoReplicas();
  Assignment a(p);
  Board board(&a);
  board.Put(0, {1});
  board.Put(2, {0});
  const Worth with = board.WorthWith(1, {0});
  board.Put(1, {0});
  EXPECT_NEAR(with.goodput, WorthOf(a, Sharing::kPool).goodput, 1e-6);
  EXPECT_NEAR(board.worth().headroom, WorthOf(a, Sharing::kPool).headroom,
              1e-6);
  board.Remove(1);
  EXPECT_NEAR(board.worth().goodput, WorthOf(a, Sharing::kPool).goodput, 1e-6);
  EXPECT_NEAR(board.worth().crowding, WorthOf(a, Sharing::kPool).crowding,
              1e-9);
}

TEST(Goodput, AnIdleNeighbourSlowsNoEngine) {
  Problem p = Cluster({Made(0), Made(1)}, 1);
  p.co_tenant_slowdown = 0.5;
  p.replicas[1].curve.demand = 1;  // a hundredth of a sequence
  Assignment a(p);
  a.Put(0, {0});
  a.Put(1, {0});
  EXPECT_NEAR(SlowdownOf(a, 0, 1), 1.005, 1e-3);
  EXPECT_NEAR(SlowdownOf(a, 1, 1), 1.5, 1e-3);
}

TEST(Goodput, TheBoardKeepsTheWorthOfTheWhole) {
  const Problem p = Cluster({Made(0, 2), Made(1), Made(2)}, 3);
  Assignment a(p);
  Board board(&a);
  board.Put(0, {0, 1});
  board.Put(1, {1});
  board.Put(2, {2});
  board.Remove(1);
  const Worth without = board.worth();
  const Worth with = board.WorthWith(1, {2});
  EXPECT_EQ(board.worth().goodput, without.goodput) << "it has been put there";
  board.Put(1, {2});
  EXPECT_EQ(with.hosted, 3u);
  EXPECT_NEAR(with.goodput, board.worth().goodput, 1e-6);
  EXPECT_NEAR(with.headroom, board.worth().headroom, 1e-6);
  EXPECT_NEAR(with.crowding, board.worth().crowding, 1e-9);
  const Worth whole = WorthOf(a, Sharing::kPool);
  EXPECT_EQ(board.worth().hosted, 3u);
  EXPECT_NEAR(board.worth().goodput, whole.goodput, 1e-6);
  EXPECT_NEAR(board.worth().headroom, whole.headroom, 1e-6);
}

// Since all demand is met, the guest goes to the GPU with more KV to spare.
TEST(Goodput, CrowdingIsOfMemoryToo) {
  Replica wide = Made(0), narrow = Made(1), guest = Made(2);
  wide.fixed_bytes = 60;
  for (Replica* r : {&wide, &narrow, &guest}) r->curve.demand = 100;
  Problem p = Cluster({wide, narrow, guest}, 2);
  for (Gpu& g : p.gpus) g.memory_bytes = 100;
  const auto with_guest_on = [&](uint32_t gpu) {
    Assignment a(p);
    a.Put(0, {0});
    a.Put(1, {1});
    a.Put(2, {gpu});
    return WorthOf(a, Sharing::kPool);
  };
  EXPECT_TRUE(Better(with_guest_on(1), with_guest_on(0)));
  EXPECT_FALSE(Better(with_guest_on(0), with_guest_on(1)));
}

TEST(Sharing, FixedPartsStrandWhatOnePoolWouldGive) {
  Replica idle = Made(0), busy = Made(1);
  idle.curve.demand = 100;  // one sequence
  busy.base_kv_bytes = 6;
  const Problem p = Cluster({idle, busy}, 1);
  Assignment a(p);
  a.Put(0, {0});
  a.Put(1, {0});
  EXPECT_NEAR(WorthOf(a, Sharing::kPool).goodput, 100 + 1900, 1);
  // 9 + 1 bytes each.
  EXPECT_NEAR(WorthOf(a, Sharing::kEqual).goodput, 100 + 1000, 1);
  // 40 · 16 / 30 − 10 bytes.
  EXPECT_NEAR(WorthOf(a, Sharing::kFootprint).goodput,
              100 + 100 * (40.0 * 16 / 30 - 10), 1);
  // If the models take turns, both meet their demand, because each has 30 bytes
  // when it is alone.
  EXPECT_NEAR(WorthOf(a, Sharing::kTime).goodput, 100 + 2000, 1);
}

// Two models of 10 bytes each leave 20 bytes, but the pool has 12.
TEST(Sharing, APoolThatHasBeenMadeIsAllTheKvThereIs) {
  Replica small = Made(0), large = Made(1);
  large.base_kv_bytes = 8;
  Problem p = Cluster({small, large}, 1);
  p.gpus[0].pool_bytes = 12;
  Assignment a(p);
  a.Put(0, {0});
  a.Put(1, {0});
  const auto parts = [&a](Sharing sharing) {
    const std::vector<Share> shares = SharesOf(a, sharing, 1);
    return std::vector<double>{shares[0].kv_bytes, shares[1].kv_bytes};
  };
  const std::vector<double> pooled = parts(Sharing::kPool);
  EXPECT_NEAR(pooled[0] + pooled[1], 12, 1e-3);
  EXPECT_EQ(parts(Sharing::kEqual), (std::vector<double>{6, 6}));
  EXPECT_EQ(parts(Sharing::kFootprint), (std::vector<double>{4, 8}));
  EXPECT_EQ(parts(Sharing::kTime), (std::vector<double>{12, 12}));
  EXPECT_DOUBLE_EQ(PressureOn(a, 0, Pressure::kV1).Ratio(), 4.0 / 12);
}

TEST(Room, WeightsHaveWhatAPoolLeavesAndFloorsHaveThePool) {
  Problem p = Cluster({Made(0), Made(1), Made(2)}, 1);
  p.gpus[0].pool_bytes = 12;
  Assignment a(p);
  a.Put(0, {0});
  a.Put(1, {0});
  // 40 - 12 - 20 bytes for the third one's 10.
  EXPECT_DOUBLE_EQ(a.Missing(0, 2, Charge::kLeast), 2);
  EXPECT_FALSE(a.Takes(0, 2, Charge::kLeast));
  p.gpus[0].pool_bytes = 10;
  EXPECT_TRUE(a.Takes(0, 2, Charge::kLeast));
  // F_M has 4 bytes of KV of each.
  EXPECT_DOUBLE_EQ(a.Missing(0, 2, Charge::kFootprint), 2);
  EXPECT_EQ(a.Missing(0, 2, Charge::kWeights), 0);
}

TEST(ContestedScore, APoolThatHasBeenMadeIsWhatIsContested) {
  Problem p = Cluster({Made(0), Made(1)}, 1);
  p.gpus[0].pool_bytes = 9;
  Assignment a(p);
  a.Put(0, {0});
  EXPECT_DOUBLE_EQ(ContestedBytes(a, 1, {0}), 9 - 4 - 4);
  GroupTable table(a, Charge::kFootprint, Efficiency::kStructural);
  EXPECT_DOUBLE_EQ(table.Of(0, 1)[0].Contested(p.replicas[1]), 9 - 4 - 4);
}

TEST(ContestedScore, Eq3IsTheMeanEfficiencyTimesTheRest) {
  Replica resident = Made(0), comes = Made(1);
  resident.structural_mu = 3;
  const Problem p = Cluster({resident, comes}, 2);
  Assignment a(p);
  a.Put(0, {0});
  EXPECT_DOUBLE_EQ(ContestedBytes(a, 1, {0}), 40 - 14 - 14);
  GroupTable table(a, Charge::kFootprint, Efficiency::kStructural);
  const std::vector<GroupState> groups = table.Of(0, 1);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_DOUBLE_EQ(MeanScore(p.replicas[1], groups[0], Efficiency::kStructural),
                   (3 + 1) / 2.0 * 12);
  EXPECT_DOUBLE_EQ(MeanScore(p.replicas[1], groups[1], Efficiency::kStructural),
                   26);
}

TEST(GroupTable, SeesAChangeOnceItIsReported) {
  const Problem p = Cluster({Made(0, 2), Made(1)}, 2);
  Assignment a(p);
  GroupTable table(a, Charge::kFootprint, Efficiency::kStructural);
  EXPECT_EQ(table.Of(0, 2)[0].residents, 0u);
  a.Put(0, {0, 1});
  a.Put(1, {1});
  table.Changed(0);
  ASSERT_EQ(table.Of(0, 2).size(), 1u);
  EXPECT_EQ(table.Of(0, 2)[0].residents, 2u) << "who spans both counts once";
  EXPECT_DOUBLE_EQ(table.Of(0, 2)[0].room, 40 - 14 - 14);
}

TEST(ContestedScore, AGroupHasTheRestOfItsFullestGpu) {
  const Problem p = Cluster({Made(0), Made(1, 2)}, 2);
  Assignment a(p);
  a.Put(0, {0});
  EXPECT_DOUBLE_EQ(ContestedBytes(a, 1, {0, 1}), 12);
}

TEST(ContestedScore, Eqs1And2CountWhatTheRestAddsUpToTheBurst) {
  Problem p = Cluster({Made(0)}, 1);
  p.burst = 1;
  Assignment a(p);
  // F_M gives 4 sequences, the demand is 20: 16 more of 100 tokens/s.
  EXPECT_NEAR(ExactScore(a, 0, {0}), 1600, 1);
  p.burst = 10;  // 26 bytes are left
  EXPECT_NEAR(ExactScore(a, 0, {0}), 2600, 1);
}

TEST(KvPressure, IsWhatIsAskedOverWhatWeightsLeave) {
  const Problem p = Cluster({Made(0), Made(1)}, 2);
  Assignment a(p);
  a.Put(0, {0});
  a.Put(1, {0});
  EXPECT_DOUBLE_EQ(PressureOn(a, 0, Pressure::kV1).Ratio(), 4.0 / 20);
  EXPECT_DOUBLE_EQ(PressureOn(a, 0, Pressure::kV3).Ratio(), 12.0 / 20);
  EXPECT_EQ(PressureOn(a, 1, Pressure::kV1).Ratio(), 0);
  EXPECT_DOUBLE_EQ(HighestPressure(a, Pressure::kV1), 0.2);
  EXPECT_TRUE(std::isinf(GpuPressure({1, 0}).Ratio()));
}

TEST(MeasuredEfficiency, IsTheSlopeWhileThePoolBinds) {
  MeasuredEfficiency mu;
  double kv = 1e9;
  for (int i = 0; i < 20; ++i) {
    kv += i % 2 == 0 ? 3e8 : -2e8;
    mu.Observe(kv, 50 + 2e-6 * kv, true);
    // Observations made while memory is no limit are ignored.
    if (i % 5 == 0) mu.Observe(kv, 9e9, false);
  }
  ASSERT_TRUE(mu.Slope().has_value());
  EXPECT_NEAR(*mu.Slope(), 2e-6, 1e-12);
}

TEST(MeasuredEfficiency, SaysNothingBeforeItHasSeenEnough) {
  MeasuredEfficiency mu;
  for (int i = 0; i < 8; ++i) mu.Observe(1e9 * i, 5.0 * i, true);
  mu.Observe(std::nan(""), 1, true);
  mu.Observe(1, std::numeric_limits<double>::infinity(), true);
  EXPECT_FALSE(mu.Slope(8).has_value());
  EXPECT_TRUE(mu.Slope(7).has_value());
}

}  // namespace
}  // namespace fineserve::plan
