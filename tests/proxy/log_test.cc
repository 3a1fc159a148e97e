// The last lines of engines' logs on the admin port, beside an fsctl up that
// the test plays.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "daemon/fleet/door/door.h"
#include "daemon/proxy/page/engine_log.h"
#include "tests/proxy/admission_site.h"
#include "tests/proxy/site.h"

namespace fineserve::proxy_tests {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// An fsctl up whose door says where the engine's log is. It answers when Turn
// is called.
class PlayedUp {
 public:
  PlayedUp(const std::string& folder, const std::string& fleet_path,
           const std::string& engine, const std::string& log_path) {
    apply::Answer answer;
    answer.process = "fsctl up";
    answer.fleet_path = fleet_path;
    answer.engines.resize(1);
    answer.engines[0].name = engine;
    answer.engines[0].log_path = log_path;
    auto door = apply::Door::Open(folder, apply::ProcessDoor("up"),
                                  [=](const auto&) { return answer; });
    EXPECT_TRUE(door.ok()) << door.status();
    door_ = *std::move(door);
  }
  void Turn() {
    pollfd knocks = {door_->descriptor(), POLLIN, 0};
    if (poll(&knocks, 1, 20) > 0) door_->Turn();
  }

 private:
  std::unique_ptr<apply::Door> door_;
};

class LogTest : public ProxyTest {
 protected:
  ~LogTest() override {
    ends_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Starts an fsctl up that runs `engine`, for this fleet unless another is
  // given.
  void StartUp(const std::string& engine, std::string fleet_path = "") {
    if (fleet_path.empty()) fleet_path = folder_ + "/fleet.toml";
    up_ = std::make_unique<PlayedUp>(folder_, fleet_path, engine, log_path());
    thread_ = std::thread([this] {
      while (!ends_) up_->Turn();
    });
  }
  std::string log_path() const { return folder_ + "/a.log"; }
  // Asks again if the door could not answer in time on a machine under load.
  Peer::Message Log(const std::string& engine) {
    Peer::Message answer;
    process::Eventually([&] {
      answer = Get("/logs/" + engine, /*admin=*/true);
      return answer.body.find("does not answer") == std::string::npos;
    });
    return answer;
  }

 private:
  std::unique_ptr<PlayedUp> up_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

TEST_F(LogTest, AnEnginesLogIsOnTheAdminPortAlone) {
  Start();
  WriteFile(log_path(), "first\n<b>second</b>\n");
  StartUp("a");
  const Peer::Message log = Log("a");
  EXPECT_EQ(log.status(), 200);
  EXPECT_EQ(log.body, "first\n<b>second</b>\n");
  EXPECT_EQ(log.Field("content-type"), "text/plain; charset=utf-8");
  EXPECT_EQ(log.Field("x-content-type-options"), "nosniff");
  EXPECT_EQ(Get("/logs/a").status(), 404);
  Peer poster = Admin();
  poster.Send(Post("/logs/a", ""));
  EXPECT_EQ(poster.ReceiveMessage().status(), 405);
}

TEST_F(LogTest, ALongLogGivesItsLastWholeLines) {
  Start();
  const std::string line = std::string(99, 'x') + "\n";
  std::string text;
  for (int n = 0; n < 2000; ++n) text += line;
  WriteFile(log_path(), text + "the end, so far");
  StartUp("a");
  const std::string log = Log("a").body;
  EXPECT_LE(log.size(), proxy::kMostLogBytes);
  EXPECT_GT(log.size(), proxy::kMostLogBytes - line.size());
  EXPECT_THAT(log, StartsWith(line));
  EXPECT_THAT(log, EndsWith(line + "the end, so far"));
}

TEST_F(LogTest, EngineThatTheFleetDoesNotNameIsUnknown) {
  Start();
  WriteFile(log_path(), "secret");
  StartUp("stranger");
  const Peer::Message unknown = Log("stranger");
  EXPECT_EQ(unknown.status(), 404);
  EXPECT_THAT(unknown.body, HasSubstr("the fleet has no engine `stranger`"));
  EXPECT_EQ(Log("..%2Fa.log").status(), 404);
  EXPECT_EQ(Log("").status(), 404);
  const Peer::Message elsewhere = Log("a");
  EXPECT_EQ(elsewhere.status(), 404);
  EXPECT_THAT(elsewhere.body, HasSubstr("does not run a here"));
}

TEST_F(LogTest, ThatNoFsctlUpRunsIsSaidInOneLine) {
  Start();
  const Peer::Message none = Log("a");
  EXPECT_EQ(none.status(), 404);
  EXPECT_THAT(none.body, HasSubstr("no fsctl up of this fleet runs here"));
  StartUp("a", folder_ + "/other.toml");
  EXPECT_THAT(Log("a").body, HasSubstr("no fsctl up of this fleet runs here"));
}

TEST_F(LogTest, OnlyARegularFileIsRead) {
  Start();
  StartUp("a");
  const Peer::Message missing = Log("a");
  EXPECT_EQ(missing.status(), 503);
  EXPECT_THAT(missing.body, HasSubstr("a.log: No such file"));
  ASSERT_EQ(mkfifo(log_path().c_str(), 0600), 0);
  EXPECT_THAT(Log("a").body, HasSubstr("is no regular file"));
}

TEST_F(LogTest, FlagTurnsThemOff) {
  Start("", {"--no-page-logs"});
  WriteFile(log_path(), "prompt");
  StartUp("a");
  const Peer::Message off = Log("a");
  EXPECT_EQ(off.status(), 404);
  EXPECT_THAT(off.body, HasSubstr("--no-page-logs"));
}

proxy::Limits LongLogPatience() {
  proxy::Limits limits;
  limits.log_s = 600;
  return limits;
}

class HungUpTest : public AdmissionSite {
 protected:
  HungUpTest() : AdmissionSite(false, LongLogPatience()) {}

  Peer Send(const std::string& path) {
    const std::string at = proxy_->admin_address();
    Peer admin = Peer::To(
        static_cast<uint16_t>(std::stoi(at.substr(at.rfind(':') + 1))));
    admin.Send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    return admin;
  }
};

TEST_F(HungUpTest, AFsctlUpThatHangsHoldsUpNoOtherRequest) {
  PlayedUp up(folder_.path(), "", "a", "/nonexistent/a.log");
  Peer log = Send("/logs/a");
  EXPECT_EQ(Send("/health").ReceiveMessage().status(), 200);
  EXPECT_TRUE(log.IsQuiet());
  ASSERT_TRUE(process::Eventually([&] {
    up.Turn();
    return !log.IsQuiet();
  }));
  EXPECT_THAT(log.ReceiveMessage().body, HasSubstr("/nonexistent/a.log"));
}

}  // namespace
}  // namespace fineserve::proxy_tests
