#include "daemon/proxy/request/request_id.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::proxy {
namespace {

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
