#include "tools/fsctl/plan/live_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "daemon/base/unix_socket.h"
#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/socket.h"
#include "tools/fsctl/plan/plan_command.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
// Returns a daemon's answer to a message; empty if there is none.
using Answer = std::function<std::string(const wire::MessageT&)>;

// A daemon's admission socket that this process plays.
class PlayedDaemon {
 public:
  PlayedDaemon(const std::string& path, Answer answer)
      : socket_(*wire::ServerSocket::Bind(path)), answer_(std::move(answer)) {
    thread_ = std::thread([this] { Serve(); });
  }
  ~PlayedDaemon() {
    ends_ = true;
    thread_.join();
  }

 private:
  void Serve() {
    while (!ends_) {
      pollfd wait = {socket_.descriptor(), POLLIN, 0};
      poll(&wait, 1, 5);
      while (const auto in = socket_.Receive()) {
        const std::string answer = answer_(*wire::Decode(in->bytes));
        if (!answer.empty()) socket_.Send(in->peer, answer);
      }
    }
  }

  wire::ServerSocket socket_;
  const Answer answer_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

class LivePlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/fineserve-plan-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    setenv("FINESERVE_RUNTIME_DIR", folder, 1);
  }
  void TearDown() override {
    unsetenv("FINESERVE_RUNTIME_DIR");
    std::filesystem::remove_all(folder_);
  }

  std::unique_ptr<PlayedDaemon> Play(const std::string& gpu, Answer answer) {
    return std::make_unique<PlayedDaemon>(folder_ + "/" + gpu + ".admission",
                                          std::move(answer));
  }
  // Leaves a socket behind as a killed daemon does.
  void LeaveSocketOfDeadDaemon(const std::string& gpu) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_TRUE(base::BindUnix(fd, folder_ + "/" + gpu + ".admission"));
    close(fd);
  }
  // Answers as a daemon that knows the plan with this number; 0: it knows none.
  static Answer Knows(uint64_t number, bool leads) {
    return [=](const wire::MessageT&) {
      wire::PlanStateT state;
      state.leads = leads;
      if (leads) state.history = {"{\"number\": 7, \"why\": \"began\"}"};
      if (number != 0) {
        state.plan = std::make_unique<wire::PlanT>();
        state.plan->number = number;
      }
      return wire::Encode(1, 0, std::move(state));
    };
  }
  // Answers as a leading daemon, and answers steering with `steer_answer`.
  template <typename Body>
  Answer Steered(Body steer_answer) {
    const std::string steer = wire::Encode(1, 0, std::move(steer_answer));
    return [this, steer, knows = Knows(1, true)](const wire::MessageT& m) {
      if (m.body.AsSteer() == nullptr) return knows(m);
      steered_ = *m.body.AsSteer();
      return steer;
    };
  }

  int Run(const PlanOptions& options) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = RunPlan(globals_, options);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  std::string folder_;
  Globals globals_;
  wire::SteerT steered_;  // read once its daemon has ended
  std::string out_, err_;
};

PlanOptions Freeze() {
  PlanOptions options;
  options.live.steer.freeze = true;
  return options;
}

TEST_F(LivePlanTest, NewestNumberWinsAndTheLeaderIsFound) {
  const auto a = Play("GPU-aa", Knows(4, true));
  const auto b = Play("GPU-bb", Knows(5, false));
  EXPECT_EQ(Run({}), kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("plan 5, led by GPU-aa\n"));
  EXPECT_THAT(out_, HasSubstr("older plan: GPU-aa follows 4\n"));
}

TEST_F(LivePlanTest, GpuNarrowsWhichAreAsked) {
  const auto a = Play("GPU-aa", Knows(4, true));
  const auto b = Play("GPU-bb", Knows(5, false));
  globals_.json = true;
  for (const std::string gpu : {"aa", "GPU-AA"}) {
    globals_.gpu = gpu;
    EXPECT_EQ(Run({}), kExitOk) << err_;
    const auto json = nlohmann::json::parse(out_);
    EXPECT_EQ(json["number"], 4);
    EXPECT_EQ(json["daemons"].size(), 1u);
  }
  globals_.gpu = folder_ + "/GPU-bb.sock";
  EXPECT_EQ(Run({}), kExitOk) << err_;
  EXPECT_EQ(nlohmann::json::parse(out_)["number"], 5);
}

TEST_F(LivePlanTest, DaemonThatSaysNothingWithinTwoSecondsIsAnError) {
  const auto mute = Play("GPU-aa", [](const auto&) { return ""; });
  EXPECT_EQ(Run({}), kExitNoDaemon);
  EXPECT_THAT(err_,
              HasSubstr("GPU-aa: fineserved has not answered within 2 s"));
  const auto other = Play("GPU-bb", Knows(5, true));
  EXPECT_EQ(Run({}), kExitBadAnswer) << "the rest is shown";
  EXPECT_THAT(out_, HasSubstr("plan 5, led by GPU-bb\n"));
  EXPECT_THAT(out_, HasSubstr("GPU-aa: fineserved has not answered"));
}

TEST_F(LivePlanTest, SocketOfADeadDaemonIsPassedOver) {
  LeaveSocketOfDeadDaemon("GPU-00");
  const auto a = Play("GPU-aa", Knows(4, true));
  EXPECT_EQ(Run({}), kExitOk) << err_;
  EXPECT_EQ(out_.find("GPU-00"), std::string::npos);
}

TEST_F(LivePlanTest, WithoutADaemonThereIsTheUsualAdvice) {
  EXPECT_EQ(Run({}), kExitNoDaemon);
}

TEST_F(LivePlanTest, WithoutAPlannerItIsSaidWhatToWrite) {
  const auto a = Play("GPU-aa", Knows(0, false));
  for (const PlanOptions& options : {PlanOptions(), Freeze()}) {
    EXPECT_EQ(Run(options), kExitBadAnswer);
    EXPECT_THAT(err_, HasSubstr("the fleet has no [planner]; write that line"));
  }
}

TEST_F(LivePlanTest, WhyADaemonIsNotPlannedForIsSaidInsteadOfAPlan) {
  const auto a = Play("GPU-aa", [](const wire::MessageT&) {
    wire::PlanStateT state;
    state.troubles = {"another fleet is led here"};
    return wire::Encode(1, 0, std::move(state));
  });
  for (const PlanOptions& options : {PlanOptions(), Freeze()}) {
    EXPECT_EQ(Run(options), kExitNoDaemon);
    EXPECT_EQ(err_, "fsctl: GPU-aa: another fleet is led here\n");
  }
}

TEST_F(LivePlanTest, DaemonThatRefusesIsNamedWithItsReason) {
  wire::RefusedT refused;
  refused.why = "of another version";
  const std::string answer = wire::Encode(1, 0, std::move(refused));
  const auto a = Play("GPU-aa", [&](const auto&) { return answer; });
  EXPECT_EQ(Run({}), kExitNoDaemon);
  EXPECT_THAT(err_, HasSubstr("GPU-aa: refused: of another version"));
}

TEST_F(LivePlanTest, HistoryIsTheLeaders) {
  const auto a = Play("GPU-aa", Knows(4, false));
  const auto b = Play("GPU-bb", Knows(4, true));
  PlanOptions options;
  options.live.history = 20;
  EXPECT_EQ(Run(options), kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("-        7  began\n"));
}

TEST_F(LivePlanTest, LeaderAloneIsSteered) {
  auto leader = Play("GPU-bb", Steered(wire::DoneT()));
  const auto other = Play("GPU-aa", [](const wire::MessageT& message) {
    EXPECT_EQ(message.body.AsSteer(), nullptr);
    return Knows(1, false)(message);
  });
  PlanOptions options;
  options.live.steer.pin = "chat=GPU-8f0c";
  EXPECT_EQ(Run(options), kExitOk) << err_;
  EXPECT_EQ(out_, "chat: stays on GPU-8f0c until fsctl plan --unpin chat\n");
  leader.reset();
  EXPECT_EQ(steered_.pin, "chat");
  EXPECT_EQ(steered_.gpu, "GPU-8f0c");
}

TEST_F(LivePlanTest, RefusalOfTheLeaderIsAnErrorWithItsReason) {
  wire::RefusedT refused;
  refused.why = "no model \"cha\x1bt\"";
  const auto leader = Play("GPU-aa", Steered(std::move(refused)));
  EXPECT_EQ(Run(Freeze()), kExitUsage);
  EXPECT_EQ(err_, "fsctl: no model \"cha?t\"\n");
  EXPECT_EQ(out_, "");
}

TEST_F(LivePlanTest, LeaderThatDoesNotSayWhatItDidIsAnError) {
  const auto leader = Play("GPU-aa", [](const wire::MessageT& message) {
    return message.body.AsSteer() == nullptr ? Knows(1, true)(message) : "";
  });
  EXPECT_EQ(Run(Freeze()), kExitNoDaemon);
  EXPECT_THAT(err_, HasSubstr("has not answered within 2 s"));
}

TEST_F(LivePlanTest, WithoutALeaderNothingIsSteered) {
  const auto a = Play("GPU-aa", Knows(3, false));
  EXPECT_EQ(Run(Freeze()), kExitNoDaemon);
  EXPECT_THAT(err_, HasSubstr("none of the daemons asked leads now"));
}

TEST_F(LivePlanTest, ConflictingFlagsAreRefusedWithTheFix) {
  PlanOptions two = Freeze();
  two.live.history = 3;
  EXPECT_EQ(Run(two), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("--freeze and --history do not go together; "
                              "give one after the other"));
  PlanOptions with_file = Freeze();
  with_file.file = "cluster.toml";
  EXPECT_EQ(Run(with_file), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("leave the file out: fsctl plan --freeze"));
  PlanOptions bad_pin;
  bad_pin.live.steer.pin = "chat";
  EXPECT_EQ(Run(bad_pin), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("write MODEL=GPU"));
}

TEST(SteerTest, PinIsAModelAndAGpu) {
  SteerOptions options;
  options.pin = "org/chat=8b=GPU-8f0c";
  const auto steer = SteerOf(options);
  ASSERT_TRUE(steer.ok()) << steer.status();
  EXPECT_EQ(steer->pin, "org/chat=8b");
  EXPECT_EQ(steer->gpu, "GPU-8f0c");
  EXPECT_FALSE(steer->freeze || steer->thaw || steer->apply);
  EXPECT_EQ(steer->unpin, "");
}

TEST(SteerTest, PinWithoutModelOrGpuIsRefusedWithTheFix) {
  for (const char* pin : {"chat", "=GPU-8f0c", "chat="}) {
    SteerOptions options;
    options.pin = pin;
    EXPECT_THAT(std::string(SteerOf(options).status().message()),
                HasSubstr("write MODEL=GPU, such as --pin chat=GPU-8f0c3f1e"))
        << pin;
  }
}

TEST(SteerTest, EveryOptionIsAFlagAndOneFieldOfTheMessage) {
  SteerOptions options;
  EXPECT_THAT(FlagsOf(options), IsEmpty());
  options.freeze = options.thaw = options.apply = true;
  options.pin = "a=b";
  options.unpin = "c";
  EXPECT_THAT(FlagsOf(options),
              ElementsAre("--freeze", "--thaw", "--apply", "--pin", "--unpin"));
  const auto steer = SteerOf(options);
  ASSERT_TRUE(steer.ok());
  EXPECT_TRUE(steer->freeze && steer->thaw && steer->apply);
  EXPECT_EQ(steer->unpin, "c");
}

TEST(SteerTest, EachIsConfirmedInItsOwnWords) {
  wire::SteerT freeze, thaw, apply, pin, unpin;
  freeze.freeze = true;
  thaw.thaw = true;
  apply.apply = true;
  pin.pin = "chat";
  pin.gpu = "GPU-8f0c";
  unpin.unpin = "chat";
  EXPECT_EQ(SteeredText(freeze),
            "frozen: no model moves until fsctl plan --thaw\n");
  EXPECT_EQ(SteeredText(thaw), "no longer frozen: models may move\n");
  EXPECT_THAT(SteeredText(apply), HasSubstr("best plan's moves"));
  EXPECT_EQ(SteeredText(pin),
            "chat: stays on GPU-8f0c until fsctl plan --unpin chat\n");
  EXPECT_EQ(SteeredText(unpin), "chat: no longer pinned, may move\n");
}

}  // namespace

}  // namespace fineserve::fsctl
