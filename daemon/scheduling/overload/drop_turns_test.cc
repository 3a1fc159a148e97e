#include "daemon/scheduling/overload/drop_turns.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fineserve::overload {
namespace {

using sched::Micros;

constexpr uint64_t kGib = 1ULL << 30;
constexpr Micros kOneS = 1'000'000;
constexpr DropRules kRules = {true, 300e3, 1};
constexpr uint64_t kShare = 8 * kGib;

// One engine with 16 GiB of weights.
class DropTurnsTest : public ::testing::Test {
 protected:
  static KvLoad Full() { return {40 * kGib, kGib, 10 * kGib, 40 * kGib, 0}; }
  static KvLoad HalfEmpty(uint64_t dropped) {
    return {kGib, 0, 0, 40 * kGib, dropped};
  }
  static Replica Of(const KvLoad& load) {
    Replica r;
    r.kv = load;
    r.fingerprint = 16 * kGib;
    r.domain = 1;
    r.waiting = load.queued == 0 ? 0 : 40;
    r.running = 10;
    r.freed_per_us = static_cast<double>(kGib) / kOneS;
    r.decode_us = r.full_us = [](const sched::PeerReads& reads) {
      return 60e3 + reads.AddedUs(60e3, 100);
    };
    return r;
  }
  static Terms ItsTerms() {
    return kRules.TermsOf(16 * kGib, kOneS, kOneS / 10);
  }
  Act Due(const KvLoad& load, bool moves = false,
          const std::string& trouble = "") {
    return turns_.Due(0, {load, moves, trouble, kShare}, /*chance=*/0, now_);
  }
  // The lender.
  absl::optional<uint32_t> Choose(uint32_t before = 0) {
    const auto choice = turns_.Choose(0, {Of(Full()), Of(HalfEmpty(0))},
                                      ItsTerms(), before, now_);
    return choice ? absl::make_optional(choice->lender) : absl::nullopt;
  }

  Micros now_ = 60 * kOneS;
  DropTurns turns_{kRules, {"a"}, 0};
};

TEST_F(DropTurnsTest, BurstDropsAndItsEndRestoresAndNeitherAtOnce) {
  EXPECT_EQ(Due(HalfEmpty(0)), Act::kNothing);
  EXPECT_EQ(turns_.why(0), "KV is not short");
  ASSERT_EQ(Due(Full()), Act::kDrop);
  ASSERT_EQ(Choose(), 1u);
  turns_.Ordered(0, now_);
  EXPECT_EQ(Due(Full(), /*moves=*/true), Act::kNothing);
  now_ += kOneS;
  EXPECT_EQ(Due(HalfEmpty(16 * kGib)), Act::kNothing);
  EXPECT_EQ(turns_.since(0), now_);
  now_ += 2 * kOneS - 1;
  EXPECT_EQ(Due(HalfEmpty(16 * kGib)), Act::kNothing);
  now_ += 1;
  ASSERT_EQ(Due(HalfEmpty(16 * kGib)), Act::kRestore);
  turns_.Ordered(0, now_);
  now_ += kOneS / 10;
  EXPECT_EQ(Due(Full()), Act::kNothing);
  now_ += 2 * kOneS;
  EXPECT_EQ(Due(Full()), Act::kDrop);
}

// A drop that takes long has not failed.
TEST_F(DropTurnsTest, NothingIsDueWhileMemoryMoves) {
  ASSERT_EQ(Due(Full()), Act::kDrop);
  turns_.Ordered(0, now_);
  for (int i = 0; i < 100; ++i, now_ += kOneS / 10) {
    ASSERT_EQ(Due(Full(), /*moves=*/true), Act::kNothing);
  }
  KvLoad dropped = HalfEmpty(16 * kGib);
  EXPECT_EQ(Due(dropped), Act::kNothing);
  now_ += 2 * kOneS;
  EXPECT_EQ(Due(dropped), Act::kRestore);
}

// An engine drops what it is short of, at most half of its weights.
TEST_F(DropTurnsTest, AmountIsWeighedUpToAShare) {
  const auto chosen = [&](uint64_t queued, uint64_t dropped) -> uint64_t {
    KvLoad load = Full();
    load.queued = queued;
    load.dropped = dropped;
    load.used += dropped;
    Replica asker = Of(load);
    asker.loans = DropRules::LoansOf(dropped, ItsTerms());
    const auto choice =
        turns_.Choose(0, {asker, Of(HalfEmpty(0))}, ItsTerms(), 0, now_);
    return choice ? choice->bytes : 0;
  };
  EXPECT_EQ(chosen(10 * kGib, 0), kShare);
  EXPECT_EQ(chosen(3 * kGib, 0), 3 * kGib);
  EXPECT_EQ(chosen(3 * kGib, 3 * kGib), 6 * kGib);
  EXPECT_EQ(chosen(10 * kGib, 7 * kGib), kShare);
  EXPECT_EQ(chosen(10 * kGib, kShare), 0u);
  EXPECT_EQ(turns_.why(0), Text(Why::kDropped));
  for (const uint64_t dropped : {kShare, 16 * kGib}) {
    const sched::PeerReads reads = kRules.ReadsOf(dropped, 16 * kGib);
    EXPECT_DOUBLE_EQ(reads.link_us, static_cast<double>(dropped) / 300e3);
    EXPECT_EQ(reads.work, dropped == kShare ? .5 : 1);
  }
  EXPECT_EQ(kRules.ReadsOf(0, 16 * kGib), sched::PeerReads());
  // With such a slow link a drop is not worth it.
  const DropRules slow = {true, 5e3, 16};
  EXPECT_FALSE(turns_.Choose(0, {Of(Full()), Of(HalfEmpty(0))},
                             slow.TermsOf(16 * kGib, kOneS, kOneS / 10), 0,
                             now_));
  EXPECT_EQ(turns_.why(0), Text(Why::kNotWorth));
}

TEST_F(DropTurnsTest, TryThatFailedIsRepeatedLaterAndLater) {
  Micros last = 0;
  for (int tries = 0; tries < 5; ++tries) {
    const Micros began = now_;
    while (Due(Full(), false, "no room") != Act::kDrop) {
      now_ += kOneS / 10;
      ASSERT_LT(now_ - began, 200 * kOneS);
      EXPECT_EQ(turns_.why(0), "no room");
    }
    EXPECT_GE(now_ - began, 2 * last);
    last = now_ - began;
    turns_.Ordered(0, now_);
    now_ += 1;
  }
  EXPECT_GE(last, 16 * kOneS);
  // A drop that others have ordered ends the pause.
  EXPECT_EQ(Due(Full()), Act::kNothing);
  KvLoad dropped = Full();
  dropped.dropped = 16 * kGib;
  EXPECT_EQ(Due(dropped), Act::kNothing);
  now_ += 3 * kOneS;
  dropped.used = dropped.undropped + dropped.dropped;
  EXPECT_EQ(Due(dropped), Act::kNothing);
  EXPECT_EQ(turns_.why(0), Text(Why::kDropped));
}

TEST_F(DropTurnsTest, ChancePartsTwoThatAreInEachOthersWay) {
  const auto until_next = [this](double chance) {
    DropTurns turns(kRules, {"a"}, 0);
    Micros now = now_;
    EXPECT_EQ(turns.Due(0, {Full()}, chance, now), Act::kDrop);
    turns.Ordered(0, now);
    while (turns.Due(0, {Full()}, chance, now) != Act::kDrop) now += 1000;
    return now - now_;
  };
  EXPECT_GT(until_next(.9), until_next(.1) + kOneS);
}

TEST_F(DropTurnsTest, OfTwoThatAreShortOneGoesFirst) {
  ASSERT_EQ(Due(Full()), Act::kDrop);
  EXPECT_FALSE(Choose(/*before=*/1));
  EXPECT_TRUE(turns_.waits());
  now_ += DropTurns::kYield;
  ASSERT_EQ(Due(Full()), Act::kDrop);
  EXPECT_EQ(Choose(/*before=*/1), 1u);
  // Each burst begins it again.
  EXPECT_EQ(Due(HalfEmpty(0)), Act::kNothing);
  EXPECT_FALSE(turns_.waits());
  ASSERT_EQ(Due(Full()), Act::kDrop);
  EXPECT_FALSE(Choose(/*before=*/1));
}

TEST_F(DropTurnsTest, LoadAroundAThresholdDoesNotThrash) {
  int orders = 0;
  uint64_t dropped = 0;
  const Micros began = now_;
  for (int i = 0; now_ < began + 60 * kOneS; ++i, now_ += kOneS / 20) {
    KvLoad load = i % 2 == 0 ? Full() : HalfEmpty(0);
    load.dropped = dropped;
    load.used += i % 2 == 0 ? dropped : 0;
    const Act act = Due(load);
    if (act == Act::kNothing) continue;
    dropped = act == Act::kDrop ? 16 * kGib : 0;
    turns_.Ordered(0, now_);
    ++orders;
  }
  EXPECT_GE(orders, 2);
  EXPECT_LE(orders, 31);
}

TEST_F(DropTurnsTest, AFleetThatChangesKeepsWhatIsKnown) {
  ASSERT_EQ(Due(Full()), Act::kDrop);
  turns_.Ordered(0, now_);
  EXPECT_EQ(Due(Full(), false, "no room"), Act::kNothing);
  DropTurns next(kRules, {"b", "a"}, now_);
  next.GoOnFrom(turns_);
  EXPECT_EQ(next.why(1), "no room");
  EXPECT_EQ(next.Due(1, {Full(), false, "no room"}, 0, now_), Act::kNothing);
}

}  // namespace
}  // namespace fineserve::overload
