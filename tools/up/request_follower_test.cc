#include "tools/up/request_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/fsctl/terminal/fabricated_moment.h"

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Standing = RequestFollower::Engine::State;

class RequestFollowerTest : public ::testing::Test {
 protected:
  // Returns "a: run", or "a: stop for b", for each change.
  std::vector<std::string> Turn() {
    now_ns_ += kTestSecond;
    std::vector<std::string> changes;
    for (const auto& change : follower_.Turn(now_ns_, engines_)) {
      changes.push_back(
          change.engine + (change.wish == Wish::kRun ? ": run" : ": stop") +
          (change.makes_place_for.empty() ? ""
                                          : " for " + change.makes_place_for));
      for (RequestFollower::Engine& engine : engines_) {
        if (engine.name == change.engine) engine.wish = change.wish;
      }
    }
    return changes;
  }
  // An engine of its own model.
  RequestFollower::Engine& Add(const std::string& name, Standing state) {
    engines_.push_back({name, name, "GPU-1"});
    engines_.back().state = state;
    engines_.back().served_s = 1e6;
    proxy_[name] = {0, 0};
    return engines_.back();
  }

  struct Demand {
    uint64_t waiting;
    double idle_s;
  };
  std::vector<RequestFollower::Engine> engines_;
  std::map<std::string, Demand> proxy_;
  bool other_is_silent_ = false;
  std::vector<apply::Question> asked_;
  uint64_t now_ns_ = kTestSecond;
  RequestFollower follower_{
      "/fleet.toml", [this](const apply::Question& question) {
        asked_.push_back(question);
        apply::Answer answer;
        for (const auto& [name, demand] : proxy_) {
          apply::EngineState& state = answer.engines.emplace_back();
          state.name = name;
          state.waiting = demand.waiting;
          state.idle_s = demand.idle_s;
        }
        std::vector<absl::optional<apply::Answer>> answers = {answer};
        if (other_is_silent_) answers.push_back(absl::nullopt);
        return answers;
      }};
};

TEST_F(RequestFollowerTest, EngineRunsOnceARequestWaitsForIt) {
  Add("a", Standing::kDown);
  Add("b", Standing::kDown);
  EXPECT_THAT(Turn(), IsEmpty());
  proxy_["b"].waiting = 1;
  EXPECT_THAT(Turn(), ElementsAre("b: run"));
  EXPECT_THAT(Turn(), IsEmpty());
}

TEST_F(RequestFollowerTest, OneEngineOfAModelStartsAndAnotherIfItFails) {
  Add("a", Standing::kDown).model = "m";
  Add("b", Standing::kDown).model = "m";
  proxy_["a"].waiting = proxy_["b"].waiting = 1;
  EXPECT_THAT(Turn(), ElementsAre("a: run"));
  engines_[0].state = Standing::kFails;
  EXPECT_THAT(Turn(), ElementsAre("b: run"));
}

TEST_F(RequestFollowerTest, EngineStopsAfterItsTimeWithoutARequest) {
  Add("a", Standing::kServes).stop_after_s = 60;
  Add("b", Standing::kServes);
  proxy_["a"].idle_s = 59;
  proxy_["b"].idle_s = 1e6;
  EXPECT_THAT(Turn(), IsEmpty());
  proxy_["a"].idle_s = 60;
  other_is_silent_ = true;
  EXPECT_THAT(Turn(), IsEmpty()) << "the other proxy may send it requests";
  other_is_silent_ = false;
  engines_[0].served_s = 3;
  EXPECT_THAT(Turn(), IsEmpty()) << "it has just come";
  engines_[0].served_s = 60;
  EXPECT_THAT(Turn(), ElementsAre("a: stop"));
}

TEST_F(RequestFollowerTest, EngineThatEndsIsStartedAgainIfRequestsWait) {
  Add("a", Standing::kEnds).wish = Wish::kStop;
  EXPECT_THAT(Turn(), IsEmpty());
  proxy_["a"].waiting = 1;
  EXPECT_THAT(Turn(), ElementsAre("a: run"));
}

TEST_F(RequestFollowerTest, DownEngineThatNoRequestWaitsForStaysDown) {
  Add("a", Standing::kDown).wish = Wish::kRun;
  EXPECT_THAT(Turn(), ElementsAre("a: stop"));
}

TEST_F(RequestFollowerTest, FailedStartStopsTheLongestIdleEngineOfItsGpu) {
  Add("a", Standing::kServes);
  Add("b", Standing::kServes);
  Add("elsewhere", Standing::kServes).gpu = "GPU-2";
  Add("busy", Standing::kServes);
  Add("new", Standing::kStarts).wish = Wish::kRun;
  proxy_ = {{"a", {0, 10}},
            {"b", {0, 20}},
            {"elsewhere", {0, 30}},
            {"busy", {0, 0}},
            {"new", {1, 0}}};
  EXPECT_THAT(Turn(), IsEmpty());
  engines_[4].state = Standing::kDown;
  engines_[4].failed_starts = 1;
  EXPECT_THAT(Turn(), ElementsAre("b: stop for new"));
  engines_[1].state = Standing::kEnds;
  EXPECT_THAT(Turn(), IsEmpty()) << "one for each failed start";
  engines_[4].failed_starts = 2;
  EXPECT_THAT(Turn(), ElementsAre("a: stop for new"));
  engines_[0].state = Standing::kEnds;
  engines_[4].failed_starts = 3;
  EXPECT_THAT(Turn(), IsEmpty()) << "the last one is busy";
}

TEST_F(RequestFollowerTest, FailureCountsOnlyIfNoOtherCouldStop) {
  Add("a", Standing::kServes);
  Add("new", Standing::kDown).wish = Wish::kRun;
  engines_[1].pause_s = 3;
  proxy_ = {{"a", {0, 10}}, {"new", {1, 0}}};
  const auto fails = [this] {
    ++engines_[1].failed_starts;
    const auto changes = Turn();
    Turn();  // tells the proxies
    EXPECT_EQ(asked_.back().starts.at("new") < 0,
              engines_[1].failed_starts >= 4);
    return changes;
  };
  EXPECT_THAT(fails(), ElementsAre("a: stop for new"));
  EXPECT_THAT(fails(), ElementsAre("a: stop for new"));
  proxy_["a"].idle_s = 0;
  EXPECT_THAT(fails(), IsEmpty());
  EXPECT_THAT(fails(), IsEmpty());
  EXPECT_TRUE(follower_.FailsInVain("new"));
  engines_[1].pause_s = 0;
  Turn();
  EXPECT_EQ(asked_.back().starts.at("new"), 0) << "it is tried again";
  engines_[1].state = Standing::kServes;
  Turn();
  EXPECT_FALSE(follower_.FailsInVain("new"));
}

TEST_F(RequestFollowerTest, BrokenEngineStopsFewOthers) {
  Add("a", Standing::kServes);
  Add("broken", Standing::kDown).wish = Wish::kRun;
  proxy_ = {{"a", {0, 1000}}, {"broken", {1, 0}}};
  const auto stops = [this] {
    uint64_t stops = 0;
    for (int start = 0; start < 20; ++start) {
      ++engines_[1].failed_starts;
      stops += Turn().size();
    }
    return stops;
  };
  EXPECT_EQ(stops(), RequestFollower::kMostStops);
  now_ns_ += RequestFollower::kStopsAgainNs;
  EXPECT_EQ(stops(), RequestFollower::kMostStops) << "a busy one may be idle";
  engines_[0].state = Standing::kDown;
  now_ns_ += RequestFollower::kStopsAgainNs;
  ++engines_[1].failed_starts;
  Turn();
  engines_[0].state = Standing::kServes;
  EXPECT_EQ(stops(), 0u) << "it failed alone on its GPU";
}

TEST_F(RequestFollowerTest, EngineThatHangsHidesNoReplicaAndStops) {
  Add("a", Standing::kServes).model = "m";
  Add("b", Standing::kDown).model = "m";
  engines_[0].wish = Wish::kRun;
  proxy_["a"].waiting = proxy_["b"].waiting = 1;
  EXPECT_THAT(Turn(), IsEmpty());
  engines_[0].state = Standing::kFails;
  EXPECT_THAT(Turn(), ElementsAre("b: run"));
  proxy_["a"].waiting = proxy_["b"].waiting = 0;
  engines_[1].state = Standing::kServes;
  EXPECT_THAT(Turn(), ElementsAre("a: stop"));
}

TEST(RequestFollowerEngineTest, LateStartAndSilentEngineHang) {
  constexpr double kS = RequestFollower::kLongestStartS;
  SupervisedEngine life;
  life.Started(7, 0);
  const auto see = [&](double start_s, double now_s) {
    RequestFollower::Engine engine;
    engine.See(life, /*ends=*/false, start_s,
               static_cast<uint64_t>(now_s * 1e9));
    return std::pair(engine.state, engine.seconds);
  };
  EXPECT_EQ(see(30, 10), std::pair(Standing::kStarts, 20.0));
  EXPECT_EQ(see(30, kS - 1), std::pair(Standing::kStarts, 0.0));
  EXPECT_EQ(see(30, kS).first, Standing::kFails);
  EXPECT_EQ(see(kS, kS), std::pair(Standing::kStarts, 0.0));
  EXPECT_EQ(see(kS, 3 * kS).first, Standing::kFails);
  const uint64_t served_ns = 100 * kTestSecond;
  life.Checked(true, served_ns);
  EXPECT_EQ(see(30, 100), std::pair(Standing::kServes, 0.0));
  life.Checked(false, served_ns);
  life.Checked(false, served_ns + SupervisedEngine::kSilentNs);
  EXPECT_EQ(see(30, 159).first, Standing::kServes);
  EXPECT_EQ(see(30, 160).first, Standing::kFails);
}

TEST_F(RequestFollowerTest, ProxiesHearHowTheStartsStand) {
  Add("a", Standing::kStarts).seconds = 30;
  Add("b", Standing::kFails).seconds = 12;
  Turn();
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].fleet_path, "/fleet.toml");
  EXPECT_EQ(asked_[0].starts,
            (std::map<std::string, double>{{"a", 30}, {"b", -12}}));
  follower_.Turn(now_ns_ + 1, engines_);
  EXPECT_EQ(asked_.size(), 1u) << "twice a second at most";
}

}  // namespace
}  // namespace fineserve::fsctl
