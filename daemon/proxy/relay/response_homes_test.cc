#include "daemon/proxy/relay/response_homes.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
namespace {

TEST(ResponseHomesTest, NewestFindingCounts) {
  ResponseHomes homes;
  EXPECT_EQ(homes.EngineOf("r"), "");
  homes.Found("r", "a");
  homes.Found("s", "a");
  homes.Found("r", "b");
  EXPECT_EQ(homes.EngineOf("r"), "b");
  EXPECT_EQ(homes.EngineOf("s"), "a");
}

TEST(ResponseHomesTest, OldestIsForgottenAndTheRestAreHeld) {
  ResponseHomes homes;
  for (size_t i = 0; i < ResponseHomes::kMost; ++i) {
    homes.Found(absl::StrCat("r", i), "a");
    homes.Found("r0", "a");
  }
  EXPECT_EQ(homes.EngineOf("r0"), "a");
  homes.Found("one more", "a");
  EXPECT_EQ(homes.EngineOf("r0"), "");
  EXPECT_EQ(homes.EngineOf("r1"), "a");
  homes.Found(std::string(ResponseHomes::kMostIdBytes + 1, 'x'), "a");
  EXPECT_EQ(homes.size(), ResponseHomes::kMost);
}

}  // namespace
}  // namespace fineserve::proxy
