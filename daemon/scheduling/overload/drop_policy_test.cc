#include "daemon/scheduling/overload/drop_policy.h"

#include <gtest/gtest.h>

#include <random>

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
  EXPECT_EQ(d.partner, 1u);
  // 8 and 3 GiB.
  EXPECT_EQ(d.lending.a.bytes, 8 * kGiB);
  EXPECT_EQ(d.lending.b.bytes, 3 * kGiB);
}

TEST(DropForTest, NothingIsDroppedAndTheReasonIsNamed) {
  const Terms terms = TermsOf(kNvlink);
  Replica other = Busy();
  EXPECT_EQ(DropFor(0, {Busy(0), other}, terms).why, Why::kNotShort);
  EXPECT_EQ(DropFor(0, {Busy()}, terms).why, Why::kOneReplica);
  other.fingerprint = 8;
  EXPECT_EQ(DropFor(0, {Busy(), other}, terms).why, Why::kUnequal);
  // One that loads new weights has no fingerprint, and neither is equal then.
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
  other = Busy();
  other.partner = 2;
  EXPECT_EQ(DropFor(0, {Busy(), other}, terms).why, Why::kNoPartner);
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

TEST(DropForTest, EarlierDropsStayAndTheirPairToo) {
  Replica a = Busy(), b = Busy(0);
  a.partner = 1;
  b.partner = 0;
  a.kv.dropped = b.kv.dropped = 4 * kGiB;
  a.dropped = {20, 21, 22, 23};
  b.dropped = {0, 1, 2, 3};
  const DropDecision d = DropFor(0, {a, b}, TermsOf(kNvlink));
  ASSERT_EQ(d.why, Why::kDrops);
  EXPECT_EQ(d.lending.a.bytes, 8 * kGiB);
  EXPECT_EQ(d.lending.b.dropped, b.dropped);
  EXPECT_EQ(d.lending.a.dropped,
            (std::vector<size_t>{20, 21, 22, 23, 4, 5, 6, 7}));
}

TEST(DropForTest, ReadsOfEarlierDropsAreNoCostOfAnother) {
  // A GiB more costs 2.7 TPOT SLOs and saves 5 TTFT SLOs; the reads of the 12
  // GiB from before cost 32.
  Replica a = Busy(4), b = Busy(0);
  a.partner = 1;
  b.partner = 0;
  for (size_t i = 0; i < 12; ++i) {
    a.dropped.push_back(i);
    b.dropped.push_back(12 + i);
  }
  a.kv.dropped = b.kv.dropped = 12 * kGiB;
  a.kv.used = 54 * kGiB;
  a.freed_per_us /= 2;
  a.full_share = b.full_share = 0;
  const DropDecision d = DropFor(0, {a, b}, TermsOf(kNvlink));
  ASSERT_EQ(d.why, Why::kDrops);
  EXPECT_EQ(d.lending.a.bytes, 13 * kGiB);
}

TEST(DropForPropertyTest, DropsPayAndSlowerLinksOrRereadsDropLess) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  uint64_t fast = 0, again = 0, slow = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Replica> replicas;
    for (int i = 0; i < 2; ++i) {
      replicas.push_back(Busy(random() % 200));
      replicas[i].full_share = static_cast<double>(random() % 101) / 100;
      replicas[i].freed_per_us *= 1 + random() % 50;
    }
    const auto dropped = [&](const Terms& terms) -> uint64_t {
      const DropDecision d = DropFor(0, replicas, terms);
      if (d.why != Why::kDrops) return 0;
      double won = 0, lost = 0;
      const Lending::Side* sides[] = {&d.lending.a, &d.lending.b};
      for (int i = 0; i < 2; ++i) {
        won += TtftWon(replicas[i], terms, sides[i]->bytes);
        lost += TpotLost(replicas[i], terms, sides[i]->bytes,
                         ReadsOf(*sides[i], terms.parts,
                                 terms.link_bytes_per_us, terms.reread));
      }
      EXPECT_GT(won, lost);
      return d.lending.a.bytes + d.lending.b.bytes;
    };
    fast += dropped(TermsOf(kNvlink));
    again += dropped(TermsOf(kNvlink, 16));
    slow += dropped(TermsOf(kPcie));
  }
  EXPECT_LT(again, fast);
  EXPECT_LT(slow, again);
  EXPECT_GT(slow, 0u);
}

}  // namespace
}  // namespace fineserve::overload
