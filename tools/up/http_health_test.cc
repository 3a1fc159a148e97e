#include "tools/up/http_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "kernels/driver/descriptor.h"

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using namespace std::chrono_literals;  // NOLINT
using Health = HealthChecks::Health;

// Returns the servers' health as of now.
std::vector<Health> Ask(HealthChecks* checks,
                        const std::vector<HealthChecks::Server>& servers,
                        int wait_ms) {
  std::vector<Health> all;
  for (const auto& answer : checks->Ask(servers, 1, wait_ms)) {
    all.push_back(answer.health);
  }
  return all;
}

// A machine under load may be slow.
constexpr int kPatienceMs = 60'000;

// A socket that listens on loopback.
class HealthServer {
 public:
  HealthServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    auto* address = reinterpret_cast<sockaddr*>(&at);
    EXPECT_EQ(bind(listener_.get(), address, size), 0);
    EXPECT_EQ(listen(listener_.get(), 8), 0);
    EXPECT_EQ(getsockname(listener_.get(), address, &size), 0);
    port_ = ntohs(at.sin_port);
  }
  // Accepts one connection and reads its question.
  driver::Descriptor Accept() const {
    driver::Descriptor client(accept(listener_.get(), nullptr, nullptr));
    char question[1024];
    EXPECT_GT(recv(client.get(), question, sizeof(question), 0), 0);
    return client;
  }
  HealthChecks::Server At(const std::string& host) const {
    return {host, port_};
  }

 private:
  driver::Descriptor listener_;
  uint16_t port_ = 0;
};

void Say(const driver::Descriptor& client, const std::string& answer) {
  EXPECT_EQ(send(client.get(), answer.data(), answer.size(), 0),
            static_cast<ssize_t>(answer.size()));
}

// If the servers were asked one after the other, the first one's answer would
// never come.
TEST(HealthChecksTest, AllAreAskedAtOnce) {
  const HealthServer servers[2];
  std::thread answers([&] {
    const driver::Descriptor second = servers[1].Accept();
    const driver::Descriptor first = servers[0].Accept();
    Say(second, "HTTP/1.1 200 OK\r\n\r\n");
    Say(first, "HTTP/1.1 503 Service Unavailable\r\n\r\n");
  });
  HealthChecks checks(kPatienceMs);
  EXPECT_THAT(
      Ask(&checks, {servers[0].At("127.0.0.1"), servers[1].At("127.0.0.1")},
          kPatienceMs),
      ElementsAre(Health::kDoesNot, Health::kServes));
  answers.join();
}

TEST(HealthChecksTest, AnswerMayComeInPieces) {
  const HealthServer server;
  std::thread answer([&] {
    const driver::Descriptor client = server.Accept();
    Say(client, "HTTP/1.");
    Say(client, "1 200 OK\r\n\r\n");
  });
  HealthChecks checks(kPatienceMs);
  EXPECT_THAT(Ask(&checks, {server.At("127.0.0.1")}, kPatienceMs),
              ElementsAre(Health::kServes));
  answer.join();
}

TEST(HealthChecksTest, ServerThatTakesLongIsAsItWasUntilItAnswers) {
  const HealthServer server;
  const std::vector<HealthChecks::Server> one = {server.At("127.0.0.1")};
  HealthChecks checks(kPatienceMs);
  // Returns the connection of the next question; until it arrives, all answers
  // are `before`.
  const auto accept = [&](Health before) {
    auto client = std::async([&] { return server.Accept(); });
    do {
      EXPECT_THAT(Ask(&checks, one, 1), ElementsAre(before));
    } while (client.wait_for(0s) != std::future_status::ready);
    return client.get();
  };
  driver::Descriptor client = accept(Health::kDoesNot);
  Say(client, "HTTP/1.1 200 OK\r\n\r\n");
  client.Reset();
  EXPECT_THAT(Ask(&checks, one, kPatienceMs), ElementsAre(Health::kServes));
  client = accept(Health::kServes);
  client.Reset();
  EXPECT_THAT(Ask(&checks, one, kPatienceMs), ElementsAre(Health::kDoesNot));
}

TEST(HealthChecksTest, SilenceBeginsWithTheQuestion) {
  const HealthServer server;
  const std::vector<HealthChecks::Server> one = {server.At("127.0.0.1")};
  HealthChecks checks(kPatienceMs);
  EXPECT_EQ(checks.Ask(one, 1, 1)[0].asked_ns, 1u);
  EXPECT_EQ(checks.Ask(one, 2, 1)[0].asked_ns, 2u) << "it may still answer";
  auto client = std::async([&] { return server.Accept(); });
  while (client.wait_for(0s) != std::future_status::ready) Ask(&checks, one, 1);
  client.get().Reset();
  EXPECT_EQ(checks.Ask(one, 3, kPatienceMs)[0].asked_ns, 1u);
}

TEST(HealthChecksTest, ServerThatHangsOrEndsTheConnectionDoesNotServe) {
  const HealthServer hangs, ends;
  std::thread end([&] { ends.Accept(); });
  HealthChecks checks(100);
  EXPECT_THAT(Ask(&checks, {hangs.At("127.0.0.1"), ends.At("127.0.0.1")}, 100),
              ElementsAre(Health::kDoesNot, Health::kDoesNot));
  end.join();
}

TEST(HealthChecksTest, HostWithoutAnAddressIsUnknown) {
  const HealthServer server;
  std::thread answer([&] { Say(server.Accept(), "HTTP/1.1 200 OK\r\n\r\n"); });
  HealthChecks checks(kPatienceMs);
  const std::vector<HealthChecks::Server> both = {{"engine.invalid", 80},
                                                  server.At("localhost")};
  checks.LookUp(both, 1);
  EXPECT_THAT(Ask(&checks, both, kPatienceMs),
              ElementsAre(Health::kUnknownHost, Health::kDoesNot))
      << "one is looked up at a time";
  // The time is later than any pause after the first lookup.
  checks.LookUp(both, 1'000'000'000'000'000);
  EXPECT_THAT(Ask(&checks, both, kPatienceMs),
              ElementsAre(Health::kUnknownHost, Health::kServes));
  answer.join();
}

}  // namespace
}  // namespace fineserve::fsctl
