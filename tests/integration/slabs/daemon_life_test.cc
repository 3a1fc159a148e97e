// fineserved as its operator sees it, and fsctl's view of it.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "daemon/base/unix_socket.h"
#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

using DaemonLifeTest = Site;

TEST_F(DaemonLifeTest, EndsCleanlyOnSigterm) {
  const auto daemon = StartDaemon();
  const std::string socket = SocketPath();
  const auto engine = StartEngine("8MiB");
  EXPECT_EQ(daemon->EndBy(SIGTERM), 0);
  EXPECT_NE(access(socket.c_str(), F_OK), 0);
  EXPECT_THAT(daemon->Stderr(), HasSubstr("4 slabs"));
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
}

TEST_F(DaemonLifeTest, StartsAgainOverTheSocketOfAKilledOne) {
  const auto daemon = StartDaemon();
  daemon->EndBy(SIGKILL);
  const auto next = StartDaemon();
  EXPECT_EQ(Table().daemon_pid, static_cast<uint32_t>(next->pid()));
}

TEST_F(DaemonLifeTest, SecondDaemonOnOneGpuIsRefusedNamingTheFirst) {
  const auto daemon = StartDaemon();
  const Finished second =
      RunToEnd({Program("fineserved"), "--gpu", "emulated", "--pool", "64MiB"},
               environment());
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.err, HasSubstr("pid " + std::to_string(daemon->pid()) +
                                    " serves this GPU already"));
}

// Two pools on one GPU would starve each other, wherever their sockets are.
TEST_F(DaemonLifeTest, SecondDaemonIsRefusedInAnotherRuntimeFolderToo) {
  const auto daemon = StartDaemon();
  const std::string serves =
      "pid " + std::to_string(daemon->pid()) + " of user ";
  const std::vector<std::string> elsewhere = {Program("fineserved"),
                                              "--gpu",
                                              "emulated",
                                              "--pool",
                                              "64MiB",
                                              "--runtime-dir",
                                              folder() + "/another"};
  const Finished second = RunToEnd(elsewhere, environment());
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.err, HasSubstr(serves));
  std::vector<std::string> dry = elsewhere;
  dry.push_back("--dry-run");
  const Finished planned = RunToEnd(dry, environment());
  EXPECT_EQ(planned.code, 1);
  EXPECT_THAT(planned.err, HasSubstr(serves));
}

TEST_F(DaemonLifeTest, DryRunSaysThatAPoolDoesNotFit) {
  const auto run = [&](const char* pool) {
    return RunToEnd({Program("fineserved"), "--gpu", "emulated", "--pool", pool,
                     "--dry-run"},
                    environment());
  };
  EXPECT_EQ(run("512MiB").code, 0);
  const Finished large = run("1TiB");
  EXPECT_EQ(large.code, 1);
  EXPECT_THAT(large.err, HasSubstr("a pool of 1 TiB does not fit"));
}

// A GPU's number is the one that nvidia-smi shows, however CUDA counts.
TEST_F(DaemonLifeTest, NumberedGpuIsTheOneAtThatPlaceOnTheBus) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "needs two GPUs of one kind";
  Set("EMUCUDA_DEVICES", "2");
  const auto gpu = [&] {
    const std::vector<std::string> plan = {Program("fineserved"),
                                           "--gpu",
                                           "emulated:0",
                                           "--pool",
                                           "64MiB",
                                           "--dry-run"};
    const Finished planned = RunToEnd(plan, environment());
    EXPECT_EQ(planned.code, 0) << planned.err;
    EXPECT_THAT(planned.out, HasSubstr("GPU-"));
    return planned.out.substr(0, planned.out.find(','));
  };
  const std::string first = gpu();
  Set("EMUCUDA_ORDER", "reversed");
  EXPECT_EQ(gpu(), first);
}

// Otherwise systemd would start the daemon again at once.
TEST_F(DaemonLifeTest, ParentThatKeepsPoolsLearnsThatNoneIsKept) {
  const auto daemon = StartDaemon();
  Process::Environment kept = environment();
  kept["NOTIFY_SOCKET"] = folder() + "/nobody-listens";
  kept["FDSTORE"] = "100";
  const std::vector<std::string> command = {Program("fineserved"), "--gpu",
                                            Gpu(), "--pool", "64MiB"};
  EXPECT_EQ(RunToEnd(command, kept).code, 69);
  EXPECT_EQ(RunToEnd(command, environment()).code, 1);
}

struct Mode {
  const char* name;
  const char* variable;
  const char* value;
  const char* says;
};
class ModeTest : public Site, public ::testing::WithParamInterface<Mode> {};

TEST_P(ModeTest, GpuThatCannotBeSharedIsRefusedInOneLineWithTheCure) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "the emulated device's modes";
  Set(GetParam().variable, GetParam().value);
  const Finished run =
      RunToEnd({Program("fineserved"), "--gpu", "emulated", "--pool", "64MiB"},
               environment());
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, HasSubstr(GetParam().says));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
}

INSTANTIATE_TEST_SUITE_P(
    Every, ModeTest,
    ::testing::Values(
        Mode{"Exclusive", "EMUCUDA_COMPUTE_MODE", "exclusive", "-c DEFAULT"},
        Mode{"Mig", "EMUCUDA_MIG", "instance", "-mig 0"},
        Mode{"VirtualGpu", "EMUCUDA_VMM", "off", "virtual memory management"}),
    [](const auto& param) { return param.param.name; });

TEST_F(DaemonLifeTest, ConfidentialComputingIsWarnedOf) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "the emulated device's modes";
  Set("EMUCUDA_CONFIDENTIAL", "on");
  const auto daemon = StartDaemon();
  EXPECT_THAT(daemon->Stderr(), HasSubstr("confidential computing is on"));
}

TEST_F(DaemonLifeTest, TellsSystemdWhenItIsReady) {
  const std::string path = folder() + "/notify";
  const driver::Descriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(base::BindUnix(fd.get(), path));
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  const auto daemon = StartDaemon();
  unsetenv("NOTIFY_SOCKET");
  const auto next = [&] {
    char message[256] = {};
    EXPECT_GT(recv(fd.get(), message, sizeof(message) - 1, 0), 0);
    return std::string(message);
  };
  EXPECT_EQ(next(), "READY=1");
  daemon->Signal(SIGTERM);
  EXPECT_EQ(next(), "STOPPING=1");
}

struct Mistake {
  const char* name;
  std::string arguments;
  const char* file;  // content of fineserve.toml, or null
  const char* says;
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

class MistakeTest : public Site,
                    public ::testing::WithParamInterface<Mistake> {};

TEST_P(MistakeTest, IsOneLineWithTheFixAndExit2) {
  const Mistake& mistake = GetParam();
  std::string arguments = mistake.arguments;
  if (mistake.file != nullptr) {
    std::ofstream(folder() + "/fineserve.toml") << mistake.file;
    arguments += " --config " + folder() + "/fineserve.toml";
  }
  const Finished run =
      RunToEnd(With({Program("fineserved")}, Words(arguments)), environment());
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr(mistake.says));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
}

INSTANTIATE_TEST_SUITE_P(
    Every, MistakeTest,
    ::testing::Values(
        Mistake{"UnknownFlag", "--bogus", nullptr, "fineserved --help"},
        Mistake{"NoPool", "--gpu emulated", nullptr, "--pool 16GiB"},
        Mistake{"BadSize", "--gpu emulated --pool 1gig", nullptr,
                "like 512MiB"},
        Mistake{"WrongGpu", "--gpu emulated:7 --pool 64MiB", nullptr,
                "there is 0 (GPU-"},
        Mistake{"SlabThatDoesNotFit", "--gpu emulated --pool 64MiB --slab 3MiB",
                nullptr, "use 4 MiB"},
        Mistake{"UnknownKey", "--gpu emulated",
                "[pool]\nsize = \"64MiB\"\ncolour = 1\n",
                "fineserve.toml:3: unknown key \"colour\""},
        Mistake{"BadSizeInFile", "--gpu emulated",
                "[pool]\nsize = \"64 MegaBytes\"\n",
                "fineserve.toml:2: size: bad size"}),
    [](const auto& param) { return param.param.name; });

TEST_F(DaemonLifeTest, DryRunShowsThePlanAndTakesNothing) {
  const Finished plan =
      RunToEnd({Program("fineserved"), "--gpu", "emulated", "--pool", "64MiB",
                "--slab", "4MiB", "--dry-run"},
               environment());
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("16 slabs of 4 MiB"));
  EXPECT_NE(access((folder() + "/run").c_str(), F_OK), 0);
}

TEST_F(DaemonLifeTest, FsctlShowsSlabsAndEngines) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB");
  const Finished slabs = Fsctl({"slabs", "--json"});
  ASSERT_EQ(slabs.code, 0) << slabs.err;
  EXPECT_EQ(JsonInt(slabs.out, "/slab_count"), int{kSlabs});
  EXPECT_EQ(JsonInt(slabs.out, "/states/full/slabs"), 4);
  const Finished engines = Fsctl({"engines"});
  EXPECT_THAT(engines.out,
              HasSubstr("stock_engine-" + std::to_string(engine->pid())));
  EXPECT_THAT(Fsctl({"slabs"}).out, HasSubstr("full   1 stock_engine-"));
}

TEST_F(DaemonLifeTest, FsctlReadsADeadDaemonsTableThroughAnEngine) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB");
  daemon->EndBy(SIGKILL);
  const Finished slabs = Fsctl({"slabs"});
  EXPECT_EQ(slabs.code, 0) << slabs.err;
  EXPECT_THAT(slabs.out + slabs.err,
              HasSubstr("read through pid " + std::to_string(engine->pid())));
}

TEST_F(DaemonLifeTest, ExplainNamesEachDecisionAndItsReason) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB");
  const Finished text = Fsctl({"explain", std::to_string(engine->pid())});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("8 MiB"));
  EXPECT_THAT(text.out, HasSubstr("declared"));
  const Finished json =
      Fsctl({"explain", std::to_string(engine->pid()), "--json"});
  EXPECT_TRUE(IsJson(json.out)) << json.out;
}

TEST_F(DaemonLifeTest, RunStartsAnEngineOnThisDaemon) {
  const auto daemon = StartDaemon();
  const Finished run = Fsctl({"run", "--name", "llama", "--kv-size", "8MiB",
                              "--", Program("stock_engine"), "--kv", "8MiB"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("ready"));
  EXPECT_THAT(daemon->Stderr(), HasSubstr("(llama): pid"));
  EXPECT_EQ(Table().counters.leases_granted, 2u);
}

TEST_F(DaemonLifeTest, DoctorIsContentWithAServingDaemon) {
  const auto daemon = StartDaemon();
  const Finished doctor = Fsctl({"doctor"});
  EXPECT_EQ(doctor.code, 0) << doctor.out << doctor.err;
  if (!OnEmulatedGpu()) return;
  EXPECT_THAT(doctor.out, HasSubstr("off on 1 GPU(s)")) << "MIG";
}

}  // namespace
}  // namespace fineserve::integration
