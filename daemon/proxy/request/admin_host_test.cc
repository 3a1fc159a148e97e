#include "daemon/proxy/request/admin_host.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace fineserve::proxy
