// What the proxy decides without a socket: routes, keys, admission, estimates.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/proxy/key_set.h"
#include "daemon/proxy/open_admission.h"
#include "daemon/proxy/request_id.h"
#include "daemon/proxy/routes.h"
#include "daemon/proxy/service_fields.h"
#include "daemon/proxy/token_estimator.h"

namespace fineserve::proxy {
namespace {

using ::testing::HasSubstr;

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

TEST(RoutesTest, EachPathHasItsPort) {
  struct Case {
    const char* target;
    Route on_public, on_admin;
  };
  const Case cases[] = {
      {"/health", Route::kHealth, Route::kHealth},
      {"/live", Route::kHealth, Route::kHealth},
      {"/ready?x", Route::kReady, Route::kReady},
      {"/metrics", Route::kUnknown, Route::kMetrics},
      {"/v1/models", Route::kModels, Route::kUnknown},
      {"/v1/models/a/b", Route::kModels, Route::kUnknown},
      {"/v1/chat/completions", Route::kAdmitted, Route::kUnknown},
      {"/v1/completions?a=b", Route::kAdmitted, Route::kUnknown},
      {"/v1/completions/x", Route::kForwarded, Route::kUnknown},
      {"/tokenize", Route::kForwarded, Route::kUnknown},
      {"/v1", Route::kUnknown, Route::kUnknown},
      {"*", Route::kUnknown, Route::kUnknown},
      {"http://x/v1/models", Route::kUnknown, Route::kUnknown},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(RouteOf(Port::kPublic, c.target), c.on_public) << c.target;
    EXPECT_EQ(RouteOf(Port::kAdmin, c.target), c.on_admin) << c.target;
  }
}

TEST(RoutesTest, WrongMethodIsRefusedByTheHead) {
  EXPECT_EQ(RefuseByHead(Route::kAdmitted, "GET", "/")->status, 405u);
  EXPECT_EQ(RefuseByHead(Route::kModels, "POST", "/")->status, 405u);
  EXPECT_EQ(RefuseByHead(Route::kUnknown, "GET", "/")->status, 404u);
  EXPECT_FALSE(RefuseByHead(Route::kAdmitted, "POST", "/").has_value());
  EXPECT_FALSE(RefuseByHead(Route::kForwarded, "DELETE", "/").has_value());
}

TEST(RoutesTest, ModelsAreListedAndFoundByEncodedNames) {
  const Routes routes(TwoModels(), {});
  EXPECT_THAT(routes.Models("/v1/models").body,
              HasSubstr("{\"id\":\"org/m\",\"object\":\"model\""));
  EXPECT_EQ(routes.Models("/v1/models/org/m").status, 200u);
  EXPECT_EQ(routes.Models("/v1/models/org%2Fm").status, 200u);
  EXPECT_EQ(routes.Models("/v1/models/org%2").status, 404u);
}

TEST(RoutesTest, AbsentModelIsTheOnlyOneOrAnError) {
  const Routes two(TwoModels(), {});
  EXPECT_EQ(absl::get<ApiError>(two.ModelFor("")).status, 400u);
  EXPECT_EQ(absl::get<ApiError>(two.ModelFor("gpt")).status, 404u);
  auto one = std::make_shared<config::Fleet>(*TwoModels());
  one->models.resize(1);
  const Routes single(one, {});
  EXPECT_EQ(absl::get<const config::FleetModel*>(single.ModelFor(""))->name,
            "org/m");
}

TEST(RoutesTest, EnginesTakeTurns) {
  const Routes routes(TwoModels(), {});
  const auto name = [&](const std::string& model, uint64_t turn,
                        const std::string& down) -> std::string {
    const config::FleetEngine* engine =
        routes.EngineInTurn(model, turn, [&](const std::string& e) {
          return down.find(e) == std::string::npos;
        });
    return engine == nullptr ? "none" : engine->name;
  };
  EXPECT_EQ(name("org/m", 0, ""), "a");
  EXPECT_EQ(name("org/m", 1, ""), "b");
  EXPECT_EQ(name("org/m", 2, ""), "a");
  EXPECT_EQ(name("org/m", 0, "a"), "b");
  EXPECT_EQ(name("org/m", 1, "a"), "b");
  EXPECT_EQ(name("org/m", 1, "a b"), "b") << "known to be down, or so thought";
  EXPECT_EQ(name("idle", 0, ""), "none");
}

TEST(KeySetTest, AdmitsItsKeysOnly) {
  const KeySet keys({"sk-1", "sk-22"});
  EXPECT_TRUE(keys.Admits("Bearer sk-1"));
  EXPECT_TRUE(keys.Admits("bearer  sk-22"));
  for (const char* wrong : {"", "sk-1", "Bearer", "Bearer ", "Bearer sk-",
                            "Bearer sk-11", "Basic sk-1"}) {
    EXPECT_FALSE(keys.Admits(wrong)) << wrong;
  }
  EXPECT_TRUE(KeySet().Admits(""));
}

TEST(KeySetTest, FileWithoutAKeyDoesNotOpenTheDoor) {
  char path[] = "/tmp/fineserve-keys-XXXXXX";
  close(mkstemp(path));
  EXPECT_EQ(ReadKeys(path).status().code(), absl::StatusCode::kInvalidArgument);
  std::ofstream(path) << "# staff\n\n  sk-1 \nsk-2\n";
  const absl::StatusOr<KeySet> keys = ReadKeys(path);
  unlink(path);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_TRUE(keys->Admits("Bearer sk-1"));
  EXPECT_FALSE(keys->Admits("Bearer # staff"));
  EXPECT_EQ(ReadKeys(path).status().code(), absl::StatusCode::kNotFound);
}

class OpenAdmissionTest : public testing::Test {
 protected:
  // The engine that the request is sent to; empty if refused.
  std::string Submit(uint64_t id, uint32_t prompt,
                     const std::string& avoid = "",
                     const std::string& model = "org/m") {
    AdmissionRequest request;
    request.id = id;
    request.model = model;
    request.prompt_tokens = prompt;
    request.max_tokens = 10;
    request.avoid_engine = avoid;
    std::string engine = "no verdict";
    admission_.Submit(request, [&](Verdict v) { engine = v.engine; });
    return engine;
  }

  ManualClock clock_;
  OpenAdmission admission_{TwoModels(), &clock_};
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
    admission_.Finished(id, 0, 0, Outcome::kDone);
    admission_.Finished(id, 0, 0, Outcome::kDone);  // once is enough
  }
  EXPECT_EQ(admission_.outstanding("a"), 0u);
  EXPECT_EQ(admission_.outstanding("b"), 0u);
}

TEST_F(OpenAdmissionTest, EngineThatFailedRestsUnlessAllDo) {
  ASSERT_EQ(Submit(1, 1), "a");
  admission_.Finished(1, 0, 0, Outcome::kEngineGone);
  EXPECT_EQ(Submit(2, 1), "b");
  EXPECT_EQ(Submit(3, 1), "b");
  admission_.Finished(2, 0, 0, Outcome::kEngineGone);
  EXPECT_EQ(Submit(4, 1), "a");  // both rest; a has less to do
  clock_.AdvanceNs(OpenAdmission::kRestNs);
  EXPECT_EQ(Submit(5, 1), "a");
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

RequestFacts Text(uint64_t bytes) {
  RequestFacts facts;
  facts.model = "m";
  facts.text_bytes = bytes;
  return facts;
}

TEST(TokenEstimatorTest, ComesToTheEnginesCount) {
  TokenEstimator estimator;
  EXPECT_EQ(estimator.Estimate(Text(4000)), 1000u);
  for (int i = 0; i < 300; ++i) estimator.Learn(Text(4000), 1600);
  EXPECT_NEAR(estimator.Estimate(Text(4000)), 1600, 16);
  RequestFacts other = Text(4000);
  other.model = "other";
  EXPECT_EQ(estimator.Estimate(other), 1000u);
}

TEST(TokenEstimatorTest, TokenIdsAreCountedNotEstimated) {
  TokenEstimator estimator;
  RequestFacts facts = Text(0);
  facts.prompt_tokens = 77;
  EXPECT_EQ(estimator.Estimate(facts), 77u);
  estimator.Learn(facts, 78);  // teaches nothing about text
  EXPECT_EQ(estimator.BytesPerToken("m"), TokenEstimator::kFirstBytesPerToken);
}

TEST(TokenEstimatorTest, NonsenseKeepsItWithinBounds) {
  TokenEstimator estimator;
  EXPECT_EQ(estimator.Estimate(Text(0)), 1u);
  for (int i = 0; i < 1000; ++i) estimator.Learn(Text(1'000'000), 1);
  EXPECT_LE(estimator.BytesPerToken("m"), 16.0);
  for (int i = 0; i < 1000; ++i) estimator.Learn(Text(1), 1'000'000);
  EXPECT_GE(estimator.BytesPerToken("m"), 1.0);
}

absl::StatusOr<AdmissionRequest> ReadFields(absl::string_view fields) {
  RequestParser request(4096, 10);
  request.Feed(absl::StrCat("GET / HTTP/1.1\r\n", fields, "\r\n"));
  AdmissionRequest asked;
  const absl::Status s = ReadServiceFields(request, &asked);
  if (!s.ok()) return s;
  return asked;
}

TEST(ServiceFieldsTest, AreReadByLlmdsNames) {
  const auto asked = ReadFields(
      "X-SLO-TTFT-ms: 250\r\nx-slo-tpot-ms: 12.5\r\n"
      "x-gateway-inference-fairness-id: team\r\nx-fineserve-priority: -3\r\n"
      "x-fineserve-degrade: 1\r\n");
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->slo_ttft_us, 250'000);
  EXPECT_EQ(asked->slo_tpot_us, 12'500);
  EXPECT_EQ(asked->tenant, "team");
  EXPECT_EQ(asked->priority, -3);
  EXPECT_TRUE(asked->degrade_ok);
}

TEST(ServiceFieldsTest, NonsenseIsRefused) {
  for (const char* bad :
       {"x-slo-ttft-ms: 0\r\n", "x-slo-ttft-ms: -1\r\n",
        "x-slo-ttft-ms: nan\r\n", "x-slo-ttft-ms: inf\r\n",
        "x-slo-tpot-ms: soon\r\n", "x-slo-tpot-ms: 1e9\r\n",
        "x-fineserve-priority: high\r\n", "x-fineserve-degrade: yes\r\n"}) {
    EXPECT_FALSE(ReadFields(bad).ok()) << bad;
  }
}

TEST(RequestIdsTest, TakesWhatIsUsableAndMakesTheRest) {
  RequestIds ids;
  EXPECT_EQ(ids.For("abc-1"), "abc-1");
  EXPECT_EQ(ids.For("a b").size(), 32u);
  EXPECT_EQ(ids.For(std::string(129, 'a')).size(), 32u);
  std::string last;
  for (int i = 0; i < 100; ++i) {
    const std::string made = ids.For("");
    EXPECT_EQ(made.size(), 32u);
    EXPECT_NE(made, last);
    last = made;
  }
}

}  // namespace
}  // namespace fineserve::proxy
