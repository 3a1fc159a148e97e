#include "daemon/proxy/request/cors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
namespace {

TEST(AdminHostTest, NamesThatAStrangerCanOwnAreRefused) {
  config::ProxySettings settings;
  settings.admin_host = "admin.example.org";
  settings.admin_names = {"gpu1.example.org"};
  for (const char* known :
       {"", "127.0.0.1:8001", "10.0.0.7", "[::1]:8001", "localhost",
        "localhost:8001", "a.localhost", "gpu1:8001", "GPU1.example.org:8001",
        "admin.example.org"}) {
    EXPECT_TRUE(MayNameAdmin(known, settings)) << known;
  }
  for (const char* strange :
       {"evil.example", "evil.example:8001", "127.0.0.1.evil.example",
        "gpu1.example.org.evil.example", "evil.gpu1.example.org", "."}) {
    EXPECT_FALSE(MayNameAdmin(strange, settings)) << strange;
  }
}

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kOrigins = {"http://page:1", "http://page:2"};

std::string FieldsOf(absl::string_view method, absl::string_view fields,
                     const std::vector<std::string>& origins) {
  RequestParser request(4096, 4096);
  request.Feed(absl::StrCat(method, " /v1/models HTTP/1.1\r\nHost: x\r\n",
                            fields, "\r\n"));
  EXPECT_TRUE(request.header_done());
  return CorsFields(request, origins);
}

TEST(CorsTest, PageOfAnOriginThatMayAskReadsTheAnswer) {
  const std::string fields =
      FieldsOf("GET", "Origin: http://page:2\r\n", kOrigins);
  EXPECT_THAT(fields, HasSubstr("access-control-allow-origin: http://page:2"
                                "\r\nvary: origin\r\n"));
  EXPECT_THAT(fields, HasSubstr("expose-headers: x-request-id, retry-after,"));
  EXPECT_THAT(FieldsOf("GET", "Origin: http://any\r\n", {"*"}),
              HasSubstr("access-control-allow-origin: *\r\n"));
}

TEST(CorsTest, OtherOriginsGetNoFields) {
  EXPECT_EQ(FieldsOf("GET", "", kOrigins), "");
  EXPECT_EQ(FieldsOf("GET", "Origin: http://page:3\r\n", kOrigins), "");
  EXPECT_EQ(FieldsOf("GET", "Origin: null\r\n", kOrigins), "");
  EXPECT_EQ(FieldsOf("GET", "Origin: http://page:1\r\n", {}), "");
}

TEST(CorsTest, PreflightLearnsWhatItMaySend) {
  const std::string asks =
      "Origin: http://page:1\r\nAccess-Control-Request-Method: POST\r\n";
  const std::string fields = FieldsOf(
      "OPTIONS", asks + "Access-Control-Request-Headers: authorization,x-a\r\n",
      kOrigins);
  EXPECT_THAT(fields, HasSubstr("access-control-allow-methods: POST\r\n"));
  EXPECT_THAT(fields,
              HasSubstr("access-control-allow-headers: authorization,x-a\r\n"));
  EXPECT_THAT(FieldsOf("OPTIONS", asks, kOrigins),
              Not(HasSubstr("allow-headers")));
}

}  // namespace

}  // namespace fineserve::proxy
