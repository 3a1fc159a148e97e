#include "daemon/proxy/request/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

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

}  // namespace
}  // namespace fineserve::proxy
