#include "daemon/scheduling/overload/drop_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace fineserve::overload {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;
constexpr sched::Micros kSecond = 1'000'000;

// 28 layers of 1 GiB.
Terms TermsOf(double link_bytes_per_us, double reread = 1) {
  Terms terms;
  terms.parts.assign(28, {kGiB, kGiB, 1. / 28});
  terms.slo_ttft = kSecond;
  terms.slo_tpot = kSecond / 10;
  terms.link_bytes_per_us = link_bytes_per_us;
  terms.reread = reread;
  return terms;
}
constexpr double kNvlink = 300e3, kPcie = 25e3;

Replica Busy(uint32_t waiting = 40) {
  Replica r;
  r.kv = {40 * kGiB, kGiB, waiting * kGiB / 4, 42 * kGiB, 0};
  r.fingerprint = 7;
  r.domain = 1;
  r.waiting = waiting;
  r.running = 100;
  r.freed_per_us = static_cast<double>(kGiB) / kSecond;
  r.decode_us = [](const sched::PeerReads& p) {
    return 25e3 + p.AddedUs(25e3, 100);
  };
  r.full_us = [](const sched::PeerReads& p) {
    return 210e3 + p.AddedUs(200e3, 2048);
  };
  r.full_share = .5;
  return r;
}

TEST(ActTest, DropsAt95PercentAndRestoresBelow85) {
  const Thresholds t;
  KvLoad load{90, 4, 4, 100, 0};
  EXPECT_EQ(ActFor(load, t, kSecond * 60), Act::kNothing);
  load.head = 5;
  EXPECT_EQ(ActFor(load, t, kSecond * 60), Act::kDrop);
  load.dropped = 20;
  EXPECT_EQ(ActFor(load, t, kSecond * 60), Act::kNothing);
  load = {85, 0, 0, 100, 20};
  EXPECT_EQ(ActFor(load, t, kSecond * 60), Act::kNothing);
  load.used = 84;
  EXPECT_EQ(ActFor(load, t, kSecond * 60), Act::kRestore);
  EXPECT_EQ(ActFor(load, t, kSecond), Act::kNothing) << "it rests";
  load.queued = 1;
  EXPECT_EQ(ActFor(load, t, kSecond * 60), Act::kNothing);
}

TEST(DropForTest, TwoEqualReplicasLendEachOtherWhatTheyAreShortOf) {
  const DropDecision d = DropFor(0, {Busy(), Busy(20)}, TermsOf(kNvlink));
  ASSERT_EQ(d.why, Why::kDrops);
  // 8 and 3 GiB.
  EXPECT_EQ(d.lending[0].bytes, 8 * kGiB);
  EXPECT_EQ(d.lending[1].bytes, 3 * kGiB);
  for (const Loan& loan : d.lending[0].all) EXPECT_EQ(loan.lender, 1u);
}

// One copy is enough for all, so each of four replicas gives up to three
// quarters of its copy.
TEST(DropForTest, GroupDropsMoreThanAPair) {
  Terms terms = TermsOf(kNvlink * 10);
  const Replica starved = Busy(1000);
  const auto of = [&](size_t n) {
    const std::vector<Replica> replicas(n, starved);
    const DropDecision d = DropFor(0, replicas, terms);
    EXPECT_EQ(d.why, Why::kDrops);
    return d.lending[0].bytes;
  };
  EXPECT_EQ(of(2), 14 * kGiB);
  EXPECT_EQ(of(4), 21 * kGiB);
}

// Only equal replicas that it may read, and that may read it, take part.
TEST(DropForTest, UnequalOnesAndThoseOutOfReachTakeNoPart) {
  std::vector<Replica> replicas(4, Busy(1000));
  replicas[1].fingerprint = 8;
  replicas[2].domain = 2;
  const DropDecision d = DropFor(0, replicas, TermsOf(kNvlink));
  ASSERT_EQ(d.why, Why::kDrops);
  EXPECT_EQ(d.lending[1].bytes + d.lending[2].bytes, 0u);
  for (const Loan& loan : d.lending[0].all) EXPECT_EQ(loan.lender, 3u);
}

TEST(DropForTest, NothingIsDroppedAndTheReasonIsNamed) {
  const Terms terms = TermsOf(kNvlink);
  Replica other = Busy();
  EXPECT_EQ(DropFor(0, {Busy(0), other}, terms).why, Why::kNotShort);
  EXPECT_EQ(DropFor(0, {Busy()}, terms).why, Why::kOneReplica);
  other.fingerprint = 8;
  EXPECT_EQ(DropFor(0, {Busy(), other}, terms).why, Why::kUnequal);
  // A replica that loads new weights has no fingerprint; then no two replicas
  // are equal.
  other.fingerprint = 0;
  Replica loads = Busy();
  loads.fingerprint = 0;
  EXPECT_EQ(DropFor(0, {loads, other}, terms).why, Why::kUnequal);
  other = Busy();
  other.domain = 2;
  EXPECT_EQ(DropFor(0, {Busy(), other}, terms).why, Why::kNoPeerAccess);
  Replica apart = Busy();
  apart.domain = other.domain = 0;
  EXPECT_EQ(DropFor(0, {apart, other}, terms).why, Why::kNoPeerAccess);
  // A replica that has dropped all lends nothing, and parts that others read
  // stay.
  std::vector<Loan> copy;
  for (size_t i = 0; i < terms.parts.size(); ++i) copy.push_back({i, 9});
  other = Busy();
  other.loans = copy;
  other.kv.dropped = 28 * kGiB;
  EXPECT_EQ(DropFor(0, {Busy(), other}, terms).why, Why::kNoLender);
  for (Loan& loan : other.loans) loan.lender = 0;
  EXPECT_EQ(DropFor(0, {Busy(), other}, terms).why, Why::kLends);
  Replica full = Busy();
  full.kv.used += 30 * kGiB;
  full.kv.dropped = 28 * kGiB;
  full.loans = copy;
  EXPECT_EQ(DropFor(0, {full, Busy()}, terms).why, Why::kDropped);
  EXPECT_EQ(DropFor(0, {Busy(1), Busy(0)}, TermsOf(kPcie, 16)).why,
            Why::kNotShort);
}

TEST(DropForTest, WhereReadsCostMoreThanTheQueueWaitsNothingIsDropped) {
  // Two requests that would wait for half a second each.
  Replica few = Busy(10);
  few.kv.used = 41 * kGiB;
  few.freed_per_us *= 20;
  few.full_share = 0;
  EXPECT_EQ(DropFor(0, {few, few}, TermsOf(kNvlink)).why, Why::kNotWorth);
  few.freed_per_us /= 400;
  EXPECT_EQ(DropFor(0, {few, few}, TermsOf(kNvlink)).why, Why::kDrops);
}

// Without this, some running requests would be preempted before the next
// decision.
TEST(DropForTest, KvThatRunningRequestsGrowByIsDroppedBeforeTheyNeedIt) {
  Replica grows = Busy(0);
  grows.kv.used = 41 * kGiB;
  EXPECT_EQ(DropFor(0, {grows, Busy(0)}, TermsOf(kNvlink)).why, Why::kNotShort);
  grows.kv.growth = 2 * kGiB;
  const DropDecision d = DropFor(0, {grows, Busy(0)}, TermsOf(kNvlink));
  ASSERT_EQ(d.why, Why::kDrops);
  EXPECT_EQ(d.lending[0].bytes, kGiB);
  // So few requests would be preempted that the slower steps of all others cost
  // more.
  grows.kv.growth = kGiB + kGiB / 100;
  grows.full_share = 0;
  grows.freed_per_us *= 20;
  EXPECT_EQ(DropFor(0, {grows, Busy(0)}, TermsOf(kNvlink)).why, Why::kNotWorth);
}

TEST(DropForTest, NothingIsDroppedIfReadsWouldMakePrefillTheBottleneck) {
  Replica r = Busy();
  r.full_share = .5;  // and 210 of 235 ms
  r.freed_per_us /= 100;
  EXPECT_EQ(DropFor(0, {r, Busy(0)}, TermsOf(kNvlink)).why, Why::kDrops)
      << "no step that is full takes longer";
  EXPECT_EQ(DropFor(0, {r, Busy(0)}, TermsOf(kNvlink, 16)).why, Why::kNotWorth);
  r.full_share = .1;
  EXPECT_EQ(DropFor(0, {r, Busy(0)}, TermsOf(kNvlink, 16)).why, Why::kDrops);
}

TEST(DropForTest, EarlierDropsStay) {
  Replica a = Busy(), b = Busy(0);
  a.kv.dropped = b.kv.dropped = 4 * kGiB;
  a.loans = {{20, 1}, {21, 1}, {22, 1}, {23, 1}};
  b.loans = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
  const DropDecision d = DropFor(0, {a, b}, TermsOf(kNvlink));
  ASSERT_EQ(d.why, Why::kDrops);
  EXPECT_EQ(d.lending[0].bytes, 8 * kGiB);
  EXPECT_EQ(d.lending[1].all, b.loans);
  EXPECT_EQ(
      d.lending[0].all,
      (std::vector<Loan>{
          {20, 1}, {21, 1}, {22, 1}, {23, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}}));
}

TEST(DropForTest, ReadsOfEarlierDropsAreNoCostOfAnother) {
  // A further GiB costs 2.7 TPOT SLOs and saves 5 TTFT SLOs; the reads of the
  // 12 GiB from before cost 32.
  Replica a = Busy(4), b = Busy(0);
  for (size_t i = 0; i < 12; ++i) {
    a.loans.push_back({i, 1});
    b.loans.push_back({12 + i, 0});
  }
  a.kv.dropped = b.kv.dropped = 12 * kGiB;
  a.kv.used = 54 * kGiB;
  a.freed_per_us /= 2;
  a.full_share = b.full_share = 0;
  const DropDecision d = DropFor(0, {a, b}, TermsOf(kNvlink));
  ASSERT_EQ(d.why, Why::kDrops);
  EXPECT_EQ(d.lending[0].bytes, 13 * kGiB);
}

TEST(TtftWonTest, KvThatStepsFreeMoreSlowlyIsTakenFromWhatIsWon) {
  Terms terms = TermsOf(kNvlink, 16);
  Replica r = Busy();
  r.full_share = 1;
  const Change drop = {
      8 * kGiB,
      {},
      ReadsOf({{{{0, 1}}, 0}, {}}, {{8 * kGiB, 8 * kGiB, .3}}, kNvlink, 16)[0]};
  ASSERT_GT(r.full_us(drop.after), 2 * r.full_us({}));
  EXPECT_EQ(TtftWon(r, terms, drop), 0);
  terms.burst = 0;
  EXPECT_GT(TtftWon(r, terms, drop), 0);
  terms.burst = 30 * kSecond;
  EXPECT_GT(TtftWon(r, terms, {8 * kGiB, drop.after, drop.after}), 0)
      << "earlier reads are in what it frees now";
}

// Random drops by the policy, restorations, deaths, and replicas that replace
// dead ones. The parts that a dead replica lent stay until its readers have
// restored them, which they do before anything else (design note 0048).
TEST(DropForPropertyTest, EachPartExistsWhateverHappens) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  constexpr uint32_t kDead = 99;
  uint64_t drops = 0, shared = 0, most = 0;
  for (int walk = 0; walk < 200; ++walk) {
    const size_t n = 2 + random() % 5;
    Terms terms = TermsOf(kNvlink * 10);
    std::vector<Replica> replicas(n, Busy());
    for (int step = 0; step < 100; ++step) {
      const size_t i = random() % n;
      Replica& r = replicas[i];
      r.waiting = random() % 200;
      r.kv.queued = r.waiting * kGiB / 4;
      r.kv.used = std::min(r.kv.undropped + r.kv.dropped, 41 * kGiB);
      switch (random() % 4) {
        case 0:
          r.loans.clear();
          r.kv.dropped = 0;
          break;
        case 1:
          if (random() % 4 != 0) break;
          r = Busy();
          for (Replica& reader : replicas) {
            for (Loan& loan : reader.loans) {
              if (loan.lender == i) loan.lender = kDead;
            }
          }
          break;
        default: {
          const DropDecision d = DropFor(i, replicas, terms);
          if (d.why != Why::kDrops) break;
          ++drops;
          for (size_t k = 0; k < n; ++k) {
            replicas[k].loans = d.lending[k].all;
            replicas[k].kv.dropped = d.lending[k].bytes;
            most = std::max(most, d.lending[k].bytes);
          }
        }
      }
      std::vector<std::set<size_t>> dropped(n), lends(n);
      for (size_t k = 0; k < n; ++k) {
        for (const Loan& loan : replicas[k].loans) {
          ASSERT_TRUE(dropped[k].insert(loan.part).second);
          if (loan.lender == kDead) continue;
          ASSERT_NE(loan.lender, k);
          shared += !lends[loan.lender].insert(loan.part).second;
        }
      }
      for (size_t k = 0; k < n; ++k) {
        for (const size_t part : lends[k]) {
          ASSERT_FALSE(dropped[k].count(part)) << "part " << part << " is lost";
        }
      }
      // At the next look, the readers of a dead replica's copy have it back.
      if (random() % 2 == 0) continue;
      for (Replica& reader : replicas) {
        const auto is_dead = [](const Loan& l) { return l.lender == kDead; };
        if (std::none_of(reader.loans.begin(), reader.loans.end(), is_dead)) {
          continue;
        }
        reader.loans.clear();
        reader.kv.dropped = 0;
      }
    }
  }
  EXPECT_GT(drops, 1000u);
  EXPECT_GT(shared, 1000u) << "none lends a part to two";
  EXPECT_GT(most, 14 * kGiB);
}

TEST(DropForPropertyTest, DropsPayAndSlowerLinksOrRereadsDropLess) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  uint64_t fast = 0, again = 0, slow = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Replica> replicas;
    for (uint64_t i = 0; i < 2 + random() % 3; ++i) {
      replicas.push_back(Busy(random() % 200));
      replicas[i].full_share = static_cast<double>(random() % 101) / 100;
      replicas[i].freed_per_us *= 1 + random() % 50;
    }
    const auto dropped = [&](const Terms& terms) -> uint64_t {
      const DropDecision d = DropFor(0, replicas, terms);
      if (d.why != Why::kDrops) return 0;
      const auto reads = ReadsOf(d.lending, terms.parts,
                                 terms.link_bytes_per_us, terms.reread);
      double won = 0, lost = 0;
      uint64_t all = 0;
      for (size_t i = 0; i < replicas.size(); ++i) {
        const Change change = {d.lending[i].bytes, {}, reads[i]};
        won += TtftWon(replicas[i], terms, change);
        lost += TpotLost(replicas[i], terms, change);
        all += d.lending[i].bytes;
      }
      EXPECT_GT(won, lost);
      return all;
    };
    fast += dropped(TermsOf(kNvlink));
    again += dropped(TermsOf(kNvlink, 16));
    slow += dropped(TermsOf(kPcie));
  }
  EXPECT_LT(again, fast);
  EXPECT_LT(slow, fast);
}

}  // namespace
}  // namespace fineserve::overload
