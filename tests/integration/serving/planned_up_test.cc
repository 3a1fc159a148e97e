// fsctl up with a planner: real engines on two GPUs that run as a plan says,
// and that outlive their fsctl. The plan comes from a stand-in for the daemons'
// admission.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/socket.h"
#include "tests/integration/site.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/fleet_text.h"
#include "tools/lab/stage/http_client.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using wire::PlaceState;

// Answers with this plan at a daemon's admission socket. A daemon without a
// fleet does not use that socket.
class StandIn {
 public:
  explicit StandIn(const std::string& path)
      : thread_([this, path] { Serve(*wire::ServerSocket::Bind(path)); }) {}
  ~StandIn() {
    ends_ = true;
    thread_.join();
  }

  // `ends` is the place, among those that are off, that must not rest although
  // its memory has left the GPU.
  void Say(uint64_t number,
           const std::vector<std::pair<std::string, PlaceState>>& places,
           const std::string& ends = "") {
    wire::PlanStateT state;
    state.plan = std::make_unique<wire::PlanT>();
    state.plan->number = number;
    for (const auto& [name, place_state] : places) {
      auto place = std::make_unique<wire::PlannedPlaceT>();
      place->engine = name;
      place->state = place_state;
      place->no_rest = name == ends;
      state.plan->places.push_back(std::move(place));
    }
    if (!ends.empty()) state.away = {ends};
    const std::lock_guard lock(mutex_);
    answer_ = wire::Encode(1, 0, std::move(state));
  }

 private:
  void Serve(wire::ServerSocket socket) {
    for (; !ends_; Breathe()) {
      while (const auto asked = socket.Receive()) {
        const std::lock_guard lock(mutex_);
        socket.Send(asked->peer, answer_);
      }
    }
  }

  std::mutex mutex_;
  std::string answer_ = wire::Encode(1, 0, wire::PlanStateT());
  std::atomic<bool> ends_ = false;
  std::thread thread_;  // the last: it uses the others
};

class PlannedUpTest : public Site {
 protected:
  void SetUp() override {
    if (!OnEmulatedGpu()) GTEST_SKIP() << "needs two GPUs";
    Set("EMUCUDA_DEVICES", "2");
    for (int i = 0; i < 2; ++i) {
      daemons_[i] = StartDaemon({"--gpu", absl::StrCat("emulated:", i)});
      gpus_[i] = process::GpuInLog(daemons_[i]->Stderr());
    }
    leader_ = std::make_unique<StandIn>(
        absl::StrCat(folder(), "/run/", gpus_[0], ".admission"));
    WriteFleet({gpus_[0], gpus_[1]});
  }
  // Kills the engines, because none may outlive a failed test.
  void TearDown() override {
    for (const pid_t pid : started_) kill(-pid, SIGKILL);
  }

  // Writes a fleet with places tiny-0 and so on, one on each GPU.
  void WriteFleet(const std::vector<std::string>& gpus,
                  const std::string& evict = "never") {
    std::ofstream(folder() + "/tiny.toml")
        << "weight_bytes = 1e6\nkv_token_bytes = 4096\n[step]\nbase_us = 1\n"
        << "per_token_us = 1\nper_sequence_us = 1\n[[point]]\nbatch = 1\n"
        << "prompt_tokens = 10\nttft_s = 0.01\nstep_s = 0.01\n";
    stage::FleetText()
        .Table("[planner]", {})
        .Model("tiny", {{"slo_ttft_ms", 3000}, {"profile", "tiny.toml"}})
        .Engine("tiny", "tiny", port_,
                {{"command", Words(Program("tinyserve") +
                                   " --model tiny --port {port} --speed 50")},
                 {"gpus", gpus},
                 {"evict", evict}})
        .WriteTo(path_);
  }

  std::unique_ptr<Process> Up() {
    return LaunchProgram({"fsctl", "up", path_});
  }
  // Returns the pid in the next line that begins with `event` and has one:
  // "tiny-0: started, pid 4711, log …".
  pid_t PidOf(Process* up, const std::string& event) {
    std::string line;
    size_t at = std::string::npos;
    do {
      line = up->ReadLineWith(event);
      at = line.find("pid ");
    } while (at == std::string::npos && !line.empty());
    EXPECT_NE(line, "") << "no " << event;
    if (line.empty()) return 0;
    started_.push_back(atoi(line.c_str() + at + 4));
    return started_.back();
  }
  bool Serves(uint16_t port) {
    return HttpClient(port).Ask("GET", "/health").status == 200;
  }
  // Starts tiny-0, kills its fsctl once it serves, and returns its pid.
  pid_t LeftBehind() {
    leader_->Say(1, {{"tiny-0", PlaceState::kServe}});
    const auto up = Up();
    const pid_t engine = PidOf(up.get(), "tiny-0: started");
    up->ReadLineWith("tiny-0: serving");
    up->EndBy(SIGKILL);
    EXPECT_TRUE(Serves(port_));
    return engine;
  }
  void Stop(Process* up) {
    EXPECT_EQ(up->EndBy(SIGTERM), 0) << up->Stderr();
    EXPECT_FALSE(Serves(port_));
  }

  const uint16_t port_ = process::FreePort();
  const std::string path_ = folder() + "/fleet.toml";
  std::unique_ptr<Process> daemons_[2];
  std::string gpus_[2];
  std::unique_ptr<StandIn> leader_;
  std::vector<pid_t> started_;
};

TEST_F(PlannedUpTest, PlacesRunWhilePlansWantThem) {
  const auto up = Up();
  EXPECT_EQ(up->ReadLine(),
            "waiting for the first plan, which says which of 2 engines run");
  leader_->Say(5, {{"tiny-0", PlaceState::kStart}});
  EXPECT_EQ(up->ReadLine(), "tiny-0: plan 5: start");
  PidOf(up.get(), "tiny-0: started");
  EXPECT_THAT(up->ReadLine(), HasSubstr("(1 of 1 serving)"));

  leader_->Say(
      6, {{"tiny-0", PlaceState::kRetire}, {"tiny-1", PlaceState::kServe}});
  EXPECT_EQ(up->ReadLine(), "tiny-1: plan 6: start");
  const pid_t second = PidOf(up.get(), "tiny-1: started");
  EXPECT_THAT(up->ReadLine(), HasSubstr("(2 of 2 serving)"));
  EXPECT_TRUE(Serves(port_)) << "it still answers what it has";

  leader_->Say(7,
               {{"tiny-0", PlaceState::kOff}, {"tiny-1", PlaceState::kServe}});
  EXPECT_EQ(up->ReadLine(), "tiny-0: plan 7: stop");
  EXPECT_THAT(up->ReadLine(), HasSubstr("tiny-0: ended"));
  EXPECT_FALSE(Serves(port_));

  leader_->Say(6, {{"tiny-0", PlaceState::kServe}});  // a leader of long ago
  ASSERT_TRUE(process::SignalOne(second, SIGKILL));
  EXPECT_THAT(up->ReadLineWith("tiny-1: ended"), HasSubstr("restarting in 1"));
  PidOf(up.get(), "tiny-1: started");
  EXPECT_THAT(up->ReadLineWith("tiny-1: serving"),
              HasSubstr("(1 of 1 serving)"));
  Stop(up.get());
}

// Memory may take a minute to leave. A place whose memory has left rests
// forever.
TEST_F(PlannedUpTest, PlaceThatIsOffRestsUntilAPlanHasItEnd) {
  WriteFleet({gpus_[0], gpus_[1]}, "auto");
  leader_->Say(5, {{"tiny-0", PlaceState::kServe}});
  const auto up = Up();
  PidOf(up.get(), "tiny-0: started");
  up->ReadLineWith("tiny-0: serving");
  leader_->Say(6,
               {{"tiny-0", PlaceState::kOff}, {"tiny-1", PlaceState::kServe}});
  EXPECT_EQ(up->ReadLine(), "tiny-1: plan 6: start");
  EXPECT_NE(up->ReadLineWith("tiny-1: serving"), "");
  EXPECT_TRUE(Serves(port_)) << "its process goes on";
  leader_->Say(7,
               {{"tiny-0", PlaceState::kOff}, {"tiny-1", PlaceState::kServe}},
               /*ends=*/"tiny-0");
  EXPECT_EQ(up->ReadLine(), "tiny-0: plan 7, no memory to rest in: stop");
  EXPECT_THAT(up->ReadLine(), HasSubstr("tiny-0: ended"));
  EXPECT_FALSE(Serves(port_));
  leader_->Say(8, {{"tiny-0", PlaceState::kServe}});
  EXPECT_EQ(up->ReadLine(), "tiny-0: plan 8: start");
  Stop(up.get());
}

TEST_F(PlannedUpTest, EngineOfAKilledFsctlIsAdoptedAndSteered) {
  const pid_t engine = LeftBehind();
  const auto up = Up();
  EXPECT_EQ(PidOf(up.get(), "tiny-0: adopted"), engine);
  EXPECT_THAT(up->ReadLineWith("tiny-0: serving"),
              HasSubstr("(1 of 1 serving)"));
  leader_->Say(2, {{"tiny-0", PlaceState::kOff}});
  EXPECT_EQ(up->ReadLineWith("tiny-0: plan"), "tiny-0: plan 2: stop");
  EXPECT_THAT(up->ReadLine(), HasSubstr("tiny-0: ended, log "));
  leader_->Say(3, {{"tiny-0", PlaceState::kServe}});
  EXPECT_EQ(up->ReadLine(), "tiny-0: plan 3: start");
  EXPECT_NE(PidOf(up.get(), "tiny-0: started"), engine);
  EXPECT_THAT(up->ReadLine(), HasSubstr("serving after"));
  Stop(up.get());
}

TEST_F(PlannedUpTest, AdoptedEngineThatDiesIsRestarted) {
  const pid_t engine = LeftBehind();
  const auto up = Up();
  EXPECT_EQ(PidOf(up.get(), "tiny-0: adopted"), engine);
  ASSERT_TRUE(process::SignalOne(engine, SIGKILL));
  EXPECT_NE(up->ReadLineWith("tiny-0: ended"), "");
  EXPECT_NE(PidOf(up.get(), "tiny-0: started"), engine);
  EXPECT_NE(up->ReadLineWith("tiny-0: serving"), "");
  Stop(up.get());
}

TEST_F(PlannedUpTest, SignalEndsAdoptedEnginesToo) {
  const pid_t engine = LeftBehind();
  const auto up = Up();
  EXPECT_EQ(PidOf(up.get(), "tiny-0: adopted"), engine);
  Stop(up.get());
}

TEST_F(PlannedUpTest, BeforeAPlanIsKnownAnAdoptedEngineGoesOn) {
  const pid_t engine = LeftBehind();
  leader_.reset();
  const auto up = Up();
  EXPECT_EQ(PidOf(up.get(), "tiny-0: adopted"), engine);
  EXPECT_THAT(up->ReadLine(), HasSubstr("which of 1 engines run"));
  EXPECT_EQ(up->ReadLine(), "tiny-0: serving (1 of 1 serving)");
  Stop(up.get());
}

TEST_F(PlannedUpTest, EngineThatLeftTheFleetIsStoppedByTheNext) {
  leader_->Say(1, {{"tiny-1", PlaceState::kServe}});
  {
    const auto up = Up();
    PidOf(up.get(), "tiny-1: started");
    up->ReadLineWith("tiny-1: serving");
    up->EndBy(SIGKILL);
  }
  WriteFleet({gpus_[0]});
  const auto up = Up();
  PidOf(up.get(), "tiny-1: adopted");
  EXPECT_EQ(up->ReadLine(), "tiny-1: has left the fleet: stop");
  EXPECT_NE(up->ReadLineWith("tiny-1: ended"), "");
  Stop(up.get());
}

TEST_F(PlannedUpTest, FsctlThatIsKilledWhileItStartsAnEngineLeavesOneAtMost) {
  leader_->Say(1, {{"tiny-0", PlaceState::kServe}});
  for (int i = 0; i < 5; ++i) {
    const auto up = Up();
    EXPECT_NE(up->ReadLineWith("tiny-0: "), "");
    for (int pause = 0; pause < i; ++pause) Breathe();
    up->EndBy(SIGKILL);
  }
  const auto up = Up();
  PidOf(up.get(), "tiny-0: ");
  EXPECT_NE(up->ReadLineWith("tiny-0: serving"), "");
  Stop(up.get());
}

TEST_F(PlannedUpTest, SecondFsctlOfAFleetIsRefused) {
  const auto up = Up();
  up->ReadLine();
  const Finished second = Fsctl({"up", path_});
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.err, HasSubstr(absl::StrCat("pid ", up->pid(),
                                                 " runs the fleet ", path_)));
  Stop(up.get());
}

TEST_F(PlannedUpTest, OneDaemonIsEnoughToBegin) {
  daemons_[1]->EndBy(SIGKILL);
  leader_->Say(1, {{"tiny-0", PlaceState::kServe}});
  {
    const auto up = Up();
    PidOf(up.get(), "tiny-0: started");
    EXPECT_NE(up->ReadLineWith("tiny-0: serving"), "");
    EXPECT_THAT(up->Stderr(), HasSubstr("warning: " + gpus_[1]));
    Stop(up.get());
  }
  daemons_[0]->EndBy(SIGKILL);
  EXPECT_EQ(Fsctl({"up", path_}).code, 3);
}

}  // namespace
}  // namespace fineserve::integration
