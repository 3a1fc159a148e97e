// fsctl apply and SIGHUP: a fleet changes while it serves. Real daemon, proxy,
// fsctl up and engines; the engines that do not change are under load all the
// time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/serving/answer_load.h"
#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tools/lab/process/free_port.h"

namespace fineserve::integration {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ApplyTest : public ServingSite {
 protected:
  void SetUp() override {
    for (const char* name : {"stay", "turn", "leave", "come"}) {
      ports_[name] = process::FreePort();
    }
  }

  // Returns a model with an engine, which fsctl up starts with the further
  // arguments `more`.
  Served Engine(const std::string& name,
                const std::vector<std::string>& more = {}) {
    Served served = {name,
                     4096,
                     ports_.at(name),
                     {Program("tinyserve"), "--model", name, "--page", "64KiB",
                      "--view", "--speed", "20", "--max-model-len", "4096",
                      "--port", absl::StrCat(ports_.at(name))}};
    served.command.insert(served.command.end(), more.begin(), more.end());
    return served;
  }
  void StartAll(const std::vector<Served>& fleet) {
    WriteFleet(fleet, "fail_open");
    StartDaemonOfFleet();
    up_ = LaunchUp({"--timestamps"});
    StartProxy();
    for (const Served& served : fleet) AwaitServing(served.name);
  }
  void AwaitServing(const std::string& name) {
    const TinyModel model(name);
    EXPECT_TRUE(Eventually([&] { return Ask(model).status == 200; }))
        << name << Ask(model).body;
  }
  HttpResponse Ask(const TinyModel& model) {
    return HttpClient(port()).Ask("POST", "/v1/completions",
                                  model.Body("hello", 3));
  }
  Finished Apply(const std::vector<std::string>& more = {"--yes"}) {
    return Fsctl(With({"apply", fleet_path()}, more));
  }
  // Returns the engine's pid according to the tables of the pool.
  int Pid(const std::string& engine) {
    const std::string engines = Fsctl({"engines", "--json"}).out;
    for (int i = 0; i < 8; ++i) {
      const std::string at = absl::StrCat("/engines/", i);
      if (JsonText(engines, at + "/name") == engine) {
        return JsonInt(engines, at + "/pids/0");
      }
    }
    return 0;
  }

  // Returns the state that fsctl models shows for the engine.
  std::string StateInModels(const std::string& engine) {
    std::istringstream lines(Fsctl({"models"}).out);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name, model, state;
      words >> name >> model >> state;
      if (name == engine && model == engine && !state.empty() &&
          isalpha(state[0]) != 0) {
        return state;
      }
    }
    return "";
  }

  std::map<std::string, uint16_t> ports_;
  std::unique_ptr<Process> up_;
};

// One engine is added, one is removed and one is changed. The fourth has
// clients all the time, and they notice nothing.
TEST_F(ApplyTest, OnlyWhatChangedIsRestartedAndNoRequestOfTheRestFails) {
  StartAll({Engine("stay"), Engine("turn"), Engine("leave")});
  const int stay = Pid("stay"), turn = Pid("turn");
  ASSERT_NE(stay, 0);
  const TinyModel stays("stay"), turns("turn"), comes("come"), leaves("leave");
  AnswerLoad stay_load(stays, port(), 4, {100, 20});
  AnswerLoad turn_load(turns, port(), 2, {100, 20});
  EXPECT_TRUE(Eventually(
      [&] { return stay_load.right() > 20 && turn_load.right() > 10; }));

  WriteFleet(
      {Engine("stay"), Engine("turn", {"--max-num-seqs", "8"}), Engine("come")},
      "fail_open");
  const Finished dry = Apply({"--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("+ engine come\n- engine leave\n"));
  EXPECT_THAT(dry.out, HasSubstr("~ engine turn\n    command: "));
  EXPECT_THAT(dry.out,
              HasSubstr("starts come; drains and restarts turn; drains and "
                        "ends leave"));
  EXPECT_THAT(dry.out, Not(HasSubstr("engine stay")));
  EXPECT_EQ(Ask(leaves).status, 200) << "nothing was done";

  const Finished apply = Apply();
  EXPECT_EQ(apply.code, 0) << apply.out << apply.err << up_->Stderr();
  EXPECT_THAT(apply.out, HasSubstr("applied"));
  EXPECT_EQ(Pid("stay"), stay);
  EXPECT_NE(Pid("turn"), turn);
  EXPECT_EQ(Pid("leave"), 0);
  EXPECT_EQ(Ask(leaves).status, 404);
  AwaitServing("come");
  const int after = stay_load.right() + 20, turned = turn_load.right() + 10;
  EXPECT_TRUE(Eventually(
      [&] { return stay_load.right() > after && turn_load.right() > turned; }));
  stay_load.End();
  turn_load.End();
  EXPECT_EQ(stay_load.refused(), 0);
  EXPECT_EQ(stay_load.lost(), 0);
  EXPECT_EQ(turn_load.lost(), 0) << "it was drained";
  EXPECT_THAT(Apply({"--dry-run"}).out, HasSubstr("no changes"));
}

TEST_F(ApplyTest, EngineThatAnOperatorStoppedStaysSoUntilItIsStarted) {
  StartAll({Engine("stay"), Engine("turn")});
  const int stay = Pid("stay");
  const TinyModel stays("stay"), turns("turn");
  AnswerLoad load(turns, port(), 2, {100, 20});
  EXPECT_TRUE(Eventually([&] { return load.right() > 10; }));
  const Finished stop = Fsctl({"stop", "turn"});
  EXPECT_EQ(stop.code, 0) << stop.err << up_->Stderr();
  EXPECT_THAT(stop.out, HasSubstr("turn: stopped\n"));
  load.End();
  EXPECT_EQ(load.lost(), 0) << "it was drained";
  EXPECT_EQ(Pid("turn"), 0);
  EXPECT_EQ(Ask(turns).status, 503);
  EXPECT_EQ(Ask(stays).status, 200);
  EXPECT_TRUE(Eventually([&] { return StateInModels("turn") == "stopped"; }));

  // The next fsctl up, and a file with other settings, leave the engine
  // stopped.
  up_->EndBy(SIGKILL);
  up_ = LaunchUp();
  EXPECT_THAT(up_->ReadLine(), HasSubstr("stay: adopted"));
  EXPECT_THAT(up_->ReadLine(), HasSubstr("turn: stays stopped until"));
  WriteFleet({Engine("stay"), Engine("turn", {"--max-num-seqs", "8"})},
             "fail_open");
  const Finished apply = Apply();
  EXPECT_EQ(apply.code, 0) << apply.out << apply.err;
  const std::string status = Fsctl({"status"}).out;
  EXPECT_THAT(status,
              ContainsRegex("note +engine turn .* was stopped by hand"));
  EXPECT_THAT(status, Not(ContainsRegex("WRONG +(engine|model) turn")));
  EXPECT_EQ(Fsctl({"stop", "turn"}).code, 0) << "it is";
  EXPECT_EQ(Pid("turn"), 0);

  const Finished start = Fsctl({"start", "turn", "stay"});
  EXPECT_EQ(start.code, 0) << start.err;
  EXPECT_THAT(start.out, HasSubstr("turn: serving\n"));
  AwaitServing("turn");
  EXPECT_EQ(Pid("stay"), stay) << "it ran";
  EXPECT_THAT(Fsctl({"status"}).out, Not(HasSubstr("stopped by hand")));
}

TEST_F(ApplyTest, StopNeedsAnEngineOfARunningFsctlUp) {
  EXPECT_EQ(Fsctl({"stop", "turn"}).code, 3);
  StartAll({Engine("turn")});
  EXPECT_EQ(Fsctl({"stop"}).code, 2);
  const Finished unknown = Fsctl({"stop", "trun"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean"));
  EXPECT_EQ(Ask(TinyModel("turn")).status, 200);
}

TEST_F(ApplyTest, FileThatCannotBeTakenChangesNothingAnywhere) {
  StartAll({Engine("stay")});
  const int stay = Pid("stay");
  Served without_program = Engine("come");
  without_program.command[0] = "/no/such/engine";
  WriteFleet({Engine("stay", {"--max-num-seqs", "8"}), without_program},
             "fail_open");
  const Finished no = Apply();
  EXPECT_EQ(no.code, 1);
  EXPECT_THAT(no.err, HasSubstr("fsctl up"));
  EXPECT_THAT(no.err, HasSubstr("/no/such/engine: command not found"));
  EXPECT_THAT(no.err, HasSubstr("nothing was changed"));
  EXPECT_THAT(no.out, ContainsRegex("fsctl up [0-9]+ +cannot take it"));
  EXPECT_EQ(Pid("stay"), stay);
  EXPECT_EQ(HttpClient(port()).Ask("GET", "/v1/models/come").status, 404);
  EXPECT_EQ(JsonText(Fsctl({"models", "--json"}).out, "/models/1/name"), "");

  std::ofstream(fleet_path()) << "[scheduler]\npolicy = \"best\"\n";
  const Finished wrong = Apply();
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("fleet.toml:2: "));
  EXPECT_EQ(Apply({}).code, 2) << "there is no process to ask";
  EXPECT_EQ(Ask(TinyModel("stay")).status, 200);
}

TEST_F(ApplyTest, FleetThatNoProcessUsesIsSaidSo) {
  WriteFleet({Engine("stay")}, "fail_open");
  const Finished none = Apply();
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.err, HasSubstr("no process follows"));
}

// κ was learnt from whole answers, and keeps its value when requests end.
TEST_F(ApplyTest, LearntFiguresOutliveAFleetAndADaemon) {
  StartAll({Engine("stay")});
  const auto kappa = [&] {
    return JsonAt(Fsctl({"models", "--json"}).out, "/models/0/engines/0/kappa");
  };
  const TinyModel stays("stay");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Ask(stays).status, 200);
  const std::string learnt = kappa();
  EXPECT_NE(learnt, "1.0");
  WriteFleet({Engine("stay"), Engine("come")}, "fail_open");
  const Finished apply = Apply();
  EXPECT_EQ(apply.code, 0) << apply.out << apply.err;
  EXPECT_TRUE(Eventually([&] { return kappa() == learnt; })) << kappa();
  daemon_->EndBy(SIGTERM);
  StartDaemonOfFleet();
  EXPECT_TRUE(Eventually([&] { return kappa() == learnt; })) << kappa();
}

// Sends SIGHUP to all three programs, as the reload of their units does.
TEST_F(ApplyTest, HangupMakesAllThreeTakeTheFileAgain) {
  StartAll({Engine("stay"), Engine("leave")});
  const int stay = Pid("stay");
  WriteFleet({Engine("stay"), Engine("come")}, "fail_open");
  for (Process* process : {daemon_.get(), proxy_.get(), up_.get()}) {
    process->Signal(SIGHUP);
  }
  AwaitServing("come");
  EXPECT_TRUE(Eventually([&] { return Pid("leave") == 0; }));
  EXPECT_EQ(Pid("stay"), stay);
  EXPECT_THAT(Apply({"--dry-run"}).out, HasSubstr("no changes"));
  // A mistake in the file leaves everything as it was, including fsctl up and
  // its engines.
  std::ofstream(fleet_path()) << "[scheduler]\npolicy = \"best\"\n";
  up_->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] {
    return up_->Stderr().find("keeping the present fleet") != std::string::npos;
  }));
  EXPECT_EQ(Pid("stay"), stay);
  EXPECT_EQ(up_->EndBy(SIGTERM), 0);
}

TEST_F(ApplyTest, RestartDrainsAnEngineAndWaitsUntilItServes) {
  StartAll({Engine("stay"), Engine("turn")});
  const int stay = Pid("stay"), turn = Pid("turn");
  const TinyModel turns("turn");
  AnswerLoad load(turns, port(), 4, {100, 40});
  EXPECT_TRUE(Eventually([&] { return load.right() > 10; }));
  const Finished restart = Fsctl({"restart", "turn"});
  EXPECT_EQ(restart.code, 0) << restart.out << restart.err;
  EXPECT_THAT(restart.out, HasSubstr("turn: draining\n"));
  EXPECT_NE(Pid("turn"), turn);
  EXPECT_EQ(Pid("stay"), stay);
  const int before = load.right();
  EXPECT_TRUE(Eventually([&] { return load.right() > before + 10; }));
  load.End();
  EXPECT_EQ(load.lost(), 0);
  EXPECT_EQ(Fsctl({"restart", "--rolling"}).code, 0);
  EXPECT_NE(Pid("stay"), stay);
  EXPECT_EQ(Fsctl({"restart"}).code, 2);
  const Finished unknown = Fsctl({"restart", "nobody"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("no fsctl up starts an engine"));
  EXPECT_THAT(Fsctl({"restart", "trun"}).err, HasSubstr("did you mean turn?"));
}

TEST_F(ApplyTest, LogsOfAnEngineArePrintedByItsName) {
  StartAll({Engine("stay"), Engine("turn")});
  EXPECT_THAT(Fsctl({"logs", "turn"}).out, HasSubstr("ready port="));
  EXPECT_EQ(Fsctl({"logs", "turn", "-n", "0"}).code, 0);
  EXPECT_THAT(Fsctl({"logs", "turn", "--json"}).out, HasSubstr("/turn.log\""));
  const Finished unknown = Fsctl({"logs", "trun"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean turn?"));
  EXPECT_EQ(up_->EndBy(SIGTERM), 0);
  EXPECT_EQ(Fsctl({"logs", "turn"}).code, 3);
}

TEST_F(ApplyTest, HelpIsThereByEachOfItsNames) {
  const Finished all = Fsctl({"--help"});
  EXPECT_THAT(all.out, HasSubstr("Look (start with status):"));
  EXPECT_EQ(Fsctl({"help"}).out, all.out);
  const Finished none = Fsctl({});
  EXPECT_EQ(none.out, all.out);
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(Fsctl({"help", "logs"}).out, Fsctl({"logs", "--help"}).out);
  EXPECT_THAT(Fsctl({"help", "slbas"}).err, HasSubstr("did you mean slabs?"));
}

TEST_F(ApplyTest, EngineThatLeavesAnswersWhatItRunsFirst) {
  StartAll(
      {Engine("stay"), Engine("leave", {"--speed", "1"})});  // 8 ms a token
  const TinyModel leaves("leave");
  HttpClient client(port());
  client.Send("POST", "/v1/completions",
              leaves.Body("hello", 500, ", \"stream\": true"),
              "x-slo-ttft-ms: 120000\r\n");
  EXPECT_EQ(client.ReadHead().status, 200);
  ASSERT_TRUE(client.ReadEvent().has_value());
  WriteFleet({Engine("stay")}, "fail_open");
  EXPECT_EQ(Apply().code, 0);
  std::string last;
  while (const auto event = client.ReadEvent()) last = *event;
  EXPECT_EQ(last, "[DONE]");
  EXPECT_FALSE(client.broken());
}

TEST_F(ApplyTest, StatusSaysWhatIsWrongAndWhatMendsIt) {
  const Finished nothing = Fsctl({"status"});
  EXPECT_EQ(nothing.code, 1);
  EXPECT_THAT(nothing.out, HasSubstr("no fineserved runs"));
  StartAll({Engine("stay"), Engine("turn")});
  EXPECT_TRUE(Eventually([&] { return Fsctl({"status"}).code == 0; }))
      << Fsctl({"status"}).out;
  EXPECT_THAT(Fsctl({"status"}).out, HasSubstr("with 2 engines that serve"));
  EXPECT_EQ(Fsctl({"drain", "stay"}).code, 0);
  const Finished drained = Fsctl({"status"});
  EXPECT_EQ(drained.code, 1);
  EXPECT_THAT(drained.out, HasSubstr("fsctl drain stay --undo"));
  EXPECT_EQ(Fsctl({"drain", "stay", "--undo"}).code, 0);
  daemon_->EndBy(SIGKILL);
  EXPECT_TRUE(Eventually([&] {
    const std::string out = Fsctl({"status"}).out;
    return out.find("is dead") != std::string::npos &&
           out.find("admitted unscheduled") != std::string::npos;
  })) << Fsctl({"status"}).out;
  EXPECT_EQ(JsonAt(Fsctl({"status", "--json"}).out, "/well"), "false");
}

TEST_F(ApplyTest, OverloadIsWrongInStatusWithItsBottleneck) {
  StartAll({Engine("stay")});
  const TinyModel model("stay");
  EXPECT_TRUE(Eventually([&] { return Fsctl({"status"}).code == 0; }));
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(
        HttpClient(port())
            .Ask("POST", "/v1/completions",
                 model.Body(std::string(3000, 'a'), 5), "x-slo-ttft-ms: 1\r\n")
            .status,
        429);
  }
  const Finished status = Fsctl({"status"});
  EXPECT_EQ(status.code, 1);
  EXPECT_THAT(status.out, HasSubstr("WRONG model stay on GPU-"));
  EXPECT_THAT(status.out,
              HasSubstr("0 late and 12 refused, most for want of "));
}

TEST_F(ApplyTest, ProgramOfTheFleetThatIsKilledIsWrongInStatusUntilItIsBack) {
  StartAll({Engine("stay"), Engine("turn")});
  const auto is_well = [&] { return Fsctl({"status"}).code == 0; };
  EXPECT_TRUE(Eventually(is_well)) << Fsctl({"status"}).out;
  proxy_->Signal(SIGSTOP);
  const Finished hangs = Fsctl({"status"});
  EXPECT_EQ(hangs.code, 1);
  EXPECT_THAT(hangs.out, HasSubstr("does not answer"));
  EXPECT_THAT(hangs.out, Not(HasSubstr("no fineserve-proxy runs")));
  proxy_->EndBy(SIGKILL);
  const Finished no_proxy = Fsctl({"status"});
  EXPECT_EQ(no_proxy.code, 1);
  EXPECT_THAT(no_proxy.out,
              HasSubstr("WRONG no fineserve-proxy runs for " + fleet_path()));
  EXPECT_THAT(no_proxy.out, Not(HasSubstr("no fsctl up")));
  StartProxy();
  EXPECT_TRUE(Eventually(is_well)) << Fsctl({"status"}).out;
  up_->EndBy(SIGKILL);
  const Finished no_up = Fsctl({"status"});
  EXPECT_EQ(no_up.code, 1);
  EXPECT_THAT(no_up.out,
              HasSubstr("WRONG no fsctl up runs for " + fleet_path()));
  up_ = LaunchUp();
  EXPECT_TRUE(Eventually(is_well)) << Fsctl({"status"}).out;
}

}  // namespace
}  // namespace fineserve::integration
