#include "daemon/proxy/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::proxy {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PageTest, TheWholePageIsInThisProgram) {
  const std::string page(PageText());
  EXPECT_THAT(page, HasSubstr("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("new EventSource('frames')"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(page, Not(HasSubstr("<style></style>")));
  EXPECT_THAT(page, Not(HasSubstr("<script></script>")));
  EXPECT_LE(page.size(), 100'000u);
}

TEST(PageTest, ItNamesNoOtherServer) {
  const std::string page(PageText());
  EXPECT_THAT(page, Not(HasSubstr("://")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
}

TEST(PageTest, ItMayRunNothingButItself) {
  const LocalAnswer answer = PageAnswer();
  EXPECT_THAT(answer.fields, HasSubstr("default-src 'none'"));
  EXPECT_THAT(answer.fields, HasSubstr("script-src 'sha256-"));
  EXPECT_THAT(answer.fields, Not(HasSubstr("unsafe")));
}

}  // namespace
}  // namespace fineserve::proxy
