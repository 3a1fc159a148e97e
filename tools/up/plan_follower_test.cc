#include "tools/up/plan_follower.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "daemon/base/unix_socket.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/message.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/terminal/fabricated_moment.h"
#include "tools/up/folder_fixture.h"
#include "tools/up/wish.h"

namespace fineserve::fsctl {
namespace {

constexpr char kGpu[] = "GPU-11111111-0000-0000-0000-000000000000";

config::FleetEngine Place() {
  config::FleetEngine engine;
  engine.name = "chat-0";
  engine.is_place = true;
  return engine;
}

// Returns the answer of a daemon whose plan has this number, and in which
// chat-0 serves; 0: the daemon has no plan.
std::string Answer(uint64_t number) {
  wire::PlanStateT state;
  if (number != 0) {
    state.plan = std::make_unique<wire::PlanT>();
    state.plan->number = number;
    state.plan->places.push_back(std::make_unique<wire::PlannedPlaceT>());
    state.plan->places[0]->engine = "chat-0";
    state.plan->places[0]->state = wire::PlaceState::kServe;
  }
  return wire::Encode(1, 0, std::move(state));
}

class PlanFollowerTest : public FolderTest {
 protected:
  // Makes a socket such as a daemon also leaves behind.
  void MakeSocket(const std::string& gpu) const {
    const driver::Descriptor fd(
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_TRUE(base::BindUnix(fd.get(), Socket(gpu)));
  }
  std::string Socket(const std::string& gpu) const {
    return folder() + "/" + gpu + ".sock";
  }
  wire::ServerSocket Serve(const std::string& gpu) const {
    return *wire::ServerSocket::Bind(finding::AdmissionPath(Socket(gpu)));
  }

  // Holds time at `now_ns` until the follower has asked, and sends `answer`.
  bool AnswersOnce(wire::ServerSocket* server, const std::string& answer,
                   uint64_t now_ns) {
    return Eventually([&] {
      follower_.Turn(now_ns, &plan_);
      const auto asked = server->Receive();
      if (!asked) return false;
      const auto message = wire::Decode(asked->bytes);
      EXPECT_TRUE(message.ok() && message->body.AsPlanQuery() != nullptr);
      return server->Send(asked->peer, answer);
    });
  }
  bool Hears(uint64_t number, uint64_t now_ns) {
    return Eventually([&] {
      follower_.Turn(now_ns, &plan_);
      return plan_.number() == number;
    });
  }

  PlanFollower follower_{folder(), {"GPU-1111"}};
  wire::NewestPlan plan_;
};

TEST_F(PlanFollowerTest, AsksEverySecondAndKeepsTheNewestPlan) {
  MakeSocket(kGpu);
  wire::ServerSocket server = Serve(kGpu);
  ASSERT_TRUE(AnswersOnce(&server, Answer(4), 0));
  ASSERT_TRUE(Hears(4, 0));
  EXPECT_EQ(WishOf(plan_, Place()), Wish::kRun);
  for (int i = 0; i < 50; ++i) {
    follower_.Turn(kTestSecond - 1, &plan_);
    EXPECT_FALSE(server.Receive().has_value()) << "too early";
  }
  ASSERT_TRUE(AnswersOnce(&server, Answer(5), kTestSecond));
  ASSERT_TRUE(Hears(5, kTestSecond));
  ASSERT_TRUE(AnswersOnce(&server, Answer(3), 2 * kTestSecond));
  ASSERT_TRUE(AnswersOnce(&server, Answer(0), 3 * kTestSecond));
  ASSERT_TRUE(AnswersOnce(&server, "no message", 4 * kTestSecond));
  ASSERT_TRUE(AnswersOnce(&server, Answer(6), 5 * kTestSecond));
  EXPECT_TRUE(Hears(6, 5 * kTestSecond)) << "after what is older or no plan";
}

TEST_F(PlanFollowerTest, KnowsWhoseMemoryWasAwayByTheLastAnswer) {
  MakeSocket(kGpu);
  wire::ServerSocket server = Serve(kGpu);
  const auto hears = [&](std::vector<std::string> away, uint64_t second) {
    wire::PlanStateT state;
    state.away = std::move(away);
    return AnswersOnce(&server, wire::Encode(0, 0, std::move(state)),
                       second * kTestSecond);
  };
  ASSERT_TRUE(hears({"chat-0"}, 0));
  EXPECT_TRUE(Eventually([&] {
    follower_.Turn(0, &plan_);
    return follower_.IsAway("chat-0");
  }));
  EXPECT_FALSE(follower_.IsAway("chat-1"));
  ASSERT_TRUE(hears({}, 1));
  EXPECT_TRUE(Eventually([&] {
    follower_.Turn(kTestSecond, &plan_);
    return !follower_.IsAway("chat-0");
  }));
}

TEST_F(PlanFollowerTest, DaemonOfAnotherGpuIsNotAsked) {
  const char kOther[] = "GPU-22222222-0000-0000-0000-000000000000";
  MakeSocket(kGpu);
  MakeSocket(kOther);
  wire::ServerSocket server = Serve(kGpu), other = Serve(kOther);
  for (uint64_t second = 0; second < 3; ++second) {
    ASSERT_TRUE(AnswersOnce(&server, Answer(4), second * kTestSecond));
  }
  EXPECT_FALSE(other.Receive().has_value());
}

TEST_F(PlanFollowerTest, DaemonThatStartsLaterIsHeard) {
  EXPECT_FALSE(follower_.Turn(0, &plan_));
  MakeSocket(kGpu);
  wire::ServerSocket server = Serve(kGpu);
  ASSERT_TRUE(AnswersOnce(&server, Answer(4), kTestSecond));
  EXPECT_TRUE(Hears(4, kTestSecond));
}

TEST_F(PlanFollowerTest, NextDaemonOfTheGpuIsHeardAndThePlanStaysTillThen) {
  MakeSocket(kGpu);
  {
    wire::ServerSocket server = Serve(kGpu);
    ASSERT_TRUE(AnswersOnce(&server, Answer(4), 0));
    ASSERT_TRUE(Hears(4, 0));
  }
  uint64_t now_ns = kTestSecond;
  EXPECT_FALSE(follower_.Turn(now_ns, &plan_));
  EXPECT_EQ(WishOf(plan_, Place()), Wish::kRun);
  wire::ServerSocket server = Serve(kGpu);
  // A question sent before the loss was noticed is lost, so it is asked again.
  EXPECT_TRUE(Eventually([&] {
    follower_.Turn(now_ns += kTestSecond, &plan_);
    if (const auto asked = server.Receive()) {
      server.Send(asked->peer, Answer(5));
    }
    return plan_.number() == 5;
  }));
}

}  // namespace
}  // namespace fineserve::fsctl
