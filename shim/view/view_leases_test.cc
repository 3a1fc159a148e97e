#include "shim/view/view_leases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "shim/testdata/plain_slab_table.h"

namespace fineserve::shim {
namespace {

using abi::SlabState;
using abi::SlabWord;
using Hold = ViewLeases::Hold;

constexpr uint32_t kSlabs = 8;
constexpr uint32_t kSlot = 5;
constexpr uint32_t kEngine = 7;

class ViewLeasesTest : public testing::Test {
 protected:
  void TearDown() override { leases_.Close(); }

  bool Open(uint32_t views = kSlabs) { return Open(&table_, views); }
  bool Open(PlainSlabTable* table, uint32_t views) {
    return leases_.Open(table->header(), table->bytes(), kSlot, kEngine, views);
  }
  void Set(uint32_t v, SlabState state, uint32_t engine, uint32_t lease) {
    table_.slabs()[v - 1].word = SlabWord::Pack({state, engine, lease});
    ++table_.engines()[kSlot].changes;
  }
  void Lease(uint32_t v, uint32_t lease) {
    Set(v, SlabState::kPartial, kEngine, lease);
  }
  void AskBack(uint32_t v, uint32_t lease) {
    Set(v, SlabState::kReturning, kEngine, lease);
  }
  void Hand(uint32_t v, uint32_t lease) {
    Lease(v, lease);
    leases_.Look();
    leases_.Report(v);
  }

  PlainSlabTable table_{kSlabs};
  ViewLeases leases_;
};

TEST_F(ViewLeasesTest, LeaseComesOnceAndSoDoesItsAskBack) {
  ASSERT_TRUE(Open());
  EXPECT_FALSE(leases_.Changed());
  Lease(3, 11);
  EXPECT_TRUE(leases_.Changed());
  leases_.Look();
  EXPECT_EQ(leases_.Next(Hold::kArrived, 0), 3u);
  EXPECT_EQ(leases_.Next(Hold::kArrived, 3), 0u);
  leases_.Report(3);
  leases_.Look();
  EXPECT_EQ(leases_.count(Hold::kArrived), 0u);
  EXPECT_EQ(leases_.hold(3), Hold::kHeld);
  AskBack(3, 11);
  leases_.Look();
  EXPECT_EQ(leases_.hold(3), Hold::kAsked);
  leases_.Report(3);
  leases_.Look();
  EXPECT_EQ(leases_.hold(3), Hold::kLeaving);
  EXPECT_EQ(leases_.leased(), 1u);
}

TEST_F(ViewLeasesTest, ReturnedSlabIsNoLongerOursOnceTheTableShowsIt) {
  ASSERT_TRUE(Open());
  Hand(2, 5);
  EXPECT_TRUE(leases_.ReturnSlab(2)) << "unasked";
  EXPECT_EQ(leases_.lease(2), 5u);
  leases_.MarkSent(2);
  leases_.Look();
  EXPECT_EQ(leases_.hold(2), Hold::kSent) << "the daemon has yet to read it";
  Set(2, SlabState::kZeroing, 0, 0);
  leases_.Look();
  EXPECT_EQ(leases_.hold(2), Hold::kNone);
}

TEST_F(ViewLeasesTest, NextLeaseOfASlabDiffersFromTheLast) {
  ASSERT_TRUE(Open());
  Hand(2, 5);
  leases_.ReturnSlab(2);
  leases_.MarkSent(2);
  Lease(2, 9);  // it was free in between, unseen
  leases_.Look();
  EXPECT_EQ(leases_.hold(2), Hold::kArrived);
  EXPECT_EQ(leases_.lease(2), 9u);
}

TEST_F(ViewLeasesTest, SlabAskedBackBeforeTheEngineKnewOfItGoesStraightBack) {
  ASSERT_TRUE(Open());
  AskBack(1, 5);
  Lease(4, 6);
  leases_.Look();
  EXPECT_EQ(leases_.hold(1), Hold::kDone);
  EXPECT_EQ(leases_.lease(1), 5u);
  AskBack(4, 6);
  leases_.Look();
  EXPECT_EQ(leases_.hold(4), Hold::kDone);
}

TEST_F(ViewLeasesTest, SlabThatWasTakenAwayIsNoLongerUsed) {
  ASSERT_TRUE(Open());
  Hand(2, 5);
  Set(2, SlabState::kPartial, kEngine + 1, 6);
  leases_.Look();
  EXPECT_EQ(leases_.hold(2), Hold::kAsked);
}

TEST_F(ViewLeasesTest, LostDaemonsReturnIsALeaseAgain) {
  ASSERT_TRUE(Open());
  Hand(2, 5);
  leases_.ReturnSlab(2);
  leases_.Relink(2);
  EXPECT_EQ(leases_.hold(2), Hold::kArrived);
  EXPECT_EQ(leases_.leased(), 1u);
}

TEST_F(ViewLeasesTest, OnlyHeldSlabsCanBeReturned) {
  ASSERT_TRUE(Open());
  Hand(2, 5);
  for (const uint32_t v : {0u, 1u, kSlabs + 1, UINT32_MAX}) {
    EXPECT_FALSE(leases_.ReturnSlab(v)) << v;
  }
  EXPECT_TRUE(leases_.ReturnSlab(2));
  EXPECT_FALSE(leases_.ReturnSlab(2)) << "once";
}

TEST_F(ViewLeasesTest, SlabsOfOthersAndWholeLeasesAreNotOurs) {
  ASSERT_TRUE(Open());
  Set(1, SlabState::kPartial, kEngine + 1, 3);
  Set(2, SlabState::kFull, kEngine, 4);  // whole slabs, of another member
  Set(3, SlabState::kQuarantined, kEngine, 5);
  Set(4, SlabState::kPartial, kEngine, 0);  // no such lease
  table_.slabs()[4].word = 0xffff'ffff'ffff'ffff;
  leases_.Look();
  EXPECT_EQ(leases_.count(Hold::kNone), kSlabs);
}

TEST_F(ViewLeasesTest, SlabsBehindTheTensorsAreNotLookedAt) {
  ASSERT_TRUE(Open(/*views=*/2));
  Lease(3, 5);
  leases_.Look();
  EXPECT_EQ(leases_.leased(), 0u);
}

TEST_F(ViewLeasesTest, TableThatContradictsItselfIsRefused) {
  struct Case {
    const char* name;
    void (*spoil)(abi::TableHeader*);
  };
  const Case cases[] = {
      {"magic", [](abi::TableHeader* h) { h->magic[0] = 'X'; }},
      {"version", [](abi::TableHeader* h) { ++h->abi_version; }},
      {"engines beyond", [](abi::TableHeader* h) { h->engines_offset += 512; }},
      {"engines far", [](abi::TableHeader* h) { h->engines_offset = ~7u; }},
      {"slabs beyond", [](abi::TableHeader* h) { h->slabs_offset += 32; }},
      {"slabs unaligned", [](abi::TableHeader* h) { h->slabs_offset -= 4; }},
      {"too few slabs", [](abi::TableHeader* h) { h->slab_count = 2; }},
  };
  for (const Case& c : cases) {
    PlainSlabTable table(kSlabs);
    c.spoil(table.header());
    EXPECT_FALSE(Open(&table, kSlabs)) << c.name;
  }
  EXPECT_FALSE(leases_.Open(table_.header(), 4096, kSlot, kEngine, kSlabs));
  EXPECT_FALSE(leases_.Open(table_.header(), table_.bytes(),
                            abi::kEngineCapacity, kEngine, kSlabs));
  EXPECT_TRUE(Open());
}

// For any content of the table, every reported lease is the table's lease at
// that moment, and is reported once, and the counts add up.
TEST_F(ViewLeasesTest, RandomTablesNeverLeaseTwice) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  ASSERT_TRUE(Open());
  std::vector<uint32_t> reported(kSlabs +
                                 1);  // the lease that the engine holds
  uint32_t next_lease = 1;
  for (int i = 0; i < 20'000; ++i) {
    const uint32_t v = 1 + random() % kSlabs;
    const auto word = SlabWord::Unpack(table_.slabs()[v - 1].word);
    switch (random() % 5) {
      case 0:  // a daemon leases what is free
        if (word.state == SlabState::kFree) Lease(v, next_lease++);
        break;
      case 1:
        if (word.state == SlabState::kPartial) AskBack(v, word.lease);
        break;
      case 2:  // the daemon reads a return
        if (leases_.hold(v) == Hold::kSent && word.lease == leases_.lease(v)) {
          Set(v, SlabState::kFree, 0, 0);
        }
        break;
      case 3:
        if (reported[v] != 0 && leases_.ReturnSlab(v)) reported[v] = 0;
        break;
      case 4:
        if (leases_.hold(v) == Hold::kDone) leases_.MarkSent(v);
        break;
    }
    if (random() % 3 == 0) leases_.Look();
    for (uint32_t a = 0; (a = leases_.Next(Hold::kArrived, a)) != 0;) {
      ASSERT_EQ(reported[a], 0u);
      reported[a] = leases_.lease(a);
      leases_.Report(a);
    }
    for (uint32_t a = 0; (a = leases_.Next(Hold::kAsked, a)) != 0;) {
      ASSERT_EQ(reported[a], leases_.lease(a));
      leases_.Report(a);
    }
    uint32_t sum = 0;
    for (int h = 0; h < ViewLeases::kHoldCount; ++h) {
      sum += leases_.count(static_cast<Hold>(h));
    }
    ASSERT_EQ(sum, kSlabs);
  }
}

TEST_F(ViewLeasesTest, ReturnIsSentAgainUnlessTheTableShowsIt) {
  ASSERT_TRUE(Open());
  for (uint32_t v = 1; v <= 2; ++v) {
    Hand(v, v + 4);
    ASSERT_TRUE(leases_.ReturnSlab(v));
    leases_.MarkSent(v);
  }
  Set(1, SlabState::kZeroing, 0, 0);
  leases_.SendAgain();
  EXPECT_EQ(leases_.hold(1), Hold::kNone);
  EXPECT_EQ(leases_.hold(2), Hold::kDone);
}

}  // namespace
}  // namespace fineserve::shim
