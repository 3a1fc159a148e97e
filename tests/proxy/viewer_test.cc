// Viewers of the page: how many there may be, what they are sent, and what
// happens to viewers that do not read.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "daemon/proxy/page/feed.h"
#include "tests/proxy/admission_site.h"

namespace fineserve::proxy_tests {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

proxy::Limits ShortViewerPatience() {
  proxy::Limits limits;
  limits.viewer_stall_s = 1;
  return limits;
}

class ViewerTest : public AdmissionSite {
 protected:
  ViewerTest() : AdmissionSite(false, ShortViewerPatience()) {}

  uint16_t AdminPort() {
    const std::string at = proxy_->admin_address();
    return static_cast<uint16_t>(atoi(at.c_str() + at.rfind(':') + 1));
  }
  Peer Admin() { return Peer::To(AdminPort()); }
  Peer::Message Get(const std::string& path, const std::string& verb = "GET") {
    Peer peer = Admin();
    peer.Send(verb + " " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    return peer.ReceiveMessage();
  }
  // Returns a viewer whose first frame has come.
  Peer Look() {
    Peer viewer = Admin();
    viewer.Send("GET /frames HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(viewer.ReceiveUntil("\r\n\r\n"),
                HasSubstr("content-type: text/event-stream"));
    viewer.ReceiveUntil("}\n\n");
    return viewer;
  }
};

TEST_F(ViewerTest, ThePageIsOnTheAdminPortAlone) {
  const Peer::Message page = Get("/");
  EXPECT_EQ(page.status(), 200);
  EXPECT_EQ(page.Field("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(page.Field("content-security-policy"),
              StartsWith("default-src 'none'; "));
  EXPECT_THAT(page.body, StartsWith("<!doctype html>"));
  for (const char* path : {"/", "/frames"}) {
    Peer client = Peer::To(port_);
    client.Send(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(client.ReceiveMessage().status(), 404) << path;
    EXPECT_EQ(Get(path, "POST").status(), 405) << path;
    EXPECT_EQ(Get(path, "OPTIONS").status(), 204) << path;
  }
}

TEST_F(ViewerTest, FramesCarryWhatHappened) {
  Peer viewer = Look();
  Peer client = Ask("wait");
  EXPECT_THAT(viewer.ReceiveUntil("}\n\n"),
              HasSubstr("\"name\":\"m\",\"slo_ttft_ms\":0,\"waiting\":1,"
                        "\"running\":0"));
  Peer other = Ask("release", "x-request-id: seen-1\r\n");
  for (int n = 0; n < 2; ++n) {
    Peer engine = a_.Accept();
    engine.Answer(Plain("{}"));
  }
  client.ReceiveMessage();
  other.ReceiveMessage();
  std::string frame;
  ASSERT_TRUE(process::Eventually([&] {
    frame = viewer.ReceiveUntil("\n\n");
    return frame.find("seen-1") != std::string::npos;
  }));
  EXPECT_THAT(frame, HasSubstr("\"waiting\":0,\"running\":0"));
  EXPECT_THAT(frame, HasSubstr("\"engine\":\"a\",\"status\":200,"));
}

TEST_F(ViewerTest, ThoseBeyondTheLimitAreRefusedUntilOneLeaves) {
  std::vector<Peer> viewers;
  for (size_t n = 0; n < proxy::Feed::kMostViewers; ++n) {
    viewers.push_back(Look());
  }
  Peer late = Admin();
  late.Send("GET /frames HTTP/1.1\r\nHost: x\r\n\r\n");
  const Peer::Message refusal = late.ReceiveMessage();
  EXPECT_EQ(refusal.status(), 503);
  EXPECT_EQ(refusal.Field("x-fineserve-reason"), "too_many_viewers");
  EXPECT_EQ(refusal.Field("retry-after"), "5");
  viewers.pop_back();
  EXPECT_TRUE(process::Eventually([&] {
    Peer next = Admin();
    next.Send("GET /frames HTTP/1.1\r\nHost: x\r\n\r\n");
    return next.ReceiveUntil("\r\n").find(" 200 ") != std::string::npos;
  }));
}

TEST_F(ViewerTest, AViewerThatDoesNotReadIsDropped) {
  // The viewer has little room, so it soon takes nothing.
  Peer viewer = Peer::To(AdminPort(), /*room=*/4096);
  ASSERT_TRUE(viewer.is_open());
  viewer.Send("GET /frames HTTP/1.1\r\nHost: x\r\n\r\n");
  // The connection that asks counts as one.
  const auto is_dropped = [&] { return Metric("fineserve_connections") < 2; };
  ASSERT_TRUE(process::Eventually([&] { return !is_dropped(); }));
  // Every request that ends changes the frame.
  const std::string id = "x-request-id: " + std::string(128, 'x') + "\r\n";
  EXPECT_TRUE(process::Eventually([&] {
    Ask("refuse", id).ReceiveMessage();
    return is_dropped();
  }));
}

}  // namespace
}  // namespace fineserve::proxy_tests
