#include "daemon/proxy/page/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/newest_plan.h"

namespace fineserve::proxy {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kSlabBytes = 8 << 20;

// Ten slabs of 8 MiB: 0-2 of a view of engine 1 with a floor of 2, 3-4 leased
// whole by engine 2, 5 asked back from engine 1, 6-8 free, 9 absent.
abi::TableSnapshot Table() {
  abi::TableSnapshot table;
  table.epoch = 18'000'000'000'000'000'001u;
  table.granule_bytes = kSlabBytes / 4;
  table.granules_per_slab = 4;
  table.gpu_name = "Test \"GPU\"";
  table.daemon_pid = 4711;
  table.slabs.resize(10);
  for (int i = 0; i < 3; ++i) {
    table.slabs[i].word = {abi::SlabState::kPartial, 1, 10u + i};
  }
  for (int i = 3; i < 5; ++i) {
    table.slabs[i].word = {abi::SlabState::kFull, 2, 20};
  }
  table.slabs[5].word = {abi::SlabState::kReturning, 1, 13};
  table.slabs[9].word = {abi::SlabState::kAbsent, 0, 0};
  table.engines.resize(2);
  table.engines[0].id = 1;
  table.engines[0].name = "chat";
  table.engines[0].slabs_held = 4;
  abi::ViewRecord& view = table.engines[0].view;
  view.mode = abi::ViewMode::kView;
  view.state = abi::ViewState::kActive;
  view.floor = 2;
  view.cap = 10;
  view.wanted = 5;
  view.target = 3;
  view.returning = 1;
  table.engines[1].id = 2;
  table.engines[1].name = "whole";
  table.engines[1].member_pids = {21, 22};
  table.engines[1].slabs_held = 2;
  return table;
}

GpuSight Sight() {
  GpuSight sight;
  sight.name = "GPU-1";
  sight.answers = true;
  sight.since_ms = 1234;
  sight.table = Table();
  return sight;
}

class FakeAdmission final : public Admission {
 public:
  void Submit(const AdmissionRequest&, std::function<void(Verdict)>) override {}
  void Cancel(uint64_t) override {}
  void FirstToken(uint64_t) override {}
  void Progress(uint64_t, uint32_t) override {}
  void Finished(uint64_t, uint32_t, uint32_t, Outcome) override {}
  void SetFleet(std::shared_ptr<const config::Fleet>) override {}
  bool Serves(const std::string& engine) const override {
    return engine == "a";
  }
  bool LetsIn(const std::string& engine) const override {
    return plan.LetsIn(engine);
  }
  bool Ready() const override { return true; }
  std::map<std::string, bool> Daemons() const override {
    return {{"GPU-1", true}, {"GPU-2", false}};
  }
  const wire::NewestPlan* Plan() const override { return &plan; }
  bool IsEvicted(const std::string& model,
                 const std::string& gpu) const override {
    return model == "m" && gpu == evicted_from;
  }

  absl::optional<PeerReading> ReadingOf(
      const std::string& engine) const override {
    const auto found = reading.find(engine);
    if (found == reading.end()) return absl::nullopt;
    return found->second;
  }

  wire::NewestPlan plan;
  std::string evicted_from = "none";
  std::map<std::string, PeerReading> reading;
};

class ProxyPartTest : public ::testing::Test {
 protected:
  ProxyPartTest() {
    fleet_.models.resize(1);
    fleet_.models[0].name = "m";
    fleet_.models[0].slo_ttft_ms = 800;
    for (const char* name : {"a", "b"}) {
      config::FleetEngine engine;
      engine.name = name;
      engine.model = "m";
      fleet_.engines.push_back(engine);
    }
    clock_.AdvanceNs(5'000'000'000);
    recorder_.Keep(100);
  }
  // Records a request that has ended, with a model unless it went to none.
  template <typename Way>
  void Past(const std::string& id, Way way, const std::string& model = "m") {
    Recording recording(&recorder_, &clock_);
    recording.Begin();
    recording.life()->id = id;
    recording.life()->model = model;
    recording.life()->read_ns = clock_.NowNs();
    way(recording.life());
  }
  std::string Part() const {
    return ProxyPart({&fleet_, &admission_, &traffic_, &recorder_, false,
                      clock_.NowNs(), 1'000'000});
  }
  void Plan(uint64_t number, wire::PlaceState state) {
    wire::PlanT plan;
    plan.number = number;
    plan.places.push_back(std::make_unique<wire::PlannedPlaceT>());
    plan.places[0]->engine = "b";
    plan.places[0]->state = state;
    ASSERT_TRUE(admission_.plan.Take(plan).ok());
  }

  config::Fleet fleet_;
  FakeAdmission admission_;
  ManualClock clock_;
  Traffic traffic_;
  Recorder recorder_;
};

TEST(GpuPartTest, SlabsAreRunsOfStateAndEngine) {
  const std::string part = GpuPart({Sight()});
  EXPECT_THAT(part, HasSubstr("\"runs\":[1,1,3,2,2,2,4,1,1,0,0,3,6,0,1]"));
  EXPECT_THAT(part, HasSubstr("\"states\":[\"free\",\"partial\",\"full\","
                              "\"zeroing\",\"returning\",\"quarantined\","
                              "\"absent\"]"));
  EXPECT_THAT(part, HasSubstr("\"device\":\"Test \\\"GPU\\\"\""));
  EXPECT_THAT(part, HasSubstr("\"epoch\":\"18000000000000000001\""));
}

TEST(GpuPartTest, SlabsBeyondWholeOnesAndFloorsAreContested) {
  const std::string part = GpuPart({Sight()});
  const auto slabs = [](uint64_t n) { return std::to_string(n * kSlabBytes); };
  EXPECT_THAT(part, HasSubstr("\"present\":" + slabs(9) + ",\"whole\":" +
                              slabs(2) + ",\"floors\":" + slabs(2) +
                              ",\"contested\":" + slabs(5)));
  EXPECT_THAT(part,
              HasSubstr("\"floor\":" + slabs(2) + ",\"cap\":" + slabs(10) +
                        ",\"target\":" + slabs(3) + ",\"wanted\":" + slabs(5)));
  EXPECT_THAT(part, HasSubstr("\"name\":\"whole\",\"pids\":[21,22],"
                              "\"quarantined\":false,"
                              "\"held\":" +
                              slabs(2) + ",\"view\":null"));
}

TEST(GpuPartTest, AFloorOfASleeperIsContested) {
  GpuSight sight = Sight();
  sight.table->engines[0].view.state = abi::ViewState::kSuspended;
  EXPECT_THAT(GpuPart({sight}), HasSubstr("\"floors\":0,\"contested\":" +
                                          std::to_string(7 * kSlabBytes)));
}

TEST(GpuPartTest, AGpuThatWasNeverReadHasNoPool) {
  GpuSight sight;
  sight.name = "GPU-2";
  sight.why = "refused";
  sight.since_ms = 99;
  EXPECT_THAT(GpuPart({sight}),
              HasSubstr("{\"name\":\"GPU-2\",\"answers\":false,\"why\":"
                        "\"refused\",\"since\":99,\"pool\":null}"));
}

TEST_F(ProxyPartTest, ModelsHaveTheirEnginesAndFigures) {
  const std::string part = Part();
  EXPECT_THAT(part, HasSubstr("\"models\":[{\"name\":\"m\","
                              "\"slo_ttft_ms\":800,\"waiting\":0,"));
  EXPECT_THAT(
      part, HasSubstr("{\"name\":\"a\",\"gpu\":\"\",\"serves\":true,"
                      "\"let_in\":true,\"on_request\":false,\"scaled\":false,"
                      "\"stopped\":false,\"evicted\":false,\"reading\":null}"));
  EXPECT_THAT(part, HasSubstr("\"plan\":null"));
  EXPECT_THAT(part, HasSubstr("\"away\":[\"GPU-2\"]"));
}

TEST_F(ProxyPartTest, EngineWhoseMemoryHasLeftIsEvicted) {
  admission_.evicted_from = "";
  EXPECT_THAT(Part(), HasSubstr("\"stopped\":false,\"evicted\":true,"));
}

TEST_F(ProxyPartTest, EngineReadsAnothersWeights) {
  admission_.reading["a"] = {1 << 20, 22, 4'000'000'000, 1234};
  EXPECT_THAT(Part(),
              HasSubstr("\"evicted\":false,\"reading\":{\"bytes\":1048576,"
                        "\"lender\":22,\"since\":1004000,"
                        "\"step_us\":1234}}"));
}

TEST_F(ProxyPartTest, ThePlanTellsItsPlacesAndMoves) {
  Plan(6, wire::PlaceState::kStart);
  Plan(7, wire::PlaceState::kServe);
  EXPECT_THAT(Part(),
              HasSubstr("\"plan\":{\"number\":7,\"leader\":\"\",\"places\":["
                        "{\"engine\":\"b\",\"state\":\"serve\",\"rate\":0}],"
                        "\"changes\":[{\"number\":7,\"engine\":\"b\","
                        "\"from\":\"start\",\"to\":\"serve\"}]}"));
}

TEST_F(ProxyPartTest, ARequestsWayHasFourParts) {
  Past("r-1", [this](Life* life) {
    clock_.AdvanceNs(1000);
    LifeAttempt& attempt = life->NextAttempt();
    attempt.asked_ns = clock_.NowNs();
    clock_.AdvanceNs(2000);
    attempt.decided_ns = attempt.sent_ns = clock_.NowNs();
    clock_.AdvanceNs(3000);
    life->first_ns = clock_.NowNs();
    clock_.AdvanceNs(4000);
  });
  EXPECT_THAT(Part(), HasSubstr("\"counting_us\":1,\"waiting_us\":2,"
                                "\"engine_us\":3,\"relaying_us\":4,"
                                "\"ended\":1005000}"));
}

TEST_F(ProxyPartTest, ASecondAttemptsDecisionIsTheOneThatCounts) {
  Past("r-1", [this](Life* life) {
    for (const char* engine : {"a", "b"}) {
      LifeAttempt& attempt = life->NextAttempt();
      attempt.asked_ns = clock_.NowNs();
      clock_.AdvanceNs(2000);
      attempt.decided_ns = attempt.sent_ns = clock_.NowNs();
      attempt.engine = engine;
      clock_.AdvanceNs(3000);
    }
  });
  EXPECT_THAT(Part(), HasSubstr("\"engine\":\"b\",\"status\":0,"
                                "\"attempts\":2,"));
  EXPECT_THAT(Part(), HasSubstr("\"counting_us\":0,\"waiting_us\":7,"
                                "\"engine_us\":3,\"relaying_us\":0"));
}

TEST_F(ProxyPartTest, StageThatARequestNeverReachedTookNoTime) {
  Past("refused", [this](Life* life) {
    LifeAttempt& attempt = life->NextAttempt();
    attempt.asked_ns = clock_.NowNs();
    clock_.AdvanceNs(2000);
    attempt.decided_ns = clock_.NowNs();
  });
  EXPECT_THAT(Part(), HasSubstr("\"counting_us\":0,\"waiting_us\":2,"
                                "\"engine_us\":0,\"relaying_us\":0"));
}

TEST_F(ProxyPartTest, NothingInAFrameIsOlderForWaiting) {
  Past("r-1", [](Life*) {});
  const std::string before = Part();
  clock_.AdvanceNs(60'000'000'000);
  EXPECT_EQ(Part(), before);
}

TEST_F(ProxyPartTest, NewestRequestsComeFirstAndTextIsQuoted) {
  for (const char* id : {"old", "n\"ew"}) Past(id, [](Life*) {});
  const std::string part = Part();
  EXPECT_LT(part.find("\"n\\\"ew\""), part.find("\"old\""));
  EXPECT_THAT(Frame("\"gpus\":[]", part), Not(HasSubstr("\n")))
      << "an event is one line";
}

TEST_F(ProxyPartTest, OnlyTheLastRequestsToModelsAreShown) {
  Past("first", [](Life*) {});
  for (size_t n = 1; n < kMostShown; ++n) Past("later", [](Life*) {});
  Past(
      "of no model", [](Life*) {}, "");
  EXPECT_THAT(Part(), HasSubstr("\"first\""));
  EXPECT_THAT(Part(), Not(HasSubstr("of no model")));
  Past("last", [](Life*) {});
  EXPECT_THAT(Part(), Not(HasSubstr("\"first\"")));
}

TEST_F(ProxyPartTest, WhereNoRequestIsKeptNoneIsShown) {
  Past("r-1", [](Life*) {});
  recorder_.Keep(0);
  EXPECT_THAT(Part(), HasSubstr("\"requests\":null"));
}

}  // namespace
}  // namespace fineserve::proxy
