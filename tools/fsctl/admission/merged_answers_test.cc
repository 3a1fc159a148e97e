#include "tools/fsctl/admission/merged_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace fineserve::fsctl {
namespace {

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
