// Tests child processes, ports and folders, on which other tests rely.

#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tools/lab/process/child_process.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::process {
namespace {

// Returns everything that is written until every process that could write has
// ended.
std::string ReadAll(const driver::Descriptor& fd) {
  std::string all;
  char bytes[256];
  ssize_t n;
  while ((n = read(fd.get(), bytes, sizeof(bytes))) > 0) {
    all.append(bytes, static_cast<size_t>(n));
  }
  return all;
}

// Returns what a shell prints on standard output when it runs `line`.
std::string OutputOf(const std::string& line, const Environment& more = {}) {
  Pipe pipe = MakePipe();
  ChildProcess shell(Command{.words = {"sh", "-c", line},
                             .environment = more,
                             .out = pipe.write_end.get()});
  pipe.write_end.Reset();
  return ReadAll(pipe.read_end);
}

int CodeOf(const std::string& line) {
  return ChildProcess(Command{.words = {"sh", "-c", line}}).Wait();
}

TEST(ChildProcessTest, EndIsItsExitCodeOrMinusItsSignal) {
  EXPECT_EQ(CodeOf("exit 0"), 0);
  EXPECT_EQ(CodeOf("exit 3"), 3);
  EXPECT_EQ(CodeOf("kill -TERM $$"), -SIGTERM);
}

TEST(ChildProcessTest, EnvironmentIsOnTopOfOurs) {
  setenv("FINESERVE_PROCESS_TEST", "ours", 1);
  const std::string line = "echo $FINESERVE_PROCESS_TEST $MORE";
  EXPECT_EQ(OutputOf(line), "ours\n");
  EXPECT_EQ(OutputOf(line, {{"MORE", "a b"}}), "ours a b\n");
  EXPECT_EQ(OutputOf(line, {{"FINESERVE_PROCESS_TEST", "its"}}), "its\n");
  unsetenv("FINESERVE_PROCESS_TEST");
}

TEST(ChildProcessTest, ProgramIsFoundOnThePathOfItsOwnEnvironment) {
  const TemporaryFolder folder;
  const std::string program = folder.path() + "/fineserve-here";
  std::ofstream(program) << "#!/bin/sh\nexit 5\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  ChildProcess child(Command{.words = {"fineserve-here"},
                             .environment = {{"PATH", folder.path()}}});
  EXPECT_EQ(child.Wait(), 5);
}

TEST(ChildProcessTest, ProgramThatIsMissingSaysSoAndExitsWith127) {
  Pipe pipe = MakePipe();
  ChildProcess child(
      Command{.words = {"/none/such"}, .err = pipe.write_end.get()});
  pipe.write_end.Reset();
  EXPECT_EQ(ReadAll(pipe.read_end), "/none/such: No such file or directory\n");
  EXPECT_EQ(child.Wait(), 127);
}

TEST(ChildProcessTest, ForkExitsWithWhatItsBodyReturns) {
  const int here = 7;
  ChildProcess child([&] { return here; });
  EXPECT_EQ(child.Wait(), 7);
  EXPECT_EQ(child.Wait(), 7) << "the second Wait";
}

TEST(ChildProcessTest, ObjectThatGoesTakesItsChildWithIt) {
  pid_t pid;
  {
    ChildProcess child([] { return pause(); });
    pid = child.pid();
    EXPECT_TRUE(child.alive());
    const ChildProcess moved(std::move(child));
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_NE(kill(pid, 0), 0);
}

TEST(ChildProcessTest, EndSignalLetsItsProgramCleanUp) {
  const TemporaryFolder folder;
  const std::string cleaned = folder.path() + "/cleaned";
  {
    Pipe pipe = MakePipe();
    const ChildProcess child(
        Command{.words = {"sh", "-c",
                          "trap 'touch " + cleaned +
                              "; exit' TERM; echo; while :; do sleep 0.01; "
                              "done"},
                .out = pipe.write_end.get(),
                .end_signal = SIGTERM});
    char byte;
    ASSERT_EQ(read(pipe.read_end.get(), &byte, 1), 1) << "the trap is set";
  }
  EXPECT_TRUE(std::filesystem::exists(cleaned));
}

TEST(ChildProcessTest, WaitIsBoundedWhereItIsAskedToBe) {
  ChildProcess child([] { return pause(); });
  EXPECT_FALSE(child.EndsWithin(std::chrono::milliseconds(1)));
  child.Signal(SIGKILL);
  EXPECT_TRUE(child.EndsWithin(kPatience));
  EXPECT_EQ(child.Wait(), -SIGKILL);
}

TEST(ChildProcessTest, SignalReachesAGroupsEveryProcess) {
  Pipe pipe = MakePipe();
  ChildProcess shell(Command{.words = {"sh", "-c", "sleep 1000 & wait"},
                             .out = pipe.write_end.get(),
                             .own_group = true});
  pipe.write_end.Reset();
  shell.Signal(SIGKILL);
  EXPECT_EQ(ReadAll(pipe.read_end), "") << "a process that could write is left";
}

TEST(FreePortTest, PortsAreGivenOnceAndLieOutsideTheKernelsRange) {
  unsigned low = 0, high = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  std::set<unsigned> ports;
  for (int i = 0; i < 100; ++i) ports.insert(FreePort());
  EXPECT_EQ(ports.size(), 100u);
  for (const unsigned port : ports) {
    EXPECT_TRUE(port < low || port > high) << port;
  }
}

TEST(TemporaryFolderTest, IsEmptyAndGoesWithWhatIsInIt) {
  std::string path;
  {
    TemporaryFolder folder;
    path = folder.path();
    EXPECT_TRUE(std::filesystem::is_empty(path));
    std::filesystem::create_directories(path + "/a/b");
    std::ofstream(path + "/a/file") << "x";
    const TemporaryFolder moved(std::move(folder));
    EXPECT_TRUE(std::filesystem::exists(path + "/a/file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(GpuInLogTest, GpuOfTheSocketThatIsServed) {
  EXPECT_EQ(GpuInLog("serving 16 slabs on /run/GPU-1a.sock\nmore"), "GPU-1a");
  EXPECT_EQ(GpuInLog("no GPU found"), "");
  EXPECT_EQ(GpuInLog("serving on /run/GPU-1a"), "");
}

}  // namespace
}  // namespace fineserve::process
