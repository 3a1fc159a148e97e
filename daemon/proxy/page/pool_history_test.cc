#include "daemon/proxy/page/pool_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kSecondNs = 1'000'000'000;

// Slabs held, by engine.
using Held = std::vector<std::pair<std::string, uint64_t>>;

// GPU "g" with a pool of ten slabs of 100 bytes, `absent` of which have no
// memory.
GpuSight SightOf(const Held& held, size_t absent = 0) {
  GpuSight sight;
  sight.name = "g";
  sight.answers = true;
  sight.table.emplace();
  sight.table->granule_bytes = 100;
  sight.table->granules_per_slab = 1;
  sight.table->slabs.resize(10);
  for (size_t i = 0; i < absent; ++i) {
    sight.table->slabs[i].word.state = abi::SlabState::kAbsent;
  }
  for (const auto& [name, slabs] : held) {
    sight.table->engines.emplace_back();
    sight.table->engines.back().name = name;
    sight.table->engines.back().slabs_held = slabs;
  }
  return sight;
}

// Returns the sight of a GPU whose daemon is gone and has left its table.
GpuSight Away() {
  GpuSight sight = SightOf({{"a", 1}});
  sight.answers = false;
  return sight;
}

class PoolHistoryTest : public ::testing::Test {
 protected:
  void Add(const std::vector<GpuSight>& sights) {
    history_.Add(now_ns_, sights);
    now_ns_ += PoolHistory::kPeriodNs;
  }
  std::string Text() const { return history_.Text(1'000'000); }

  PoolHistory history_;
  uint64_t now_ns_ = 0;
};

TEST_F(PoolHistoryTest, EachEngineHasItsBytesAtEachMoment) {
  Add({SightOf({{"a", 2}, {"b", 3}})});
  Add({SightOf({{"a", 4}, {"b", 1}})});
  EXPECT_EQ(Text(),
            "{\"period_ms\":15000,\"times\":[1000000,1015000],\"gpus\":["
            "{\"name\":\"g\",\"present\":[1000,1000],\"engines\":["
            "{\"name\":\"a\",\"held\":[200,400]},"
            "{\"name\":\"b\",\"held\":[300,100]}]}]}");
}

TEST_F(PoolHistoryTest, NextMomentIsDueAfterAPeriod) {
  EXPECT_EQ(history_.due_ns(), 0u);
  history_.Add(7, {});
  EXPECT_EQ(history_.due_ns(), 7 + PoolHistory::kPeriodNs);
}

TEST_F(PoolHistoryTest, WithoutAPoolThereIsNoText) {
  Add({});
  Add({Away()});
  EXPECT_EQ(Text(), "");
}

TEST_F(PoolHistoryTest, PoolThatIsFoundLaterHasAGapBefore) {
  Add({});
  Add({SightOf({{"a", 1}})});
  EXPECT_THAT(Text(), HasSubstr("\"present\":[null,1000]"));
  EXPECT_THAT(Text(), HasSubstr("\"held\":[0,100]"));
}

TEST_F(PoolHistoryTest, GapsStayWhenTheDaemonIsBack) {
  Add({SightOf({{"a", 1}})});
  Add({Away()});
  Add({});
  Add({SightOf({{"a", 2}})});
  EXPECT_THAT(Text(), HasSubstr("\"present\":[1000,null,null,1000]"));
  EXPECT_THAT(Text(), HasSubstr("\"held\":[100,0,0,200]"));
}

TEST_F(PoolHistoryTest, EngineThatLeftStaysInItsPastAndOneOfItsNameGoesOn) {
  Add({SightOf({{"a", 1}, {"b", 1}})});
  Add({SightOf({{"b", 1}})});
  // The second engine of the name begins while the first is in quarantine.
  Add({SightOf({{"a", 1}, {"b", 1}, {"a", 4}})});
  EXPECT_THAT(Text(), HasSubstr("{\"name\":\"a\",\"held\":[100,0,500]}"));
  EXPECT_THAT(Text(), HasSubstr("{\"name\":\"b\",\"held\":[100,100,100]}"));
}

TEST_F(PoolHistoryTest, EngineWithoutSlabsIsNotNamed) {
  Add({SightOf({{"a", 1}, {"idle", 0}})});
  EXPECT_THAT(Text(), Not(HasSubstr("idle")));
}

TEST_F(PoolHistoryTest, ResizedPoolHasItsSizeAtEachMoment) {
  Add({SightOf({{"a", 1}}, /*absent=*/4)});
  GpuSight restarted = SightOf({{"a", 1}});
  restarted.table->granules_per_slab = 2;
  Add({restarted});
  EXPECT_THAT(Text(), HasSubstr("\"present\":[600,2000]"));
  EXPECT_THAT(Text(), HasSubstr("\"held\":[100,200]"));
}

TEST_F(PoolHistoryTest, EntriesOlderThanAnHourAreForgotten) {
  Add({SightOf({{"old", 1}})});
  for (int n = 0; n < 240; ++n) Add({SightOf({{"new", 1}})});
  EXPECT_THAT(Text(), HasSubstr("\"times\":[1000000,")) << "an hour ago";
  EXPECT_THAT(Text(), HasSubstr("old"));
  Add({SightOf({{"new", 1}})});
  EXPECT_THAT(Text(), HasSubstr("\"times\":[1015000,"));
  EXPECT_THAT(Text(), Not(HasSubstr("old")));
}

TEST_F(PoolHistoryTest, PoolWithoutADaemonForAnHourIsForgotten) {
  Add({SightOf({{"a", 1}})});
  now_ns_ += PoolHistory::kAgeNs - 2 * PoolHistory::kPeriodNs;
  Add({Away()});
  EXPECT_THAT(Text(), HasSubstr("\"present\":[1000,null]"));
  now_ns_ += kSecondNs;
  Add({Away()});
  EXPECT_EQ(Text(), "");
}

}  // namespace
}  // namespace fineserve::proxy
