#include "daemon/fineserved/exporter/snapshot_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/contract/metrics/metric_list.h"
#include "daemon/fineserved/exporter/names.h"
#include "daemon/fineserved/exporter/snapshot_fixture.h"

namespace fineserve::exporter {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// Returns the samples of a page: value by name and labels. A page with a
// duplicate is invalid.
std::map<std::string, double> Samples(const std::string& text) {
  std::map<std::string, double> samples;
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(space + 1), &value)) << line;
    EXPECT_TRUE(samples.emplace(line.substr(0, space), value).second) << line;
  }
  return samples;
}

std::set<std::string> Families(const std::string& text) {
  std::set<std::string> names;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "# TYPE ")) continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    EXPECT_TRUE(names.insert(words[2]).second) << line;
  }
  return names;
}

TEST(SnapshotTextTest, EveryMetricOfTheDaemonIsOnThePageAndNoOther) {
  std::set<std::string> listed;
  for (const metrics::Metric& metric : metrics::AllMetrics()) {
    if (metric.program == metrics::Program::kDaemon) listed.insert(metric.name);
  }
  EXPECT_EQ(Families(SnapshotText(SnapshotWith(1), {})), listed);
}

// An absent proxy raises a single alert instead of one for each engine.
TEST(SnapshotTextTest, WithoutAProxyItIsNotKnownWhichEnginesServe) {
  metrics::Snapshot snapshot = SnapshotWith(1);
  const std::string serves =
      "fineserve_engine_serves{engine=\"e0\",model=\"m0\"}";
  EXPECT_EQ(Samples(SnapshotText(snapshot, {})).count(serves), 1u);
  snapshot.admission->proxies = 0;
  EXPECT_EQ(Samples(SnapshotText(snapshot, {})).count(serves), 0u);
}

TEST(SnapshotTextTest, SaysWhatTheSnapshotSays) {
  metrics::Snapshot snapshot = SnapshotWith(1);
  snapshot.pool.slabs[static_cast<size_t>(abi::SlabState::kFree)] = 3;
  snapshot.pool.engines[0].floor = 5;
  snapshot.pool.engines[0].floor_unmet = 3;
  snapshot.pool.engines[0].swaps_ns = 2'500'000'000;
  snapshot.pool.engines[0].longest_swap_ns = 500'000'000;
  snapshot.pool.memory_errors = 7;
  snapshot.pool.engines[0].evicted_bytes = 44;
  snapshot.pool.moves = {5, 4, 3, 2, 1};
  snapshot.pool.store = {.held_bytes = 90, .spare_bytes = 20};
  snapshot.admission->models[0].rejected[1] = 4;
  snapshot.admission->engines[0].kappa = 1.5;
  snapshot.admission->engines[0].dropped_bytes = 77;
  snapshot.admission->engines[0].dropped_s = 12;
  snapshot.admission->engines[0].peer_read_bytes = 7700;
  snapshot.table.daemons = 3;
  const auto samples = Samples(SnapshotText(snapshot, {9, 0.25, 2}));
  for (const auto& [name, value] : std::map<std::string, double>{
           {"fineserve_build_info{version=\"1.0\",abi=\"7\",gpu=\"GPU-x\","
            "device=\"Emulated\",epoch=\"000000000000002a\"}",
            1},
           {"fineserve_takeovers_total", 2},
           {"fineserve_scrapes_total", 9},
           {"fineserve_scrape_loop_seconds_total", 0.25},
           {"fineserve_former_pool_processes", 2},
           {"fineserve_pool_slabs{state=\"free\"}", 3},
           {"fineserve_pool_bytes{state=\"free\"}", 3000},
           {"fineserve_engine_bytes{engine=\"e0\",model=\"m0\","
            "state=\"partial\"}",
            2000},
           {"fineserve_floors_unmet", 1},
           {"fineserve_memory_errors_total", 7},
           {"fineserve_engine_evicted_bytes{engine=\"e0\",model=\"m0\"}", 44},
           {"fineserve_moves_total{result=\"evicted\"}", 5},
           {"fineserve_moves_total{result=\"activated\"}", 4},
           {"fineserve_moves_total{result=\"failed\"}", 3},
           {"fineserve_moves_total{result=\"dropped\"}", 2},
           {"fineserve_moves_total{result=\"restored\"}", 1},
           {"fineserve_engine_dropped_bytes{engine=\"e0\",model=\"m0\"}", 77},
           {"fineserve_engine_dropped_seconds{engine=\"e0\",model=\"m0\"}", 12},
           {"fineserve_peer_read_bytes_total{engine=\"e0\",model=\"m0\"}",
            7700},
           {"fineserve_store_bytes{state=\"needed\"}", 70},
           {"fineserve_store_bytes{state=\"spare\"}", 20},
           {"fineserve_engine_swap_seconds{engine=\"e0\",model=\"m0\"}", 2.5},
           {"fineserve_engine_longest_swap_seconds{engine=\"e0\","
            "model=\"m0\"}",
            0.5},
           {"fineserve_engine_floor_bytes{engine=\"e0\",model=\"m0\"}", 5000},
           {"fineserve_rejections_total{model=\"m0\",reason=\"too_long\"}", 4},
           {"fineserve_decisions_total{model=\"m0\",decision=\"rejected\"}", 4},
           {"fineserve_engine_kappa{engine=\"e0\",model=\"m0\"}", 1.5}}) {
    EXPECT_THAT(samples, Contains(Pair(name, value)));
  }
}

TEST(SnapshotTextTest, BucketsOfAHistogramAddUp) {
  metrics::Snapshot snapshot = SnapshotWith(0);
  snapshot.pool.ask_back.buckets[0] = 2;
  snapshot.pool.ask_back.buckets[metrics::kDurationBuckets - 1] = 1;
  snapshot.pool.ask_back.sum_s = 500;
  const auto samples = Samples(SnapshotText(snapshot, {}));
  EXPECT_THAT(
      samples,
      Contains(Pair("fineserve_ask_back_seconds_bucket{le=\"1e-05\"}", 2)));
  EXPECT_THAT(
      samples,
      Contains(Pair("fineserve_ask_back_seconds_bucket{le=\"300\"}", 2)));
  EXPECT_THAT(
      samples,
      Contains(Pair("fineserve_ask_back_seconds_bucket{le=\"+Inf\"}", 3)));
  EXPECT_THAT(samples, Contains(Pair("fineserve_ask_back_seconds_count", 3)));
  EXPECT_THAT(samples, Contains(Pair("fineserve_ask_back_seconds_sum", 500)));
}

TEST(SnapshotTextTest, WithoutFleetAndPlannerTheirMetricsAreAbsent) {
  metrics::Snapshot snapshot = SnapshotWith(1);
  snapshot.admission.reset();
  snapshot.plan.reset();
  const std::string text = SnapshotText(snapshot, {});
  EXPECT_THAT(text, Not(HasSubstr("fineserve_decisions_total")));
  EXPECT_THAT(text, Not(HasSubstr("fineserve_plan_number")));
  EXPECT_THAT(text, HasSubstr("engine=\"e0\",model=\"\",state=\"full\"} 0"));
}

TEST(SnapshotTextTest, EnginesOfOneNameCountTogether) {
  metrics::Snapshot snapshot = SnapshotWith(1);
  snapshot.pool.engines.push_back(snapshot.pool.engines[0]);
  snapshot.pool.engines[1].alive = false;
  const auto samples = Samples(SnapshotText(snapshot, {}));
  EXPECT_THAT(samples, Contains(Pair("fineserve_engine_slabs{engine=\"e0\","
                                     "model=\"m0\",state=\"partial\"}",
                                     4)));
  EXPECT_THAT(samples,
              Contains(Pair("fineserve_engines{state=\"quarantined\"}", 1)));
}

TEST(SnapshotTextTest, TooManyNamesCountAsOther) {
  const auto samples = Samples(SnapshotText(SnapshotWith(kMostNames + 5), {}));
  for (const char* name :
       {"fineserve_engine_slabs{engine=\"other\",model=\"\",state=\"partial\"}",
        "fineserve_engine_starts_total{engine=\"other\"}",
        "fineserve_engine_requests{engine=\"other\",model=\"\"}",
        "fineserve_decisions_total{model=\"other\",decision=\"admitted\"}"}) {
    const double each = absl::StrContains(name, "slabs") ? 2 : 1;
    EXPECT_THAT(samples, Contains(Pair(name, 5 * each)));
  }
  EXPECT_EQ(
      samples.count("fineserve_engine_kappa{engine=\"other\",model=\"\"}"), 0u);
}

// Any user who starts an engine can name it.
TEST(SnapshotTextTest, NoNameOfAPeerBreaksThePage) {
  metrics::Snapshot snapshot = SnapshotWith(1);
  snapshot.pool.engines[0].name = "a\"\n\\\xff\xc3 2\nfineserve_pool_slabs 7";
  const std::string text = SnapshotText(snapshot, {});
  const auto samples = Samples(text);
  EXPECT_EQ(samples.count("fineserve_pool_slabs"), 0u);
  EXPECT_THAT(text,
              HasSubstr("engine=\"a\\\"?\\\\?? 2?fineserve_pool_slabs 7"));
  snapshot.pool.engines[0].name = std::string(1000, 'x');
  const std::string longer = SnapshotText(snapshot, {});
  EXPECT_THAT(longer,
              HasSubstr("\"" + std::string(kMostNameBytes, 'x') + "\""));
}

}  // namespace
}  // namespace fineserve::exporter
