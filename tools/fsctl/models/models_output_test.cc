#include "tools/fsctl/models/models_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

wire::ModelsT OneModel() {
  auto engine = std::make_unique<wire::EngineFiguresT>();
  engine->name = "llama-a";
  engine->serves = true;
  engine->running = 3;
  engine->most_running = 64;
  engine->kappa = 1.256;
  engine->kv_tokens = 4096;
  engine->held_tokens = 1000;
  auto model = std::make_unique<wire::ModelFiguresT>();
  model->name = "llama";
  model->slo_ttft_ms = 800;
  model->queued = 2;
  model->admitted = 10;
  model->rejected_deadline = 1;
  model->rejected_too_long = 1;
  model->on_time = 6;
  model->late = 2;
  model->engines.push_back(std::move(engine));
  wire::ModelsT models;
  models.policy = "fineserve";
  models.models.push_back(std::move(model));
  return models;
}

TEST(AdmissionOutputTest, RejectedRequestsCountAsMissed) {
  const std::string text = ModelsText(OneModel(), false);
  EXPECT_THAT(text, HasSubstr("60.00 %")) << "6 of 10";
  EXPECT_THAT(text, HasSubstr("policy  fineserve"));
}

TEST(AdmissionOutputTest, EngineShowsItsStateAndWhatItHolds) {
  wire::ModelsT models = OneModel();
  EXPECT_THAT(ModelsText(models, false), HasSubstr("serving"));
  EXPECT_THAT(ModelsText(models, false), HasSubstr("1.26"));
  EXPECT_THAT(ModelsText(models, false), HasSubstr("1000 of 4096"));
  models.models[0]->engines[0]->drains = true;
  EXPECT_THAT(ModelsText(models, false), HasSubstr("draining"));
  models.models[0]->engines[0]->serves = false;
  EXPECT_THAT(ModelsText(models, false), HasSubstr("down"));
  EXPECT_THAT(ModelsJson(models), HasSubstr("\"serves\": false"));
  models.models[0]->engines[0]->stopped = true;
  EXPECT_THAT(ModelsText(models, false), HasSubstr("stopped"));
  models.models[0]->engines[0]->heard = false;
  EXPECT_THAT(ModelsText(models, false), HasSubstr("unknown"));
  EXPECT_THAT(ModelsText(models, false),
              HasSubstr("warning: no fineserve-proxy is connected"));
  EXPECT_THAT(ModelsJson(models), HasSubstr("\"serves\": null"));
  models.models[0]->engines[0]->kv_tokens = uint64_t{1} << 40;
  EXPECT_THAT(ModelsText(models, false), HasSubstr("1000 of any"));
}

TEST(AdmissionOutputTest, WarningsForOperatorsAreBelow) {
  wire::ModelsT models = OneModel();
  EXPECT_THAT(ModelsText(models, false), Not(HasSubstr("warning")));
  models.unscheduled = 7;
  models.models[0]->engines[0]->troubles = {"it serves another model"};
  const std::string text = ModelsText(models, false);
  EXPECT_THAT(text, HasSubstr("warning: 7 requests were admitted unscheduled"));
  EXPECT_THAT(text,
              HasSubstr("warning: engine llama-a: it serves another model"));
  const auto json = nlohmann::json::parse(ModelsJson(models));
  EXPECT_EQ(json["unscheduled"], 7);
  EXPECT_EQ(json["models"][0]["engines"][0]["troubles"][0],
            "it serves another model");
}

TEST(AdmissionOutputTest, BeforeTheFirstAnswerThereIsNoAttainment) {
  wire::ModelsT models = OneModel();
  *models.models[0] = wire::ModelFiguresT();
  EXPECT_THAT(ModelsText(models, false), Not(HasSubstr("%")));
}

TEST(AdmissionOutputTest, JsonHasEveryFigureOfAnEngine) {
  const auto json = nlohmann::json::parse(ModelsJson(OneModel()));
  EXPECT_EQ(json["policy"], "fineserve");
  const auto& model = json["models"][0];
  EXPECT_EQ(model["rejected"]["deadline"], 1);
  EXPECT_EQ(model["on_time"], 6);
  EXPECT_EQ(model["engines"][0]["held_tokens"], 1000);
  EXPECT_EQ(model["engines"][0]["kappa"], 1.256);
}

TEST(AdmissionOutputTest, RequestsThatAreNotShownAreCounted) {
  wire::RequestsT requests;
  auto waits = std::make_unique<wire::RequestFiguresT>();
  waits->id = "mine";
  waits->model = "llama";
  waits->slack_ms = -40;
  requests.requests.push_back(std::move(waits));
  auto runs = std::make_unique<wire::RequestFiguresT>();
  runs->engine = "llama-a";
  runs->slack_ms = INT64_MAX;
  requests.requests.push_back(std::move(runs));
  requests.total = 5;
  const std::string text = RequestsText(requests, false);
  EXPECT_THAT(text, HasSubstr("waiting"));
  EXPECT_THAT(text, HasSubstr("-40  mine\n"));
  EXPECT_THAT(text,
              HasSubstr("3 more; list them with: fsctl requests --most 5"));
  const auto json = nlohmann::json::parse(RequestsJson(requests));
  EXPECT_EQ(json["requests"][0]["id"], "mine");
  EXPECT_TRUE(json["requests"][0]["engine"].is_null());
  EXPECT_TRUE(json["requests"][1]["slack_ms"].is_null());
}

wire::ModelsT Models(const std::string& model, const std::string& engine,
                     uint64_t admitted) {
  wire::ModelsT models;
  models.models.push_back(std::make_unique<wire::ModelFiguresT>());
  models.models[0]->name = model;
  models.models[0]->admitted = admitted;
  models.models[0]->engines.push_back(std::make_unique<wire::EngineFiguresT>());
  models.models[0]->engines[0]->name = engine;
  models.refused_connections = 1;
  return models;
}

template <typename T>
std::vector<T> List(T a, T b, T c) {
  std::vector<T> list;
  list.push_back(std::move(a));
  list.push_back(std::move(b));
  list.push_back(std::move(c));
  return list;
}

TEST(MergedAnswersTest, CountsOfAModelAddUpAndItsEnginesStandTogether) {
  const wire::ModelsT sum =
      Merged(List(Models("chat", "chat-0", 3), Models("chat", "chat-1", 4),
                  Models("code", "code-0", 5)));
  ASSERT_EQ(sum.models.size(), 2u);
  EXPECT_EQ(sum.models[0]->admitted, 7u);
  ASSERT_EQ(sum.models[0]->engines.size(), 2u);
  EXPECT_EQ(sum.models[0]->engines[1]->name, "chat-1");
  EXPECT_EQ(sum.models[1]->name, "code");
  EXPECT_EQ(sum.refused_connections, 3u);
}

TEST(MergedAnswersTest, AnEngineThatTwoDaemonsNameIsShownOnce) {
  const wire::ModelsT sum =
      Merged(List(Models("chat", "chat-0", 1), Models("chat", "chat-0", 1),
                  Models("chat", "chat-1", 1)));
  EXPECT_EQ(sum.models[0]->engines.size(), 2u);
}

wire::RequestsT Requests(int64_t slack_ms) {
  wire::RequestsT requests;
  requests.total = 10;
  requests.requests.push_back(std::make_unique<wire::RequestFiguresT>());
  requests.requests[0]->slack_ms = slack_ms;
  return requests;
}

TEST(MergedAnswersTest, TheMostUrgentRequestComesFirst) {
  const wire::RequestsT sum =
      Merged(List(Requests(5), Requests(-3), Requests(1)));
  EXPECT_EQ(sum.total, 30u);
  ASSERT_EQ(sum.requests.size(), 3u);
  EXPECT_EQ(sum.requests[0]->slack_ms, -3);
  EXPECT_EQ(sum.requests[2]->slack_ms, 5);
}

}  // namespace

}  // namespace fineserve::fsctl
