#include "daemon/proxy/admission/open_admission.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace fineserve::proxy {
namespace {

std::shared_ptr<const config::Fleet> TwoModels() {
  auto fleet = std::make_shared<config::Fleet>();
  fleet->models.resize(2);
  fleet->models[0].name = "org/m";
  fleet->models[1].name = "idle";
  for (const char* name : {"a", "b"}) {
    config::FleetEngine engine;
    engine.name = name;
    engine.model = "org/m";
    fleet->engines.push_back(engine);
  }
  return fleet;
}

class OpenAdmissionTest : public testing::Test {
 protected:
  // Returns the engine that the request is sent to; empty if the request is
  // refused.
  std::string Submit(uint64_t id, uint32_t prompt,
                     const std::string& avoid = "",
                     const std::string& model = "org/m") {
    AdmissionRequest request;
    request.id = id;
    request.model = model;
    request.prompt_tokens = prompt;
    request.max_tokens = 10;
    request.avoid_engine = avoid;
    const Verdict verdict = admission_.Choose(request);
    if (verdict.admitted) admission_.Enter(request, verdict.engine);
    return verdict.engine;
  }

  std::set<std::string> down_;
  OpenAdmission admission_{TwoModels(), [this](const std::string& engine) {
                             return down_.count(engine) == 0;
                           }};
};

TEST_F(OpenAdmissionTest, GoesWhereTheFewestTokensAreOutstanding) {
  EXPECT_EQ(Submit(1, 100), "a");
  EXPECT_EQ(Submit(2, 30), "b");
  EXPECT_EQ(Submit(3, 30), "b");  // 40 against 110
  admission_.FirstToken(1);       // leaves 10
  EXPECT_EQ(Submit(4, 1), "a");
}

TEST_F(OpenAdmissionTest, NothingIsOutstandingWhenAllHaveEnded) {
  for (uint64_t id = 1; id <= 6; ++id) Submit(id, 100);
  for (uint64_t id = 1; id <= 3; ++id) admission_.FirstToken(id);
  for (uint64_t id = 1; id <= 6; ++id) {
    admission_.Finished(id);
    admission_.Finished(id);  // once is enough
  }
  EXPECT_EQ(admission_.outstanding("a"), 0u);
  EXPECT_EQ(admission_.outstanding("b"), 0u);
}

TEST_F(OpenAdmissionTest, EngineThatDoesNotServeIsTheLastResort) {
  down_ = {"a"};
  EXPECT_EQ(Submit(1, 1), "b");
  EXPECT_EQ(Submit(2, 1), "b");
  down_ = {"a", "b"};
  EXPECT_EQ(Submit(3, 1), "a") << "which has less to do";
}

TEST_F(OpenAdmissionTest, EngineToAvoidIsTheLastResort) {
  EXPECT_EQ(Submit(1, 1, "a"), "b");
  auto one = std::make_shared<config::Fleet>(*TwoModels());
  one->engines.resize(1);
  admission_.SetFleet(one);
  EXPECT_EQ(Submit(2, 1, "a"), "a");
}

TEST_F(OpenAdmissionTest, ModelWithoutAnEngineIsRefused) {
  EXPECT_EQ(Submit(1, 1, "", "idle"), "");
}

}  // namespace
}  // namespace fineserve::proxy
