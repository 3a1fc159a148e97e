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
      {"/frames", Route::kUnknown, Route::kFrames},
      {"/logs/a?x", Route::kUnknown, Route::kLog},
      {"/logs", Route::kUnknown, Route::kUnknown},
      {"/v1/models", Route::kModels, Route::kUnknown},
      {"/v1/models/a/b", Route::kModels, Route::kUnknown},
      {"/v1/chat/completions", Route::kAdmitted, Route::kUnknown},
      {"/v1/completions?a=b", Route::kAdmitted, Route::kUnknown},
      {"/v1/completions/x", Route::kUnknown, Route::kUnknown},
      {"/tokenize", Route::kForwarded, Route::kUnknown},
      {"/v1/responses", Route::kAdmitted, Route::kUnknown},
      {"/v1/responses/resp_1?a=b", Route::kResponse, Route::kUnknown},
      {"/v1/responses/resp_1/cancel", Route::kResponse, Route::kUnknown},
      {"/v1/responses/", Route::kUnknown, Route::kUnknown},
      {"/v1", Route::kUnknown, Route::kUnknown},
      {"*", Route::kUnknown, Route::kUnknown},
      {"http://x/v1/models", Route::kUnknown, Route::kUnknown},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(RouteOf(Port::kPublic, c.target), c.on_public) << c.target;
    EXPECT_EQ(RouteOf(Port::kAdmin, c.target), c.on_admin) << c.target;
  }
}

TEST(RoutesTest, OperatorsPathsEndWithTheLogs) {
  EXPECT_TRUE(IsAdmins(Route::kMetrics));
  EXPECT_TRUE(IsAdmins(Route::kLog));
  EXPECT_FALSE(IsAdmins(Route::kModels));
  EXPECT_EQ(EngineOfLog("/logs/org%2Fm?x"), "org/m");
}

TEST(RoutesTest, AnthropicsPathsAreKnown) {
  for (const char* target : {"/v1/messages", "/v1/messages?beta=true",
                             "/v1/messages/count_tokens?x"}) {
    EXPECT_TRUE(IsAnthropic(target)) << target;
  }
  for (const char* target :
       {"/v1/messagesX", "/v1/models", "/v1/completions", "/v1"}) {
    EXPECT_FALSE(IsAnthropic(target)) << target;
  }
}

// Every path of vLLM 0.32.0's OpenAI server: those that its sdist names in the
// decorators of vllm/entrypoints/**/*.py (router.get, post and websocket).
TEST(RoutesTest, GeneratingPathsAreAdmittedAndReadingOnesForwarded) {
  const char* const generate[] = {
      "/v1/completions",        "/v1/chat/completions",
      "/v1/responses",          "/v1/chat/completions/batch",
      "/v1/messages",           "/v1/audio/transcriptions",
      "/cohere/v2/chat",        "/v1/audio/translations",
      "/inference/v1/generate", "/generative_scoring",
      "/v1/systemone",          "/invocations",
  };
  // Prompts become vectors, tokens or text; no KV outlives a step.
  const char* const read[] = {
      "/tokenize",
      "/detokenize",
      "/tokenizer_info",
      "/pooling",
      "/classify",
      "/score",
      "/v1/score",
      "/rerank",
      "/v1/rerank",
      "/v2/rerank",
      "/v1/embeddings",
      "/v2/embed",
      "/v1/chat/completions/render",
      "/v1/completions/render",
      "/v1/messages/render",
      "/v1/responses/render",
      "/cohere/v2/chat/render",
      "/v1/chat/completions/derender",
      "/v1/completions/derender",
      "/v1/messages/count_tokens",
  };
  const char* const stored[] = {
      "/v1/responses/{response_id}",
      "/v1/responses/{response_id}/cancel",
  };
  // The operator's paths, and a WebSocket.
  const char* const other[] = {
      "/v1/load_lora_adapter",
      "/v1/unload_lora_adapter",
      "/v1/realtime",
      "/start_profile",
      "/stop_profile",
      "/server_info",
      "/reset_prefix_cache",
      "/reset_mm_cache",
      "/reset_encoder_cache",
      "/collective_rpc",
      "/sleep",
      "/release_kv_cache_memory",
      "/wake_up",
      "/is_sleeping",
      "/load",
      "/kv_event_sources",
      "/docs",
      "/ping",
      "/scale_elastic_ep",
      "/is_scaling_elastic_ep",
      "/fault_tolerance/apply",
      "/fault_tolerance/status",
      "/pause",
      "/resume",
      "/abort_requests",
      "/is_paused",
      "/init_weight_transfer_engine",
      "/shutdown_weight_transfer_engine",
      "/start_weight_update",
      "/start_draft_weight_update",
      "/update_weights",
      "/finish_weight_update",
      "/update_weight_version",
      "/weight_info",
      "/weight_checker",
      "/get_world_size",
  };
  for (const char* path : generate) {
    EXPECT_EQ(RouteOf(Port::kPublic, path), Route::kAdmitted) << path;
  }
  for (const char* path : read) {
    EXPECT_EQ(RouteOf(Port::kPublic, path), Route::kForwarded) << path;
  }
  for (const char* path : stored) {
    EXPECT_EQ(RouteOf(Port::kPublic, path), Route::kResponse) << path;
    EXPECT_EQ(ResponseIdOf(path), "{response_id}") << path;
  }
  for (const char* path : other) {
    EXPECT_EQ(RouteOf(Port::kPublic, path), Route::kUnknown) << path;
  }
  // This is a path of OpenAI's, which engines other than vLLM have.
  EXPECT_EQ(RouteOf(Port::kPublic, "/v1/audio/speech"), Route::kAdmitted);
}

TEST(RoutesTest, PathsThatAreNotKnownAreForwardedIfTheFleetSaysSo) {
  const config::OtherPaths all = {true, {}};
  EXPECT_EQ(RouteOf(Port::kPublic, "/v1/custom?x", all), Route::kForwarded);
  EXPECT_EQ(RouteOf(Port::kPublic, "/v1/custom"), Route::kUnknown);
  EXPECT_EQ(RouteOf(Port::kPublic, "/v1/load_lora_adapter", all),
            Route::kUnknown);
  EXPECT_EQ(RouteOf(Port::kPublic, "/v1/completions", all), Route::kAdmitted);
  EXPECT_EQ(RouteOf(Port::kPublic, "/metrics", all), Route::kUnknown)
      << "the proxy's own";
  EXPECT_EQ(RouteOf(Port::kAdmin, "/sleep", {true, {"/sleep"}}),
            Route::kUnknown);
  EXPECT_EQ(RouteOf(Port::kPublic, "*", all), Route::kUnknown);
}

TEST(RoutesTest, RecentRequestsAreOnTheAdminPortOnly) {
  for (const char* path : {"/requests", "/requests?most=1", "/requests/follow",
                           "/requests/a%2F"}) {
    EXPECT_EQ(RouteOf(Port::kAdmin, path), Route::kRequests) << path;
    EXPECT_EQ(RouteOf(Port::kPublic, path), Route::kUnknown) << path;
  }
  EXPECT_EQ(RouteOf(Port::kAdmin, "/requestsx"), Route::kUnknown);
}

TEST(RoutesTest, PathThatAnEngineMightResolveIsRefused) {
  for (const char* target :
       {"/v1/responses/../load_lora_adapter", "/v1/responses/%2e%2e/sleep?a"}) {
    const Route route = RouteOf(Port::kPublic, target);
    const auto refusal = RefuseByHead(route, "GET", target);
    ASSERT_TRUE(refusal.has_value()) << target;
    EXPECT_EQ(refusal->code, "bad_path") << target;
  }
}

TEST(RoutesTest, EnginesCountThePromptsOfCompletionsOnly) {
  EXPECT_TRUE(IsTokenizable("/v1/completions?a=b"));
  EXPECT_TRUE(IsTokenizable("/v1/chat/completions"));
  EXPECT_FALSE(IsTokenizable("/v1/responses"));
  EXPECT_FALSE(IsTokenizable("/v1/chat/completions/batch"));
}

TEST(RoutesTest, WrongMethodIsRefusedByTheHead) {
  EXPECT_EQ(RefuseByHead(Route::kAdmitted, "GET", "/a")->status, 405u);
  EXPECT_EQ(RefuseByHead(Route::kModels, "POST", "/")->status, 405u);
  EXPECT_EQ(RefuseByHead(Route::kUnknown, "GET", "/")->status, 404u);
  EXPECT_FALSE(RefuseByHead(Route::kAdmitted, "POST", "/a").has_value());
  EXPECT_FALSE(RefuseByHead(Route::kForwarded, "DELETE", "/a").has_value());
}

TEST(RoutesTest, ModelsAreListedAndFoundByEncodedNames) {
  const Routes routes(TwoModels(), {});
  EXPECT_THAT(routes.Models("/v1/models", Client()).body,
              HasSubstr("{\"id\":\"org/m\",\"object\":\"model\""));
  EXPECT_EQ(routes.Models("/v1/models/org/m", Client()).status, 200u);
  EXPECT_EQ(routes.Models("/v1/models/org%2Fm", Client()).status, 200u);
  EXPECT_EQ(routes.Models("/v1/models/org%2", Client()).status, 404u);
}

TEST(RoutesTest, AdapterIsListedWithItsModelAndMeansIt) {
  auto fleet = std::make_shared<config::Fleet>(*TwoModels());
  fleet->models[0].adapters = {"legal"};
  const Routes routes(fleet, {});
  EXPECT_THAT(routes.Models("/v1/models", Client()).body,
              HasSubstr("{\"id\":\"legal\",\"object\":\"model\",\"created\":0,"
                        "\"owned_by\":\"fineserve\",\"parent\":\"org/m\"}"));
  EXPECT_THAT(routes.Models("/v1/models/legal", Client()).body,
              HasSubstr("\"parent\":\"org/m\""));
  EXPECT_EQ(
      absl::get<const config::FleetModel*>(routes.ModelFor("legal"))->name,
      "org/m");
}

TEST(RoutesTest, ClientSeesTheModelsThatItMayAskFor) {
  const Routes routes(TwoModels(), {});
  Client client;
  client.models = {"other"};
  EXPECT_THAT(routes.Models("/v1/models", client).body,
              ::testing::Not(HasSubstr("org/m")));
  EXPECT_EQ(routes.Models("/v1/models/org/m", client).status, 404u);
}

TEST(RoutesTest, ModelIsListedAndFoundByItsAliases) {
  auto fleet = std::make_shared<config::Fleet>(*TwoModels());
  fleet->models[0].aliases = {"gpt", "latest"};
  const Routes routes(fleet, {});
  EXPECT_THAT(routes.Models("/v1/models", Client()).body,
              HasSubstr("{\"id\":\"latest\""));
  EXPECT_THAT(routes.Models("/v1/models/gpt", Client()).body,
              HasSubstr("{\"id\":\"gpt\""));
  EXPECT_EQ(
      absl::get<const config::FleetModel*>(routes.ModelFor("latest"))->name,
      "org/m");
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

TEST(RoutesTest, LikeliestEngineIsAskedFirstAndThoseThatDoNotServeLast) {
  auto fleet = std::make_shared<config::Fleet>(*TwoModels());
  for (const char* name : {"c", "d"}) {
    fleet->engines.push_back(fleet->engines[0]);
    fleet->engines.back().name = name;
  }
  const Routes routes(fleet, {});
  const auto order = [&](const std::string& likeliest) {
    std::string names;
    for (const config::FleetEngine* engine :
         routes.EnginesToAsk(likeliest, [](const std::string& name) {
           return name == "b" || name == "d";
         })) {
      names += engine->name;
    }
    return names;
  };
  EXPECT_EQ(order(""), "bdac");
  EXPECT_EQ(order("c"), "cbda");
  EXPECT_EQ(order("d"), "dbac");
  EXPECT_EQ(order("gone"), "bdac");
}

TEST(RoutesTest, EnginesTakeTurns) {
  const Routes routes(TwoModels(), {});
  const auto name = [&](const std::string& model, uint64_t turn,
                        const std::string& down,
                        const std::string& ends = "") -> std::string {
    const config::FleetEngine* engine =
        routes.EngineInTurn(model, turn, [&](const std::string& e) {
          if (down.find(e) != std::string::npos) return 0;
          return ends.find(e) == std::string::npos ? 2 : 1;
        });
    return engine == nullptr ? "none" : engine->name;
  };
  EXPECT_EQ(name("org/m", 0, ""), "a");
  EXPECT_EQ(name("org/m", 1, ""), "b");
  EXPECT_EQ(name("org/m", 2, ""), "a");
  EXPECT_EQ(name("org/m", 0, "a"), "b");
  EXPECT_EQ(name("org/m", 1, "a"), "b");
  EXPECT_EQ(name("org/m", 1, "a b"), "b") << "known to be down, or so thought";
  EXPECT_EQ(name("org/m", 1, "", "b"), "a");
  EXPECT_EQ(name("org/m", 1, "a", "b"), "b");
  EXPECT_EQ(name("idle", 0, ""), "none");
}

}  // namespace
}  // namespace fineserve::proxy
