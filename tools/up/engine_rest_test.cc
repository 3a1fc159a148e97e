#include "tools/up/engine_rest.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tools/fsctl/terminal/fabricated_moment.h"

namespace fineserve::fsctl {
namespace {

class EngineRestTest : public ::testing::Test {
 protected:
  struct Proxy {
    bool silent = false;
    std::map<std::string, uint64_t> running = {};
  };

  std::map<std::string, Proxy> proxies_;
  std::vector<apply::Question> asked_;
  EngineRest rest_{"/fleet.toml", [this](const apply::Question& question) {
                     asked_.push_back(question);
                     std::vector<absl::optional<apply::Answer>> answers;
                     for (const auto& [door, proxy] : proxies_) {
                       absl::optional<apply::Answer>& answer =
                           answers.emplace_back();
                       if (proxy.silent) continue;
                       answer.emplace();
                       for (const auto& [engine, running] : proxy.running) {
                         answer->engines.emplace_back().name = engine;
                         answer->engines.back().running = running;
                       }
                     }
                     return answers;
                   }};
};

TEST_F(EngineRestTest, WithoutAProxyAnEngineIsIdle) {
  rest_.Turn(kTestSecond, {"a"});
  EXPECT_TRUE(rest_.IsIdle("a", kTestSecond));
  EXPECT_FALSE(rest_.IsIdle("b", kTestSecond)) << "it does not rest";
}

TEST_F(EngineRestTest, EngineIsIdleWhenAllProxiesSayThatNothingRunsThere) {
  proxies_ = {{"proxy-1", {false, {{"a", 2}}}},
              {"proxy-2", {false, {{"b", 1}}}}};
  rest_.Turn(10 * kTestSecond, {"a"});
  EXPECT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].engines, std::vector<std::string>{"a"});
  rest_.Turn(20 * kTestSecond, {"a"});
  EXPECT_FALSE(rest_.IsIdle("a", 20 * kTestSecond));
  proxies_["proxy-1"].running = {};
  rest_.Turn(21 * kTestSecond, {"a"});
  rest_.Turn(22 * kTestSecond, {"a"});
  EXPECT_TRUE(rest_.IsIdle("a", 22 * kTestSecond));
}

// The proxies let requests through again if they hear nothing for 3 s.
TEST_F(EngineRestTest, RestThatHasLapsedBeginsOnceMore) {
  proxies_ = {{"proxy-1", {}}};
  rest_.Turn(10 * kTestSecond, {"a"});
  rest_.Turn(12 * kTestSecond, {"a"});
  EXPECT_TRUE(rest_.IsIdle("a", 14 * kTestSecond));
  EXPECT_FALSE(rest_.IsIdle("a", 15 * kTestSecond));
  rest_.Turn(15 * kTestSecond, {"a"});
  EXPECT_FALSE(rest_.IsIdle("a", 16 * kTestSecond)) << "a verdict may be late";
  EXPECT_TRUE(rest_.IsIdle("a", 17 * kTestSecond));
}

TEST_F(EngineRestTest, ProxyThatComesLaterHearsOfItFirst) {
  proxies_ = {{"proxy-1", {}}};
  rest_.Turn(10 * kTestSecond, {"a"});
  proxies_["proxy-2"] = {};
  rest_.Turn(12 * kTestSecond, {"a"});
  EXPECT_FALSE(rest_.IsIdle("a", 12 * kTestSecond));
  EXPECT_TRUE(rest_.IsIdle("a", 14 * kTestSecond));
}

// A request may have been admitted just before.
TEST_F(EngineRestTest, EngineIsNotIdleAtOnce) {
  proxies_ = {{"proxy-1", {}}};
  rest_.Turn(10 * kTestSecond, {"a"});
  EXPECT_FALSE(rest_.IsIdle("a", 10 * kTestSecond));
  rest_.Turn(12 * kTestSecond, {"a"});
  EXPECT_TRUE(rest_.IsIdle("a", 12 * kTestSecond));
}

TEST_F(EngineRestTest, ProxiesHearWhichEnginesAnOperatorStopped) {
  proxies_ = {{"proxy-1", {}}};
  rest_.Turn(10 * kTestSecond, {"a", "b"}, {"b"});
  EXPECT_EQ(asked_[0].engines, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(asked_[0].stopped, std::vector<std::string>{"b"});
  rest_.Turn(10 * kTestSecond + 1, {"a"});
  ASSERT_EQ(asked_.size(), 2u) << "b is no longer stopped";
  EXPECT_EQ(asked_[1].engines, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(asked_[1].stopped.empty());
}

TEST_F(EngineRestTest, SilentProxyMayRunSomething) {
  proxies_ = {{"proxy-1", {true}}};
  rest_.Turn(10 * kTestSecond, {"a"});
  rest_.Turn(12 * kTestSecond, {"a"});
  EXPECT_FALSE(rest_.IsIdle("a", 12 * kTestSecond));
}

TEST_F(EngineRestTest, ProxiesAreTurnedToTwiceASecondWhileAnEngineRests) {
  proxies_ = {{"proxy-1", {}}};
  for (uint64_t ms = 10'000; ms < 20'000; ms += 100) {
    rest_.Turn(ms * 1'000'000, {"a"});
  }
  EXPECT_EQ(asked_.size(), 20u);
  rest_.Turn(30 * kTestSecond, {});
  EXPECT_EQ(asked_.size(), 20u);
}

}  // namespace
}  // namespace fineserve::fsctl
