#include "daemon/proxy/request/engine_paths.h"

#include <gtest/gtest.h>

namespace fineserve::proxy {
namespace {

TEST(EnginePathsTest, PathThatAnotherServerMightResolveIsNotPlain) {
  for (const char* path :
       {"/v1/completions", "/v1/responses/resp_1", "/a.b/..c", "/a%20b",
        "/v1/%63ompletions", "/%252e%252e/a"}) {
    EXPECT_TRUE(IsPlainPath(path)) << path;
  }
  for (const char* path :
       {"", "/", "*", "/v1/responses/../load_lora_adapter", "/v1/./models",
        "/v1/..", "/v1/%2e%2E/sleep", "/v1/.%2e/sleep", "//sleep", "/v1//x",
        "/sleep/", "/v1/responses/..%2fsleep", "/v1\\..\\sleep", "/v1/%5c",
        "/v1/a%00", "/v1/a%0d%0ab"}) {
    EXPECT_FALSE(IsPlainPath(path)) << path;
  }
}

TEST(EnginePathsTest, OnlyListedOperatorsPathsArePassedOn) {
  const config::OtherPaths none, all = {true, {}};
  EXPECT_FALSE(IsPassedOn("/v1/custom", none));
  EXPECT_TRUE(IsPassedOn("/v1/custom", all));
  for (const char* path : {"/v1/load_lora_adapter", "/sleep", "/sleep/1",
                           "/%73leep", "/fault_tolerance/apply"}) {
    EXPECT_FALSE(IsPassedOn(path, all)) << path;
    EXPECT_TRUE(IsPassedOn(path, {true, {path}})) << path;
  }
  EXPECT_TRUE(IsPassedOn("/sleepy", all));
}

TEST(EnginePathsTest, ListedPathIsThatOneOrAllBehindIt) {
  const config::OtherPaths listed = {false, {"/v1/custom", "/v1/tools/*"}};
  EXPECT_TRUE(IsPassedOn("/v1/custom", listed));
  EXPECT_FALSE(IsPassedOn("/v1/custom/x", listed));
  EXPECT_FALSE(IsPassedOn("/v1/customs", listed));
  EXPECT_TRUE(IsPassedOn("/v1/tools/a/b", listed));
  EXPECT_FALSE(IsPassedOn("/v1/tools", listed));
  EXPECT_FALSE(IsPassedOn("/v1/toolsmith", listed));
}

}  // namespace
}  // namespace fineserve::proxy
