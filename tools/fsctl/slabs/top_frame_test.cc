#include "tools/fsctl/slabs/top_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/fsctl/daemons/fabricated_pool.h"

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns the state a second before FabricateObservation: slab 4 is not leased
// yet.
Observation Earlier() {
  Observation earlier = FabricateObservation();
  earlier.at.monotonic_ns -= kTestSecond;
  earlier.pool.table.slabs[4].word = {};
  earlier.pool.table.counters.leases_granted -= 1;
  return earlier;
}

Observation Present() {
  Observation now = FabricateObservation();
  now.view_scoreboards.at(1)->allocated_blocks = 1234;
  now.view_scoreboards.at(1)->failed_allocations = 7;
  return now;
}

std::string Frame(const Observation& now, const Churn& churn,
                  TopOrder order = TopOrder::kSlabs,
                  const std::string& trouble = "") {
  return Render(TopFrame(now, churn, order, trouble), false);
}

TEST(TopFrameTest, TextIsTheGoldenOne) {
  EXPECT_EQ(
      Frame(Present(), ChurnBetween(Earlier(), Present())),
      R"(pool    512 MiB in 8 slabs of 64 MiB on Test GPU, emulated (GPU-4a000000-0000-0000-0000-000000000000)
daemon  pid 4711, started 5 min ago
slabs   . free 2  - partial 3  # full 1  0 zeroing 1  ! quarantined 1
churn   leases granted 1.0/s, denied 0.0/s; slabs asked back 0.0/s, returned 0.0/s; zeroed 0 B/s
[--.0-.!#]

ENGINE    PIDS       SLABS  FORMAT       WANTED  FLOOR  CAP   BLOCKS  DENSITY      LOST  LEASED/S  RETURNED/S  ALLOC/S  FAILED  MISSED
1 vllm-a  4712,4713      3  8×96 KiB/16       5      2    6  124/254     49 %  33.8 MiB       1.0         0.0   1234.0       7       0
2 vllm-b  -              1  -                 -      -    -        -        -         -       0.0         0.0        -       -       -

quarantined 1 slab of engine 2 vllm-b for 60 s, waiting for the driver to stop listing the engine's processes
)");
}

TEST(TopFrameTest, TotalsAreNotCalledRates) {
  const std::string frame = Frame(Present(), TotalChurn(Present()));
  EXPECT_THAT(frame, HasSubstr("leases granted 3, denied 1; slabs asked"));
  EXPECT_THAT(frame, HasSubstr("LEASED  RETURNED  ALLOC  FAILED"));
  EXPECT_THAT(frame, Not(HasSubstr("/s")));
}

TEST(TopFrameTest, FirstFrameKnowsNoRates) {
  const std::string frame =
      Frame(Present(), ChurnBetween(Present(), Present()));
  EXPECT_THAT(frame, HasSubstr("churn   not known yet\n"));
  EXPECT_THAT(frame, HasSubstr("LEASED/S  RETURNED/S  ALLOC/S"));
  EXPECT_THAT(frame,
              HasSubstr("       ?           ?        ?       7       0\n"));
}

TEST(TopFrameTest, DeadDaemonIsShownAndThatItsQuarantineDoesNotEnd) {
  Observation now = Present();
  now.pool.socket.clear();
  now.pool.holder_pid = 4712;
  const std::string frame = Frame(now, TotalChurn(now));
  EXPECT_THAT(
      frame, HasSubstr("daemon  daemon 4711 is dead; read through pid 4712\n"));
  EXPECT_THAT(frame, HasSubstr("waiting for a daemon to end it"));
}

TEST(TopFrameTest, BlocksOfAProcessThatIsGoneAreUnknownWithTheReason) {
  Observation now = Present();
  now.view_scoreboards.at(1) = absl::NotFoundError("pid 4712 is gone");
  const std::string frame = Frame(now, ChurnBetween(Earlier(), now));
  EXPECT_THAT(frame,
              HasSubstr("    6       ?        ?     ?       1.0         0.0  "
                        "      ?       ?       ?\n"));
  EXPECT_THAT(
      frame,
      HasSubstr("unknown     blocks of engine 1 vllm-a: pid 4712 is gone\n"));
}

TEST(TopFrameTest, TroubleIsShownWhereTheDaemonWas) {
  const std::string frame = Frame(Present(), TotalChurn(Present()),
                                  TopOrder::kSlabs, "out of date: gone");
  EXPECT_THAT(frame, HasSubstr("daemon  out of date: gone\nslabs"));
}

std::vector<std::string> EnginesBy(TopOrder order) {
  Observation now = Present();
  now.pool.table.slabs[5].word = {abi::SlabState::kFull, 2, 50};
  now.pool.table.engines[1].name = "a-first";
  now.pool.table.engines[1].slabs_held = 9;
  Churn churn = ChurnBetween(Earlier(), now);
  churn.engines[2].leased = 5;
  const auto json = nlohmann::json::parse(TopJson(now, churn, order));
  std::vector<std::string> names;
  for (const auto& engine : json["engines"]) names.push_back(engine["name"]);
  return names;
}

TEST(TopFrameTest, EnginesAreSortedMostFirstUnknownLast) {
  EXPECT_THAT(EnginesBy(TopOrder::kSlabs), ElementsAre("a-first", "vllm-a"));
  EXPECT_THAT(EnginesBy(TopOrder::kDensity), ElementsAre("vllm-a", "a-first"));
  EXPECT_THAT(EnginesBy(TopOrder::kChurn), ElementsAre("a-first", "vllm-a"));
  EXPECT_THAT(EnginesBy(TopOrder::kMissed), ElementsAre("vllm-a", "a-first"));
  EXPECT_THAT(EnginesBy(TopOrder::kName), ElementsAre("a-first", "vllm-a"));
}

TEST(TopFrameTest, WholeSlabsAreNamedAndManyMembersCounted) {
  Observation now = Present();
  now.pool.table.engines.push_back(
      {9, abi::EngineState::kAlive, 1000, 1, 0, {5, 6, 7, 8}, "big"});
  EXPECT_THAT(Frame(now, TotalChurn(now)),
              HasSubstr("9 big     5 +3           1  whole  "));
}

TEST(TopFrameTest, SortingGoesRound) {
  TopOrder order = TopOrder::kSlabs;
  for (size_t i = 0; i < std::size(kTopOrders); ++i) order = Next(order);
  EXPECT_EQ(order, TopOrder::kSlabs);
  EXPECT_NE(Next(order), TopOrder::kSlabs);
}

TEST(TopFrameTest, TinyTerminalShowsWhatFits) {
  const auto lines =
      TopFrame(Present(), TotalChurn(Present()), TopOrder::kSlabs, "");
  EXPECT_EQ(Render(Fit(lines, 2, 12), false), "pool    512 \n... 10 more\n");
  EXPECT_TRUE(Fit(lines, 0, 12).empty());
}

// Returns a frame as a terminal of this size shows it.
std::string FrameOn(ScreenSize size) {
  const auto lines = TopFrame(Present(), ChurnBetween(Earlier(), Present()),
                              TopOrder::kSlabs, "", size);
  return Render(Fit(lines, size.rows, size.columns), false);
}

TEST(TopFrameTest, NarrowTerminalKeepsWhatIsMissed) {
  const std::string wide = FrameOn({40, 120});
  EXPECT_THAT(wide, HasSubstr("FAILED  MISSED\n"));
  EXPECT_THAT(wide, HasSubstr("RETURNED/S"));
  EXPECT_THAT(wide, Not(HasSubstr("PIDS")));
  const std::string narrow = FrameOn({40, 70});
  EXPECT_THAT(narrow, HasSubstr("MISSED\n"));
  EXPECT_THAT(narrow, HasSubstr("BLOCKS  DENSITY"));
}

TEST(TopFrameTest, LowTerminalKeepsTheEngines) {
  const std::string low = FrameOn({8, 70});
  EXPECT_THAT(low, HasSubstr("1 vllm-a "));
  EXPECT_THAT(low, HasSubstr("2 vllm-b "));
  EXPECT_THAT(low, HasSubstr("quarantined 1 slab"));
  EXPECT_THAT(low, HasSubstr("pool    512 MiB"));
  EXPECT_THAT(low, Not(HasSubstr("more")));
  const auto lost = TopFrame(Present(), TotalChurn(Present()), TopOrder::kSlabs,
                             "out of date", {6, 70});
  EXPECT_THAT(Render(lost, false), HasSubstr("daemon  out of date"));
}

wire::ModelsT Models(int count) {
  wire::ModelsT models;
  for (int i = 0; i < count; ++i) {
    auto model = std::make_unique<wire::ModelFiguresT>();
    model->name = absl::StrCat("llama-3.1-8b-instruct-", i);
    model->slo_ttft_ms = 500;
    model->queued = i;
    model->recent_on_time = 97;
    model->recent_late = 3;
    model->ttft_p50_ms = 123.4;
    model->ttft_p99_ms = 12'345;
    auto engine = std::make_unique<wire::EngineFiguresT>();
    engine->serves = true;
    engine->running = 7;
    model->engines.push_back(std::move(engine));
    models.models.push_back(std::move(model));
  }
  return models;
}

std::vector<Line> FrameOfFleet(int models, ScreenSize size) {
  return TopFrame(Present(), ChurnBetween(Earlier(), Present()),
                  TopOrder::kSlabs, "", size, Models(models));
}

void ExpectFits(const std::vector<Line>& lines, ScreenSize size) {
  EXPECT_LE(lines.size(), size.rows);
  for (const Line& line : lines) {
    const std::string text = Render({line}, false);
    EXPECT_LE(Width(text) - 1, size.columns) << text;
  }
}

TEST(TopFrameTest, FleetFitsOnTheUsualTerminals) {
  // The sizes exclude the line of keys and the blank line above it.
  for (const ScreenSize size : {ScreenSize{22, 80}, ScreenSize{38, 120}}) {
    for (const int models : {0, 1, 3, 40}) {
      ExpectFits(FrameOfFleet(models, size), size);
    }
    ExpectFits(TopHelp(), {22, 80});
  }
}

TEST(TopFrameTest, FrameOfAFleetIsTheGoldenOneOn80Columns) {
  EXPECT_EQ(
      Render(FrameOfFleet(2, {22, 80}), false),
      R"(pool    512 MiB in 8 slabs of 64 MiB on Test GPU, emulated (GPU-4a000000)
daemon  pid 4711, started 5 min ago
slabs   . free 2  - partial 3  # full 1  0 zeroing 1  ! quarantined 1
churn   leases granted 1.0/s, denied 0.0/s, returned 0.0/s
[--.0-.!#]

MODEL                    RUNNING  QUEUED  TTFT P50     P99     SLO  ON TIME
llama-3.1-8b-instruct-0        7       0    123 ms  12.3 s  500 ms     97 %
llama-3.1-8b-instruct-1        7       1    123 ms  12.3 s  500 ms     97 %

ENGINE    SLABS   BLOCKS  DENSITY  LEASED/S  RETURNED/S  ALLOC/S  FAILED  MISSED
1 vllm-a      3  124/254     49 %       1.0         0.0   1234.0       7       0
2 vllm-b      1        -        -       0.0         0.0        -       -       -

quarantined 1 slab of engine 2 vllm-b for 60 s
            waiting for the driver to stop listing the engine's processes
)");
}

TEST(TopFrameTest, ModelsWithTheMostRequestsAreShown) {
  const std::string frame = Render(FrameOfFleet(40, {22, 80}), false);
  EXPECT_THAT(frame, HasSubstr("llama-3.1-8b-instruct-39 "));
  EXPECT_THAT(frame, Not(HasSubstr("llama-3.1-8b-instruct-0 ")));
  EXPECT_THAT(frame, HasSubstr("more, with fewer requests"));
  EXPECT_THAT(frame, HasSubstr("2 vllm-b "));
}

TEST(TopFrameTest, ModelWithoutAFirstTokenHasNoTtft) {
  wire::ModelsT models = Models(1);
  models.models[0]->ttft_p50_ms = models.models[0]->ttft_p99_ms = -1;
  const auto lines = TopFrame(Present(), TotalChurn(Present()),
                              TopOrder::kSlabs, "", {}, models);
  EXPECT_THAT(Render(lines, false),
              HasSubstr("7       0         -    -  500 ms"));
  const auto json = nlohmann::json::parse(
      TopJson(Present(), TotalChurn(Present()), TopOrder::kSlabs, models));
  EXPECT_TRUE(json["models"][0]["ttft_p50_ms"].is_null());
  EXPECT_EQ(json["models"][0]["running"], 7);
}

TEST(TopFrameTest, EngineThatReadsAnothersWeightsIsNoted) {
  wire::ModelsT models = Models(1);
  wire::EngineFiguresT& engine = *models.models[0]->engines[0];
  engine.name = "chat-a";
  EXPECT_THAT(Render(TopFrame(Present(), TotalChurn(Present()),
                              TopOrder::kSlabs, "", {}, models),
                     false),
              Not(HasSubstr("weights")));
  engine.dropped_bytes = 15ull << 30;
  engine.lender_pid = 4711;
  engine.dropped_s = 12.3;
  engine.reads_us = 1234;
  const auto frame = [&](ScreenSize size) {
    return Render(TopFrame(Present(), TotalChurn(Present()), TopOrder::kSlabs,
                           "", size, models),
                  false);
  };
  EXPECT_THAT(frame({}), HasSubstr("weights     chat-a reads 15 GiB of weights "
                                   "from pid 4711 for 12 s, adds 1.2 ms to a "
                                   "step\n"));
  EXPECT_THAT(frame({24, 80}), HasSubstr("12 s\n            adds 1.2 ms"));
  const auto json = nlohmann::json::parse(
      TopJson(Present(), TotalChurn(Present()), TopOrder::kSlabs, models));
  EXPECT_EQ(json["models"][0]["readers"],
            nlohmann::json::parse(R"([{"name": "chat-a",
                "dropped_bytes": 16106127360, "lender_pid": 4711,
                "dropped_s": 12.3, "reads_us": 1234.0}])"));
  engine.reads_us = 0;  // the link is not known
  EXPECT_THAT(frame({}), HasSubstr(" for 12 s\n"));
}

TEST(TopFrameTest, JsonAgreesWithTheText) {
  const auto json = nlohmann::json::parse(
      TopJson(Present(), ChurnBetween(Earlier(), Present()), TopOrder::kSlabs));
  EXPECT_EQ(json["per_second"], true);
  EXPECT_EQ(json["churn"]["leases_granted"], 1);
  EXPECT_EQ(json["engines"][0]["leased"], 1);
  EXPECT_EQ(json["engines"][0]["view"]["blocks"]["failed_allocations"], 7);
  EXPECT_EQ(json["engines"][1]["allocated_blocks"], nullptr);
  EXPECT_EQ(json["quarantined"][0]["engine_name"], "vllm-b");
  EXPECT_EQ(json["states"]["partial"]["slabs"], 3);
}

}  // namespace
}  // namespace fineserve::fsctl
