#include "daemon/proxy/admission/served_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::proxy {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ServedModelsTest, ModelThatIsListedIsNoTrouble) {
  EXPECT_EQ(TroubleOfModels(
                R"({"object":"list","data":[{"id":"lora"},{"id":"m"}]})", "m"),
            "");
}

TEST(ServedModelsTest, ModelThatIsNotListedIs) {
  const std::string trouble =
      TroubleOfModels(R"({"data":[{"id":"other\u001b[2J"}]})", "m");
  EXPECT_THAT(trouble, HasSubstr("it serves \"other\\x1b[2J\", not \"m\""));
  EXPECT_THAT(trouble, Not(HasSubstr("\x1b")));
  EXPECT_THAT(TroubleOfModels(R"({"data":[{"id":"a"},{"id":"b"},{"id":"c"},)"
                              R"({"id":"d"},{"id":"e"}]})",
                              "m"),
              HasSubstr("\"d\" and others"));
}

TEST(ServedModelsTest, WhatIsNoListSaysNothing) {
  for (const char* body :
       {"", "{", "[]", "null", R"({"data":[]})", R"({"data":{"id":"x"}})",
        R"({"data":[{"id":7},1,null]})", R"({"error":"no key"})"}) {
    EXPECT_EQ(TroubleOfModels(body, "m"), "") << body;
  }
}

}  // namespace
}  // namespace fineserve::proxy
