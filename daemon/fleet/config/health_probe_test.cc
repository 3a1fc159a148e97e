#include "daemon/fleet/config/health_probe.h"

#include <gtest/gtest.h>

namespace fineserve::config {
namespace {

TEST(HealthProbeTest, EngineServesIfItAnswersWith200) {
  EXPECT_EQ(SaysHealthy("HTTP/1.1 200 OK\r\n"), true);
  EXPECT_EQ(SaysHealthy("HTTP/1.1 503 Service Unavailable\r\n"), false);
  EXPECT_EQ(SaysHealthy("SSH-2.0-OpenSSH_9.2\r\n"), false);
}

TEST(HealthProbeTest, BeginningOfAnAnswerDoesNotTell) {
  EXPECT_EQ(SaysHealthy(""), absl::nullopt);
  EXPECT_EQ(SaysHealthy("HTTP/1.1 20"), absl::nullopt);
}

TEST(HealthProbeTest, RequestAsksTheEngineToClose) {
  EXPECT_EQ(HealthRequest("127.0.0.1", 9001),
            "GET /health HTTP/1.1\r\nHost: 127.0.0.1:9001\r\n"
            "Connection: close\r\n\r\n");
}

}  // namespace
}  // namespace fineserve::config
