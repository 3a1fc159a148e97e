// fsctl up: real engines that it starts, restarts and stops.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/integration/site.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/http_client.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class UpTest : public Site {
 protected:
  // Writes a fleet of one model with one engine that runs `command`.
  void WriteFleet(const std::string& command, const std::string& more = "") {
    std::ofstream(path_)
        << "[[model]]\nname = \"tiny\"\nslo_ttft_ms = 3000\n"
        << "kv_token_bytes = 4096\n"
        << "profile = { base_us = 1, per_token_us = 1, per_sequence_us = 1 }\n"
        << "[[engine]]\nname = \"tiny-a\"\nmodel = \"tiny\"\n"
        << "url = \"http://127.0.0.1:" << port_ << "\"\n"
        << "command = [" << command << "]\n"
        << more;
  }
  std::string Tinyserve() {
    return absl::StrCat("\"", Program("tinyserve"), "\", \"--model\", \"tiny\"",
                        ", \"--port\", \"", port_, "\", \"--speed\", \"50\"");
  }
  std::unique_ptr<Process> Up() {
    return LaunchProgram({"fsctl", "up", path_});
  }
  // "4711" of "tiny-a: started, pid 4711, log …".
  static pid_t StartedPid(const std::string& line) {
    const size_t at = line.find("pid ");
    EXPECT_NE(at, std::string::npos) << line;
    return at == std::string::npos ? 0 : atoi(line.c_str() + at + 4);
  }

  // Empty if it is not there.
  static std::string LineOf(const std::string& path, int number = 0) {
    std::ifstream file(path);
    std::string line;
    for (int i = 0; i <= number; ++i) std::getline(file, line);
    return line;
  }

  uint16_t port_ = process::FreePort();
  const std::string path_ = folder() + "/fleet.toml";
};

TEST_F(UpTest, EngineIsStartedUnderThePreloadAndAgainWhenItDies) {
  WriteFleet(Tinyserve());
  const auto daemon = StartDaemon();
  const auto up = Up();
  const pid_t first = StartedPid(up->ReadLine());
  EXPECT_THAT(up->ReadLine(), HasSubstr("(1 of 1 serving)"));
  EXPECT_GT(SlabsOf(first), 0u) << "it has a view";
  ASSERT_EQ(kill(first, SIGKILL), 0);
  std::string line = up->ReadLine();
  // The engine's death may take longer than the time until the next question.
  if (line.find("no longer answers") != std::string::npos) {
    line = up->ReadLine();
  }
  EXPECT_THAT(line, HasSubstr("ended with signal 9"));
  const pid_t second = StartedPid(up->ReadLine());
  EXPECT_NE(second, first);
  EXPECT_THAT(up->ReadLine(), HasSubstr("(1 of 1 serving)"));
  EXPECT_EQ(HttpClient(port_).Ask("GET", "/health").status, 200);
  EXPECT_EQ(up->EndBy(SIGINT), 0);
  EXPECT_NE(kill(second, 0), 0) << "ended with it";
}

TEST_F(UpTest, VersionNamesEachPartAndAnEngineWhoseShimWasReplaced) {
  const std::string shim = folder() + "/libfineserve_shim.so";
  const auto install = [&] {
    const std::string next = shim + ".new";
    std::filesystem::copy_file(EngineEnvironment().at("LD_PRELOAD"), next);
    std::filesystem::rename(next, shim);
  };
  install();
  WriteFleet(Tinyserve());
  const auto daemon = StartDaemon();
  Set("FINESERVE_SHIM", shim);
  const auto up = Up();
  up->ReadLine();  // started
  EXPECT_THAT(up->ReadLine(), HasSubstr("(1 of 1 serving)"));
  const Finished same = Fsctl({"version"});
  EXPECT_EQ(same.code, 0) << same.out;
  EXPECT_THAT(same.out, HasSubstr("\nfsctl up "));
  EXPECT_THAT(same.out, HasSubstr("\nfineserved "));
  EXPECT_THAT(same.out, HasSubstr("\nengine tiny-a "));
  install();
  const Finished former = Fsctl({"version"});
  EXPECT_EQ(former.code, 1);
  EXPECT_THAT(former.out, HasSubstr("(fsctl restart tiny-a)"));
}

TEST_F(UpTest, EngineThatHangsIsStartedAgain) {
  WriteFleet(Tinyserve(), "restart_after = 1\n");
  const auto daemon = StartDaemon();
  const auto up = Up();
  const pid_t first = StartedPid(up->ReadLine());
  EXPECT_THAT(up->ReadLine(), HasSubstr("(1 of 1 serving)"));
  ASSERT_EQ(kill(first, SIGSTOP), 0);
  EXPECT_THAT(up->ReadLine(), HasSubstr("no longer answers /health"));
  EXPECT_THAT(up->ReadLine(), HasSubstr("has not answered /health for 1 s"));
  EXPECT_THAT(up->ReadLine(), HasSubstr("ended with signal 9"));
  EXPECT_NE(StartedPid(up->ReadLine()), first);
  EXPECT_THAT(up->ReadLine(), HasSubstr("(1 of 1 serving)"));
}

TEST_F(UpTest, EngineThatHangsIsWrongInStatusUntilItAnswers) {
  WriteFleet(Tinyserve(), "restart_after = 0\n");
  const auto daemon = StartDaemon();
  const auto up = Up();
  const pid_t engine = StartedPid(up->ReadLine());
  EXPECT_THAT(up->ReadLine(), HasSubstr("(1 of 1 serving)"));
  ASSERT_TRUE(process::SignalOne(engine, SIGSTOP));
  EXPECT_THAT(up->ReadLine(), HasSubstr("no longer answers /health"));
  const Finished hangs = Fsctl({"status"});
  EXPECT_EQ(hangs.code, 1);
  EXPECT_THAT(hangs.out, HasSubstr("WRONG engine tiny-a"));
  EXPECT_THAT(hangs.out, HasSubstr(absl::StrCat("does not answer /health (pid ",
                                                engine, "): thread ")));
  EXPECT_THAT(hangs.out, HasSubstr("is stopped by a signal (SIGSTOP)"));
  EXPECT_THAT(hangs.out, HasSubstr("→ fsctl restart tiny-a\n"));
  ASSERT_TRUE(process::SignalOne(engine, SIGCONT));
  EXPECT_THAT(up->ReadLine(), HasSubstr("(1 of 1 serving)"));
  EXPECT_THAT(Fsctl({"status"}).out, Not(HasSubstr("does not answer")));
}

// SGLang generates a token before it answers.
TEST_F(UpTest, EngineWhoseAnswerToHealthTakesASecondServes) {
  WriteFleet(absl::StrCat(
      R"("python3", "-c", """
import http.server, time
class Health(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        time.sleep(1)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", )",
      port_, R"(), Health).serve_forever()
""")"));
  const auto daemon = StartDaemon();
  const auto up = Up();
  up->ReadLine();  // started
  EXPECT_THAT(up->ReadLine(), HasSubstr("(1 of 1 serving)"));
}

TEST_F(UpTest, EngineAtAnotherPortThanItsUrlIsSaidSo) {
  const auto daemon = StartDaemon();
  const std::string command = Tinyserve();
  const uint16_t port = port_;
  port_ = process::FreePort();  // of the url
  WriteFleet(command);
  const auto up = Up();
  up->ReadLine();  // started
  const std::string trouble = absl::StrCat(
      "listens at port ", port, ", as its command says, and its url is ",
      "http://127.0.0.1:", port_);
  EXPECT_THAT(up->ReadLine(), HasSubstr(trouble));
  const Finished status = Fsctl({"status"});
  EXPECT_THAT(status.out, HasSubstr(absl::StrCat("listens at port ", port)));
  EXPECT_NE(status.code, 0);
}

TEST_F(UpTest, EngineOutlivesAKilledFsctlAndTheNextOneAdoptsIt) {
  WriteFleet(Tinyserve());
  const auto daemon = StartDaemon();
  const auto killed = Up();
  const pid_t engine = StartedPid(killed->ReadLine());
  EXPECT_THAT(killed->ReadLine(), HasSubstr("serving after"));
  killed->EndBy(SIGKILL);
  EXPECT_EQ(HttpClient(port_).Ask("GET", "/health").status, 200);
  const auto next = Up();
  EXPECT_EQ(next->ReadLine(), absl::StrCat("tiny-a: adopted, pid ", engine));
  EXPECT_THAT(next->ReadLine(), HasSubstr("(1 of 1 serving)"));
  EXPECT_EQ(next->EndBy(SIGTERM), 0);
  EXPECT_TRUE(Eventually([&] { return kill(engine, 0) != 0; }));
}

TEST_F(UpTest, EngineThatCannotStartIsNamedWithItsLog) {
  WriteFleet("\"/bin/sh\", \"-c\", \"echo no weights; exit 3\"");
  const auto daemon = StartDaemon();
  const auto up = Up();
  up->ReadLine();
  const std::string line = up->ReadLine();
  EXPECT_THAT(line, HasSubstr("tiny-a: ended with code 3, log "));
  EXPECT_THAT(line, HasSubstr("restarting in 1 s"));
  const size_t from = line.find("log ") + 4;
  EXPECT_EQ(LineOf(line.substr(from, line.find(';') - from)), "no weights");
  EXPECT_EQ(up->EndBy(SIGTERM), 0);
}

TEST_F(UpTest, CommandThatIsNotThereIsSaidAtOnce) {
  WriteFleet("\"no-such-engine\", \"serve\"");
  const auto daemon = StartDaemon();
  const Finished up = Fsctl({"up", path_});
  EXPECT_EQ(up.code, 2);
  EXPECT_THAT(up.err, HasSubstr("tiny-a: no-such-engine: command not found"));
}

TEST_F(UpTest, CommandThatTurnsOutNotToBeThereIsGivenUp) {
  WriteFleet("\"/bin/sh\", \"-c\", \"exec no-such-engine\"");
  const auto daemon = StartDaemon();
  const auto up = Up();
  up->ReadLine();
  const std::string line = up->ReadLine();
  EXPECT_THAT(line, HasSubstr("ended with code 127"));
  EXPECT_THAT(line, HasSubstr("it is not started again"));
  EXPECT_EQ(up->EndBy(SIGTERM), 0);
}

TEST_F(UpTest, MissingFolderOfLogsIsMade) {
  WriteFleet(Tinyserve());
  const auto daemon = StartDaemon();
  const std::string logs = folder() + "/var/log";
  Process up({Program("fsctl"), "up", path_, "--logs", logs}, environment());
  EXPECT_THAT(up.ReadLine(), HasSubstr("log " + logs + "/tiny-a.log"));
  EXPECT_THAT(up.ReadLine(), HasSubstr("serving after"));
  EXPECT_EQ(access((logs + "/tiny-a.log").c_str(), F_OK), 0);
  EXPECT_EQ(up.EndBy(SIGTERM), 0);
  const Finished no =
      Fsctl({"up", path_, "--logs", logs + "/tiny-a.log/deeper"});
  EXPECT_EQ(no.code, 2);
  EXPECT_THAT(no.err, HasSubstr("--logs " + logs));
}

TEST_F(UpTest, EngineWhoseAddressIsTakenIsNotStarted) {
  WriteFleet(Tinyserve());
  const auto daemon = StartDaemon();
  const auto first = Up();
  first->ReadLine();
  EXPECT_THAT(first->ReadLine(), HasSubstr("serving after"));
  const std::string copy = folder() + "/copy.toml";
  std::filesystem::copy_file(path_, copy);
  const Finished second = Fsctl({"up", copy});
  EXPECT_EQ(second.code, 1);
  EXPECT_EQ(second.out, "");
  EXPECT_THAT(second.err,
              HasSubstr(absl::StrCat(
                  "engine tiny-a: another program listens at http://127.0.0.1:",
                  port_)));
  EXPECT_EQ(first->EndBy(SIGTERM), 0);
}

// NVIDIA's program does not run without a GPU, so a stand-in logs its input and
// knows whether it runs.
TEST_F(UpTest, MpsRunsForTheEnginesAsLongAsTheyDo) {
  const std::string reported = folder() + "/told";
  const std::string program = folder() + "/nvidia-cuda-mps-control";
  std::ofstream(program) << "#!/bin/sh\ncd $CUDA_MPS_PIPE_DIRECTORY\n"
                         << "if [ \"$1\" = -d ]; then touch up\n"
                         << "elif [ ! -e up ]; then exit 1\nfi\n"
                         << "read line; echo $1 $line >> " << reported << "\n";
  ASSERT_EQ(chmod(program.c_str(), 0700), 0);
  Set("PATH", folder() + ":" + getenv("PATH"));
  WriteFleet(
      "\"/bin/sh\", \"-c\", \"echo $CUDA_MPS_PIPE_DIRECTORY at "
      "$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; exec sleep 3600\"");
  const auto daemon = StartDaemon();
  Process up({Program("fsctl"), "up", "--mps", path_}, environment());
  const std::string line = up.ReadLine();
  const std::string log = line.substr(line.find("log ") + 4);
  EXPECT_TRUE(Eventually([&] { return !LineOf(log).empty(); }));
  EXPECT_THAT(LineOf(log), HasSubstr("/mps at 100"));
  EXPECT_EQ(LineOf(reported), "-d");
  EXPECT_EQ(up.EndBy(SIGTERM), 0);
  EXPECT_EQ(LineOf(reported, 1), "quit");
}

TEST_F(UpTest, MpsThatIsNotInstalledIsSaidSo) {
  WriteFleet(Tinyserve());
  const auto daemon = StartDaemon();
  const Finished up = Fsctl({"up", "--mps", path_});
  EXPECT_EQ(up.code, 1);
  EXPECT_THAT(up.err, HasSubstr("nvidia-cuda-mps-control is not installed"));
}

TEST_F(UpTest, WithoutADaemonNothingIsStarted) {
  WriteFleet(Tinyserve());
  const Finished up = Fsctl({"up", path_});
  EXPECT_EQ(up.code, 3);
  EXPECT_THAT(up.err, HasSubstr("no fineserved is running"));
  EXPECT_THAT(up.err, HasSubstr("waiting 10 s"));
}

TEST_F(UpTest, DaemonThatStartsAtTheSameTimeIsWaitedFor) {
  WriteFleet(Tinyserve());
  const auto up = Up();
  EXPECT_TRUE(Eventually(
      [&] { return up->Stderr().find("waiting 10 s") != std::string::npos; }));
  const auto daemon = StartDaemon();
  EXPECT_THAT(up->ReadLine(), HasSubstr("tiny-a: started"));
  EXPECT_EQ(up->EndBy(SIGTERM), 0);
}

TEST_F(UpTest, DryRunShowsWhatIsFilledInAndStartsNothing) {
  std::ofstream(path_)
      << "[[model]]\nname = \"tiny\"\nslo_ttft_ms = 3000\n"
      << "[[engine]]\nengine = \"vllm\"\nmodel = \"tiny\"\n"
      << "checkpoint = \"Qwen/Qwen3-8B\"\nprogram = \"/bin/false\"\n";
  const Finished up = Fsctl({"up", path_, "--dry-run"});
  EXPECT_EQ(up.code, 0) << up.err;
  EXPECT_THAT(up.out, HasSubstr("/bin/false serve Qwen/Qwen3-8B --host"));
  EXPECT_THAT(up.out, HasSubstr("--max-num-seqs 256"));
}

TEST_F(UpTest, FleetWithoutACommandIsRefusedWithTheFix) {
  WriteFleet("");
  const auto daemon = StartDaemon();
  const Finished up = Fsctl({"up", path_});
  EXPECT_EQ(up.code, 2);
  EXPECT_THAT(up.err, HasSubstr("no [[engine]] has a command; add one"));
}

}  // namespace
}  // namespace fineserve::integration
