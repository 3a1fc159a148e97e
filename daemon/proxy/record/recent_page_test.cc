#include "daemon/proxy/record/recent_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace fineserve::proxy {
namespace {

using nlohmann::json;
using testing::ElementsAre;

class RecentPageTest : public testing::Test {
 protected:
  RecentPageTest() { recorder_.Keep(3); }

  std::shared_ptr<Life> Begin(const std::string& id, const std::string& model) {
    auto life = recorder_.Begin();
    life->id = id;
    life->model = model;
    life->arrived_ns = ++now_ns_;
    return life;
  }
  void Serve(const std::string& id, const std::string& model) {
    recorder_.End(Begin(id, model));
  }
  LocalAnswer Get(const std::string& target) {
    return RequestsPage(recorder_, target, now_ns_);
  }
  std::vector<std::string> Ids(const std::string& target) {
    std::vector<std::string> ids;
    const json body = json::parse(Get(target).body);
    for (const json& request : body.at("requests")) {
      ids.push_back(request.at("id"));
    }
    return ids;
  }

  Recorder recorder_;
  uint64_t now_ns_ = 0;
};

TEST_F(RecentPageTest, ListsWhatIsUnderWayAndThenTheNewest) {
  const auto x = Begin("x", "chat"), y = Begin("y", "code");
  for (const char* id : {"a", "b", "c", "d"}) Serve(id, "chat");
  EXPECT_THAT(Ids("/requests"), ElementsAre("y", "x", "d", "c", "b"));
  EXPECT_THAT(Ids("/requests?most=3"), ElementsAre("y", "x", "d"));
  EXPECT_THAT(Ids("/requests?model=code"), ElementsAre("y"));
  const json body = json::parse(Get("/requests").body);
  EXPECT_EQ(body.at("under_way"), 2);
  EXPECT_EQ(body.at("ended"), 4);
}

TEST_F(RecentPageTest, OneRequestHasItsSteps) {
  Serve("a/b c", "chat");
  const LocalAnswer answer = Get("/requests/a%2Fb%20c");
  ASSERT_EQ(answer.status, 200u);
  const json life = json::parse(answer.body);
  EXPECT_EQ(life.at("id"), "a/b c");
  EXPECT_FALSE(life.at("steps").empty());
}

TEST_F(RecentPageTest, UnknownIdIsNotFound) {
  EXPECT_EQ(Get("/requests/other").status, 404u);
  Recorder nothing;
  EXPECT_EQ(RequestsPage(nothing, "/requests", 0).status, 404u);
}

TEST_F(RecentPageTest, WrongQueryIsRefused) {
  EXPECT_EQ(Get("/requests?most=x").status, 400u);
  EXPECT_EQ(Get("/requests?other=1").status, 400u);
}

TEST_F(RecentPageTest, OnlyFollowIsAStream) {
  EXPECT_TRUE(IsFollowed("/requests/follow?model=m"));
  EXPECT_FALSE(IsFollowed("/requests"));
  EXPECT_FALSE(IsFollowed("/requests/followed"));
}

}  // namespace
}  // namespace fineserve::proxy
