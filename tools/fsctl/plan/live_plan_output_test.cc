#include "tools/fsctl/plan/live_plan_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHostile[] = "\x1b]0;owned\x07\n\xff";
constexpr char kMadePrintable[] = "?]0;owned???";

DaemonPlan Knows(const std::string& gpu, uint64_t number) {
  DaemonPlan daemon;
  daemon.gpu = gpu;
  if (number == 0) return daemon;
  daemon.state.plan = std::make_unique<wire::PlanT>();
  daemon.state.plan->number = number;
  return daemon;
}

void AddPlace(const std::string& engine, wire::PlaceState state, double rate,
              DaemonPlan* daemon) {
  auto place = std::make_unique<wire::PlannedPlaceT>();
  place->engine = engine;
  place->state = state;
  place->target_rate = rate;
  daemon->state.plan->places.push_back(std::move(place));
}

void AddRate(const std::string& model, double rate, double attainment,
             bool observed, DaemonPlan* daemon) {
  auto demand = std::make_unique<wire::ModelRateT>();
  demand->model = model;
  demand->rate = rate;
  demand->prompt_tokens = 242;
  demand->output_tokens = 327;
  demand->attainment = attainment;
  demand->observed = observed;
  daemon->state.demand.push_back(std::move(demand));
}

DaemonPlan Leader() {
  DaemonPlan leader = Knows("GPU-aa", 12);
  AddPlace("chat-0", wire::PlaceState::kRetire, 0, &leader);
  AddPlace("chat-1", wire::PlaceState::kServe, 2.25, &leader);
  AddPlace("code-0", wire::PlaceState::kOff, 0, &leader);
  AddPlace("code-1", wire::PlaceState::kStart, 0, &leader);
  AddRate("chat", 2.25, 0.975, true, &leader);
  AddRate("code", 0.5, -1, false, &leader);
  leader.state.leads = true;
  leader.state.move = "chat from chat-0 to chat-1";
  auto pin = std::make_unique<wire::PinT>();
  pin->model = "code";
  pin->gpu = "GPU-bb";
  leader.state.pins.push_back(std::move(pin));
  leader.state.troubles = {"code: is 1.0 GiB short on GPU-aa"};
  return leader;
}

std::vector<DaemonPlan> All(DaemonPlan a, DaemonPlan b) {
  std::vector<DaemonPlan> all;
  all.push_back(std::move(a));
  all.push_back(std::move(b));
  return all;
}

std::vector<DaemonPlan> Alone(DaemonPlan leader) {
  std::vector<DaemonPlan> all;
  all.push_back(std::move(leader));
  return all;
}

TEST(LivePlanOutputTest, TellsWhyADaemonIsNotPlannedFor) {
  DaemonPlan other = Knows("GPU-bb", 0);
  other.state.troubles = {"another fleet is led here"};
  const auto all = All(Leader(), std::move(other));
  EXPECT_THAT(LivePlanText(all, false),
              HasSubstr("\nGPU-bb: another fleet is led here\n"));
  EXPECT_THAT(LivePlanJson(all),
              HasSubstr("\"GPU-bb: another fleet is led here\""));
}

TEST(LivePlanOutputTest, ShowsWhatRunsWhereAndWhatMoves) {
  const std::string text = LivePlanText(Alone(Leader()), false);
  EXPECT_THAT(text, HasSubstr("plan 12, led by GPU-aa\nmodels may move\n"
                              "under way: chat from chat-0 to chat-1\n"));
  EXPECT_THAT(text, HasSubstr("chat-0  retire           -\n"));
  EXPECT_THAT(text, HasSubstr("chat-1  serve         2.25\n"));
  EXPECT_THAT(text, HasSubstr("code-0  off              -\n"));
  EXPECT_THAT(text, HasSubstr("code-1  start            -\n"));
  EXPECT_THAT(text, HasSubstr("pinned: code on GPU-bb\n"));
  EXPECT_THAT(text, HasSubstr("\ncode: is 1.0 GiB short on GPU-aa\n"));
  EXPECT_THAT(text, Not(HasSubstr("older plan")));
}

TEST(LivePlanOutputTest, ShowsWhichPlacesThatAreOffRestAndWhichEnd) {
  DaemonPlan leader = Leader();
  AddPlace("mail-0", wire::PlaceState::kOff, 0, &leader);
  leader.state.plan->places.back()->no_rest = true;
  leader.state.away = {"mail-0", "chat-1"};  // chat-1 is coming back
  DaemonPlan other = Knows("GPU-bb", 12);
  other.state.away = {"code-0"};
  const auto all = All(std::move(leader), std::move(other));
  const std::string text = LivePlanText(all, false);
  EXPECT_THAT(text, HasSubstr("code-0  off, rests           -\n"));
  EXPECT_THAT(text, HasSubstr("mail-0  off, ends            -\n"));
  const auto places = nlohmann::json::parse(LivePlanJson(all))["places"];
  EXPECT_TRUE(places[1]["process"].is_null()) << "it is not off";
  EXPECT_EQ(places[2]["process"], "rests");
  EXPECT_EQ(places[4]["process"], "ends");
}

TEST(LivePlanOutputTest, ExpectedFiguresAreMarked) {
  const std::string text = LivePlanText(Alone(Leader()), false);
  EXPECT_THAT(
      text,
      HasSubstr("chat         2.25     242     327   97.50 %  observed\n"));
  EXPECT_THAT(text, HasSubstr("code          0.5     242     327         -  "
                              "expected\n"));
}

TEST(LivePlanOutputTest, FrozenSaysHowToThaw) {
  DaemonPlan leader = Leader();
  leader.state.frozen = true;
  leader.state.move = "";
  const std::string text = LivePlanText(Alone(std::move(leader)), false);
  EXPECT_THAT(text, HasSubstr("frozen: no model moves until fsctl plan "
                              "--thaw\nunder way: nothing\n"));
}

TEST(LivePlanOutputTest, NewestPlanIsShownAndFollowersOfAnOlderOneAreNamed) {
  DaemonPlan newer = Knows("GPU-bb", 13);
  AddPlace("only-in-13", wire::PlaceState::kServe, 1, &newer);
  std::vector<DaemonPlan> all = All(Leader(), std::move(newer));
  all.push_back(Knows("GPU-cc", 0));
  const std::string text = LivePlanText(all, false);
  EXPECT_THAT(text, HasSubstr("plan 13, led by GPU-aa\n"));
  EXPECT_THAT(text, HasSubstr("only-in-13"));
  EXPECT_THAT(text, Not(HasSubstr("chat-1  ")));
  EXPECT_THAT(text,
              HasSubstr("\nolder plan: GPU-aa follows 12, GPU-cc none\n"));
}

TEST(LivePlanOutputTest, LeaderWithTheNewerPlanCounts) {
  DaemonPlan older = Knows("GPU-00", 3);
  older.state.leads = true;
  const auto all = All(std::move(older), Leader());
  EXPECT_EQ(LeaderOf(all)->gpu, "GPU-aa");
  EXPECT_EQ(NewestOf(all)->gpu, "GPU-aa");
}

TEST(LivePlanOutputTest, WithoutALeaderItsPartIsMissing) {
  DaemonPlan daemon = Leader();
  daemon.state.leads = false;
  const auto all = Alone(std::move(daemon));
  const std::string text = LivePlanText(all, false);
  EXPECT_THAT(text, HasSubstr("plan 12; no daemon leads now"));
  EXPECT_THAT(text, Not(HasSubstr("ATTAINED")));
  const auto json = nlohmann::json::parse(LivePlanJson(all));
  EXPECT_TRUE(json["leader"].is_null());
  EXPECT_TRUE(json["frozen"].is_null());
  EXPECT_EQ(json["places"].size(), 4u);
}

TEST(LivePlanOutputTest, SilentDaemonIsNamedAndNotCalledOlder) {
  DaemonPlan silent = Knows("GPU-bb", 0);
  silent.trouble = "fineserved has not answered within 2 s";
  const auto all = All(Leader(), std::move(silent));
  const std::string text = LivePlanText(all, false);
  EXPECT_THAT(text,
              HasSubstr("GPU-bb: fineserved has not answered within 2 s\n"));
  EXPECT_THAT(text, Not(HasSubstr("older plan")));
  const auto json = nlohmann::json::parse(LivePlanJson(all));
  EXPECT_EQ(json["daemons"][1]["trouble"],
            "fineserved has not answered within 2 s");
}

TEST(LivePlanOutputTest, LeaderWithoutAPlanShowsWhatHindersIt) {
  DaemonPlan leader = Knows("GPU-aa", 0);
  leader.state.leads = true;
  leader.state.troubles = {"chat: no profile"};
  const auto all = Alone(std::move(leader));
  EXPECT_THAT(LivePlanText(all, false),
              HasSubstr("no plan yet, led by GPU-aa\n"));
  EXPECT_THAT(LivePlanText(all, false), HasSubstr("chat: no profile\n"));
  EXPECT_TRUE(nlohmann::json::parse(LivePlanJson(all))["number"].is_null());
}

TEST(LivePlanOutputTest, JsonHasTheSameFigures) {
  const auto json =
      nlohmann::json::parse(LivePlanJson(All(Leader(), Knows("GPU-bb", 11))));
  EXPECT_EQ(json["number"], 12);
  EXPECT_EQ(json["leader"], "GPU-aa");
  EXPECT_EQ(json["frozen"], false);
  EXPECT_EQ(json["move"], "chat from chat-0 to chat-1");
  EXPECT_EQ(json["places"][0]["state"], "retire");
  EXPECT_EQ(json["places"][1]["engine"], "chat-1");
  EXPECT_EQ(json["places"][1]["target_rate"], 2.25);
  EXPECT_EQ(json["models"][0]["attainment"], 0.975);
  EXPECT_EQ(json["models"][0]["prompt_tokens"], 242);
  EXPECT_EQ(json["models"][0]["output_tokens"], 327);
  EXPECT_TRUE(json["models"][1]["attainment"].is_null());
  EXPECT_EQ(json["models"][1]["observed"], false);
  EXPECT_EQ(json["pins"][0]["gpu"], "GPU-bb");
  EXPECT_EQ(json["troubles"][0], "code: is 1.0 GiB short on GPU-aa");
  EXPECT_EQ(json["daemons"][0]["leads"], true);
  EXPECT_EQ(json["daemons"][1]["plan"], 11);
}

TEST(LivePlanOutputTest, NoTextOfADaemonReachesTheTerminalRaw) {
  DaemonPlan leader = Knows(kHostile, 1);
  leader.state.leads = true;
  AddPlace(kHostile, static_cast<wire::PlaceState>(77), -1, &leader);
  AddRate(kHostile, 0.0 / 0.0, 0.0 / 0.0, true, &leader);
  leader.state.move = kHostile;
  leader.state.troubles = {kHostile};
  leader.state.pins.push_back(std::make_unique<wire::PinT>());
  leader.state.pins[0]->model = leader.state.pins[0]->gpu = kHostile;
  DaemonPlan silent = Knows(kHostile, 0);
  silent.trouble = kHostile;
  const auto all = All(std::move(leader), std::move(silent));
  for (const std::string& shown :
       {LivePlanText(all, false), LivePlanJson(all)}) {
    EXPECT_THAT(shown, HasSubstr(kMadePrintable));
    for (const char bad : {'\x1b', '\x07', '\xff'}) {
      EXPECT_EQ(shown.find(bad), std::string::npos);
    }
  }
  const auto json = nlohmann::json::parse(LivePlanJson(all));
  EXPECT_EQ(json["places"][0]["state"], "unknown");
}

std::string PlanLine(int number) {
  return "{\"number\": " + std::to_string(number) +
         ", \"time\": \"2026-03-01T12:00:0" + std::to_string(number) +
         "Z\", \"why\": \"reason " + std::to_string(number) +
         "\", \"places\": {\"chat-0\": {\"state\": \"serve\"}}}";
}

TEST(PlanHistoryTest, LastPlansAreShownNewestLast) {
  wire::PlanStateT leader;
  for (int i = 1; i <= 5; ++i) leader.history.push_back(PlanLine(i));
  EXPECT_EQ(HistoryText(leader, 2, false),
            "TIME                  PLAN  WHY\n"
            "2026-03-01T12:00:04Z     4  reason 4\n"
            "2026-03-01T12:00:05Z     5  reason 5\n");
  const auto json = nlohmann::json::parse(HistoryJson(leader, 2));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["number"], 4);
  EXPECT_EQ(json[1]["places"]["chat-0"]["state"], "serve");
  EXPECT_EQ(nlohmann::json::parse(HistoryJson(leader, 20)).size(), 5u);
}

TEST(PlanHistoryTest, EmptyHistoryIsAnEmptyTable) {
  EXPECT_EQ(HistoryText({}, 20, false), "TIME  PLAN  WHY\n");
  EXPECT_EQ(HistoryJson({}, 20), "[]\n");
}

TEST(PlanHistoryTest, LineThatCannotBeReadIsShownAsItIs) {
  wire::PlanStateT leader;
  leader.history = {"{\"number\": 1", "[1]",
                    "{\"why\": \"\\u001b[2Jgone\", \"\\u009b\": 1}",
                    std::string(100'000, '[')};
  EXPECT_THAT(HistoryText(leader, 3, false), Not(HasSubstr("\x1b")));
  const std::string text = HistoryText(leader, 4, false);
  EXPECT_THAT(text, HasSubstr("-        -  {\"number\": 1\n"));
  EXPECT_THAT(text, HasSubstr("-        -  ?[2Jgone\n"));
  const auto json = nlohmann::json::parse(HistoryJson(leader, 4));
  EXPECT_EQ(json[1]["why"], "[1]");
  EXPECT_THAT(HistoryJson(leader, 3), Not(HasSubstr("\xc2\x9b")));
}

}  // namespace
}  // namespace fineserve::fsctl
