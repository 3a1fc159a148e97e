// Engines and daemons die, and the others notice nothing.
#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "tests/integration/site.h"
#include "tools/lab/process/random_seed.h"

namespace fineserve::integration {
namespace {

using abi::SlabState;
using ::testing::HasSubstr;
using ::testing::Not;

using DeathTest = Site;

TEST_F(DeathTest, KilledEnginesSlabsComeBackAndTheOtherGoesOn) {
  const auto daemon = StartDaemon();
  const auto a = StartEngine("16MiB");
  const auto b = StartEngine("8MiB", {"--seed", "5"});
  a->EndBy(SIGKILL);
  EXPECT_TRUE(EventuallyFree(kSlabs - 4));
  EXPECT_THAT(b->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(daemon->Stderr(), HasSubstr("8 slabs are quarantined"));
  const auto c = StartEngine("24MiB");  // and finds zeros
  EXPECT_EQ(SlabsOf(c->pid()), 12u);
  EXPECT_THAT(b->Ask("verify"), HasSubstr("ok verified"));
}

// The child was forked without libc's knowledge, so it keeps the engine's
// socket and the device. The pidfd reports the engine's end, but the driver
// does not.
TEST_F(DeathTest, SlabsStayQuarantinedWhileAForkedChildHoldsTheDevice) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("16MiB");
  const std::string answer = engine->Ask("fork");
  ASSERT_THAT(answer, HasSubstr("ok child="));
  const pid_t child = atoi(answer.c_str() + strlen("ok child="));
  engine->EndBy(SIGKILL);
  EXPECT_TRUE(
      Eventually([&] { return SlabsIn(SlabState::kQuarantined) == 8; }));
  // The daemon asks the driver again and again, and each answer still names the
  // engine.
  for (int i = 0; i < 150; ++i) {
    Breathe();
    EXPECT_EQ(SlabsIn(SlabState::kQuarantined), 8u);
  }
  kill(child, SIGKILL);
  EXPECT_TRUE(EventuallyFree(kSlabs));
}

// Each program of a process finds the slabs free that the program before it
// held.
TEST_F(DeathTest, SlabsOfAProgramThatAnotherReplacedComeBack) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("24MiB");
  for (int image = 2; image < 6; ++image) {
    EXPECT_EQ(SlabsOf(engine->pid()), 12u);
    engine->Tell("exec");
    EXPECT_TRUE(EventuallyFree(kSlabs)) << "image " << image;
    engine->Tell("go");
    EXPECT_EQ(engine->ReadLineWith("kv zero"), "kv zero: yes");
    EXPECT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
  }
}

// The driver has one pid for both programs, so the next program delays its
// context.
TEST_F(DeathTest, ProgramThatStartsAgainAtOnceFindsItsFormerSlabsFree) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("24MiB");
  for (int image = 2; image < 8; ++image) {
    engine->Tell("exec now");
    EXPECT_EQ(engine->ReadLineWith("kv zero"), "kv zero: yes")
        << "image " << image << ": " << engine->Stderr();
    EXPECT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
    EXPECT_EQ(SlabsOf(engine->pid()), 12u);
    EXPECT_EQ(SlabsIn(SlabState::kQuarantined), 0u);
  }
}

TEST_F(DeathTest, ReplacedProgramsSlabsAreQuarantinedWhileItsWorkGoesOn) {
  const auto daemon = StartDaemon();
  const auto engine =
      StartEngine("16MiB", {}, {{"EMUCUDA_LINGER_MS", kUntilEndLingering}});
  ASSERT_THAT(engine->Ask("queue"), HasSubstr("ok queued"));
  engine->Tell("exec");
  EXPECT_TRUE(
      Eventually([&] { return SlabsIn(SlabState::kQuarantined) == 8; }));
  for (int i = 0; i < 50; ++i) {
    Breathe();
    ASSERT_EQ(SlabsIn(SlabState::kQuarantined), 8u);
  }
  EndLingering();
  EXPECT_TRUE(EventuallyFree(kSlabs));
}

// A process list that says nothing about the engines, and the daemon's
// complaint about it.
struct UselessList {
  std::string name;
  Process::Environment environment;
  std::string complaint;
};
class UselessListTest : public Site,
                        public ::testing::WithParamInterface<UselessList> {};

// That the list lacks a dead engine says nothing about the engine's kernels.
TEST_P(UselessListTest, EndsNoQuarantine) {
  for (const auto& [name, value] : GetParam().environment) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  const auto daemon = StartDaemon();
  for (const auto& [name, value] : GetParam().environment) {
    unsetenv(name.c_str());
  }
  const auto engine = StartEngine("16MiB");
  const Finished doctor = Fsctl({"doctor"});
  EXPECT_NE(doctor.code, 0);
  EXPECT_THAT(doctor.out, HasSubstr("--pid=host"));
  EXPECT_THAT(daemon->Stderr(), HasSubstr(GetParam().complaint));
  engine->EndBy(SIGKILL);
  const uint64_t before = Table().counters.process_lists_useless;
  EXPECT_TRUE(Eventually(
      [&] { return Table().counters.process_lists_useless >= before + 5; }));
  EXPECT_EQ(SlabsIn(SlabState::kQuarantined), 8u);
}

INSTANTIATE_TEST_SUITE_P(
    Lists, UselessListTest,
    ::testing::Values(UselessList{"OfAnotherPidNamespace",
                                  {{"EMUCUDA_NVML_PID_OFFSET", "100000000"}},
                                  "its list lacks this daemon"},
                      UselessList{
                          "ThatIsForbidden",
                          {{"EMUCUDA_NVML_LIST_ERROR", "4"}},
                          "cannot list GPU processes: nvmlDeviceGetCompute"},
                      UselessList{"ThatIsFull",
                                  {{"EMUCUDA_NVML_STRANGERS", "1000"},
                                   {"EMUCUDA_NVML_MOST_LISTED", "950"}},
                                  "lists 950 processes and may omit others"}),
    [](const auto& test) { return test.param.name; });

// In a separate pid namespace, a daemon finds itself in the driver's list,
// which omits processes that the daemon cannot see. It must not serve those
// processes either.
TEST_F(DeathTest, EngineThatTheDaemonCannotSeeGetsNoSlab) {
  if (geteuid() != 0) GTEST_SKIP() << "no pid namespaces without root";
  Process daemon(
      {"unshare", "--pid", "--fork", "--kill-child", Program("fineserved"),
       "--gpu", Gpu(), "--pool", "64MiB", "--slab", "4MiB"},
      environment());
  AwaitDaemon(&daemon);
  const auto engine = StartEngineWithoutDaemon("16MiB");  // finds no zeros
  EXPECT_THAT(daemon.Stderr(), HasSubstr("in another pid namespace"));
  EXPECT_THAT(daemon.Stderr(), Not(HasSubstr("cannot list GPU processes")));
}

// The device still writes into a dead engine's KV for a while, and the driver
// lists the engine for that long. A daemon that took the engine's exit for the
// end of its work would lease the slabs to another engine, whose bytes would
// then change.
TEST_F(DeathTest, SlabsStayQuarantinedWhileTheDeviceStillWritesIntoThem) {
  if (getenv("FINESERVE_TEST_GPU") != nullptr) {
    GTEST_SKIP() << "only the emulated device lingers to order";
  }
  const auto daemon = StartDaemon();
  const auto engine =
      StartEngine("16MiB", {}, {{"EMUCUDA_LINGER_MS", kUntilEndLingering}});
  ASSERT_THAT(engine->Ask("queue"), HasSubstr("ok queued"));
  engine->EndBy(SIGKILL);
  // One engine takes the other half of the pool, and nothing is left for
  // another engine.
  const auto early = StartEngine("16MiB", {"--seed", "3"});
  EXPECT_EQ(SlabsOf(early->pid()), 8u);
  const auto greedy = LaunchEngine("16MiB", {"--seed", "4"});
  EXPECT_THAT(greedy->ReadLine(), HasSubstr("OUT_OF_MEMORY"));
  EXPECT_TRUE(Lingers());
  EXPECT_EQ(SlabsIn(SlabState::kQuarantined), 8u);
  EndLingering();
  bool held = true;
  for (;;) {
    const uint32_t quarantined = SlabsIn(SlabState::kQuarantined);
    if (!Lingers()) break;  // then what we saw may be of a moment after
    held = held && quarantined == 8;
    Breathe();
  }
  EXPECT_TRUE(held);
  EXPECT_THAT(early->Ask("verify"), HasSubstr("ok verified"));
  if (greedy->alive()) {  // its KV is the dead engine's: see what became of it
    EXPECT_THAT(greedy->Ask("verify"), HasSubstr("ok verified"));
  }
  EXPECT_TRUE(EventuallyFree(8));
  const auto late = StartEngine("16MiB", {"--seed", "5"});  // and finds zeros
  EXPECT_EQ(SlabsOf(late->pid()), 8u);
}

// Under MPS, the driver's list names the server but not its clients.
class MpsDeathTest : public Site {
 protected:
  MpsDeathTest() {
    std::filesystem::create_symlink("/bin/sleep", server_path_);
    server_ = std::make_unique<Process>(
        std::vector<std::string>{server_path_, "3600"}, environment());
    client_["EMUCUDA_MPS_SERVER"] = std::to_string(server_->pid());
  }
  // Kills an engine of 8 slabs while the device still writes into them.
  void KillClient() {
    auto client = client_;
    client["EMUCUDA_LINGER_MS"] = kUntilEndLingering;
    const auto engine = StartEngine("16MiB", {}, client);
    ASSERT_THAT(engine->Ask("queue"), HasSubstr("ok queued"));
    engine->EndBy(SIGKILL);
    EXPECT_TRUE(
        Eventually([&] { return SlabsIn(SlabState::kQuarantined) == 8; }));
  }
  // Expects that the quarantine lasts while the daemon asks the driver again
  // and again.
  void ExpectQuarantineLasts() {
    for (int i = 0; i < 50; ++i) {
      Breathe();
      ASSERT_EQ(SlabsIn(SlabState::kQuarantined), 8u);
    }
  }

  // Installs a script that the daemon takes for MPS's control program. It
  // records each question, and obeys once `ended` exists.
  void InstallControl() {
    const std::string bin = folder() + "/bin";
    std::filesystem::create_directory(bin);
    const std::string control = bin + "/nvidia-cuda-mps-control";
    std::ofstream(control) << "#!/bin/sh\ncat >> " << folder()
                           << "/asked\ntest -e " << folder() << "/ended\n";
    std::filesystem::permissions(control, std::filesystem::perms::owner_all);
    Set("PATH", bin + ":" + getenv("PATH"));
  }
  void LetServerEndWork() { std::ofstream(folder() + "/ended").close(); }
  std::string Asked() const {
    std::ifstream file(folder() + "/asked");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  Process::Environment client_;

 private:
  const std::string server_path_ = folder() + "/nvidia-cuda-mps-server";
  std::unique_ptr<Process> server_;
};

TEST_F(MpsDeathTest, ClientsSlabsStayQuarantinedUntilItsWorkHasEnded) {
  const auto daemon = StartDaemon();
  KillClient();
  ExpectQuarantineLasts();
  EndLingering();
  EXPECT_TRUE(EventuallyFree(kSlabs));
}

TEST_F(MpsDeathTest, DaemonThatIsAClientItselfKnowsItsEnginesEnds) {
  Set("EMUCUDA_MPS_SERVER", client_["EMUCUDA_MPS_SERVER"]);
  InstallControl();
  const auto daemon = StartDaemon();
  KillClient();
  ExpectQuarantineLasts();
  EndLingering();
  LetServerEndWork();
  EXPECT_TRUE(EventuallyFree(kSlabs));
}

// The work of a killed client belongs to its server, and the lists do not name
// it.
TEST_F(MpsDeathTest, UnlistedWorkIsWaitedForUntilTheServerHasEndedIt) {
  Set("EMUCUDA_MPS_WORK", "survives");
  InstallControl();
  const auto daemon = StartDaemon();
  const auto survivor = StartEngine("4MiB", {}, client_);
  KillClient();
  ExpectQuarantineLasts();
  EXPECT_TRUE(Eventually([&] { return !Asked().empty(); }));
  EXPECT_THAT(Asked(), HasSubstr("terminate_client " +
                                 client_["EMUCUDA_MPS_SERVER"] + " "));
  EndLingering();
  ExpectQuarantineLasts();
  LetServerEndWork();
  EXPECT_TRUE(EventuallyFree(kSlabs - 2));
}

TEST_F(MpsDeathTest, EndOfTheServerIsTheEndOfItsClientsWork) {
  Set("EMUCUDA_MPS_WORK", "survives");
  const auto daemon = StartDaemon();
  KillClient();
  ExpectQuarantineLasts();
  EndLingering();  // with its last client the server leaves the list
  EXPECT_TRUE(EventuallyFree(kSlabs));
}

TEST_F(DeathTest, MemoryIsReplacedWhenAnEngineMayHaveDiedOfABadPage) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB");
  const auto other = StartEngine("8MiB", {"--seed", "3"});
  std::ofstream(environment().at("EMUCUDA_DIR") + "/gpu0.errors") << "x";
  const uint64_t before = Table().counters.slabs_added;
  engine->EndBy(SIGKILL);
  EXPECT_TRUE(
      Eventually([&] { return Table().counters.slabs_added == before + 4; }));
  EXPECT_TRUE(EventuallyFree(kSlabs - 4));
  EXPECT_THAT(daemon->Stderr(), HasSubstr("uncorrectable error"));
  EXPECT_THAT(other->Ask("verify"), HasSubstr("ok verified"));
  const auto next = StartEngine("8MiB", {"--seed", "5"});
  EXPECT_EQ(SlabsOf(next->pid()), 4u);
}

// The engine dies of the bad page. The next engine does not, because its slabs
// get other memory.
TEST_F(DeathTest, BadPageEndsOneEngineAndNotTheNext) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "a real page cannot be spoilt to order";
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB");
  ASSERT_EQ(engine->Ask("spoil"), "ok spoiled");
  engine->Tell("verify");
  EXPECT_EQ(engine->Wait(), 3);  // a CUDA error
  EXPECT_TRUE(EventuallyFree(kSlabs));
  EXPECT_THAT(daemon->Stderr(), HasSubstr("uncorrectable error"));
  const auto next = StartEngine("32MiB", {"--seed", "5"});  // the whole pool
  EXPECT_EQ(SlabsOf(next->pid()), kSlabs);
  EXPECT_THAT(next->Ask("verify"), HasSubstr("ok verified"));
}

// The server's clients are not known, so none of them has certainly ended.
TEST_F(MpsDeathTest, ServerWhoseClientsCannotBeListedEndsNoQuarantine) {
  Set("EMUCUDA_NVML_MPS_LIST", "refuse");
  const auto daemon = StartDaemon();
  const auto survivor = StartEngine("4MiB", {}, client_);
  KillClient();
  EndLingering();
  const uint64_t before = Table().counters.process_lists_useless;
  EXPECT_TRUE(Eventually(
      [&] { return Table().counters.process_lists_useless >= before + 5; }));
  EXPECT_EQ(SlabsIn(SlabState::kQuarantined), 8u);
  EXPECT_THAT(daemon->Stderr(), HasSubstr("MPS server"));
  EXPECT_NE(Fsctl({"doctor"}).code, 0);
}

TEST_F(DeathTest, EnginesGoOnWithoutTheirDaemon) {
  auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB", {"--seed", "3"});
  daemon->EndBy(SIGKILL);
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(engine->Ask("write 9"), HasSubstr("ok"));
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(engine->Ask("free"), HasSubstr("ok freed"));
  EXPECT_THAT(engine->Ask("alloc"), HasSubstr("ok allocated"));
  EXPECT_THAT(engine->Ask("write 9"), HasSubstr("ok"));
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(engine->Ask("exit"), HasSubstr("ok exit"));
  EXPECT_EQ(engine->Wait(), 0);
}

TEST_F(DeathTest, NewDaemonNamesThePidsThatStillHoldTheOldPool) {
  auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB", {"--seed", "3"});
  daemon->EndBy(SIGKILL);
  const auto next = StartDaemon();
  EXPECT_THAT(next->Stderr(),
              HasSubstr("pool of a former daemon (pid " +
                        std::to_string(daemon->pid()) + ") is still held by"));
  EXPECT_THAT(next->Stderr(),
              HasSubstr("pid " + std::to_string(engine->pid())));
  EXPECT_THAT(next->Stderr(), HasSubstr("4 slabs, 16 MiB"));
  const Finished doctor = Fsctl({"doctor"});
  EXPECT_NE(doctor.code, 0);
  EXPECT_THAT(doctor.out, HasSubstr("former pools"));
  EXPECT_THAT(doctor.out, HasSubstr("restart the others"));
  // The engine still has the old pool's bytes, because the new pool has other
  // memory.
  const auto other = StartEngine("32MiB", {"--seed", "8"});
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(other->Ask("verify"), HasSubstr("ok verified"));
}

// The GPU may also have engines that are not the pool's. The tools must name
// those engines, too.
TEST_F(DeathTest, ToolsNameTheEnginesOfAFormerPoolAndWhatTheyHold) {
  const std::string fleet = folder() + "/fleet.toml";
  std::ofstream(fleet) << "[[model]]\nname = \"m\"\nslo_ttft_ms = 1000\n"
                          "[[engine]]\nname = \"e\"\nmodel = \"m\"\n"
                          "url = \"http://127.0.0.1:1\"\n";
  auto daemon = StartDaemon({"--fleet", fleet});
  const auto engine = StartEngine("8MiB");
  const std::vector<std::vector<std::string>> commands = {
      {"engines"}, {"slabs"}, {"top", "--once", "--interval", "0"}, {"models"}};
  const auto as_json = [](std::vector<std::string> command) {
    command.push_back("--json");
    return command;
  };
  for (const auto& command : commands) {
    EXPECT_EQ(JsonAt(Fsctl(as_json(command)).out, "/former_pools"), "[]");
  }
  daemon->EndBy(SIGKILL);
  const auto next = StartDaemon({"--fleet", fleet});
  const std::string pid = "pid " + std::to_string(engine->pid());
  for (const auto& command : commands) {
    SCOPED_TRACE(command[0]);
    const Finished text = Fsctl(command);
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_THAT(text.out, HasSubstr("the pool of a former daemon"));
    EXPECT_THAT(text.out, HasSubstr(pid));
    const std::string json = Fsctl(as_json(command)).out;
    EXPECT_EQ(JsonInt(json, "/former_pools/0/bytes"), 16 << 20) << json;
    EXPECT_EQ(JsonInt(json, "/former_pools/0/processes/0/pid"), engine->pid());
  }
}

TEST_F(DeathTest, FreeingAnOldPoolsKvDoesNotTouchTheNewPool) {
  auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB");
  daemon->EndBy(SIGKILL);
  const auto next = StartDaemon();
  const auto other = StartEngine("32MiB");  // all of the new pool
  EXPECT_THAT(engine->Ask("free"), HasSubstr("ok freed"));
  EXPECT_EQ(SlabsOf(other->pid()), kSlabs);
  EXPECT_THAT(other->Ask("verify"), HasSubstr("ok verified"));
}

TEST_F(DeathTest, PoolThatTheOldOneLeavesNoRoomForNamesItsHolders) {
  Set("EMUCUDA_MEMORY", "832MiB");
  auto daemon = StartDaemon({"--pool", "768MiB"});
  const auto engine = StartEngine("384MiB");
  daemon->EndBy(SIGKILL);
  // Not one slab fits.
  const Finished refused = RunToEnd({Program("fineserved"), "--gpu", "emulated",
                                     "--pool", "768MiB", "--slab", "64MiB"},
                                    environment());
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("does not fit"));
  EXPECT_THAT(refused.err, HasSubstr("pid " + std::to_string(engine->pid())));
}

TEST_F(DeathTest, GarbageOnTheSocketIsCountedAndHurtsNoEngine) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("4MiB");
  const uint64_t before = Table().counters.messages_dropped;
  const unsigned seed = process::RandomSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    const driver::Descriptor fd = Connect();
    std::vector<unsigned char> bytes(1 + random() % 2000);
    for (unsigned char& b : bytes) b = static_cast<unsigned char>(random());
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  EXPECT_TRUE(Eventually(
      [&] { return Table().counters.messages_dropped == before + 200; }));
  EXPECT_THAT(engine->Ask("verify"), HasSubstr("ok verified"));
}

// Kills at random moments of start, serving and freeing; at the end no slab is
// missing and the survivor's bytes are its own.
TEST_F(DeathTest, RandomKillsLoseNoSlab) {
  const unsigned seed = process::RandomSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto daemon = StartDaemon();
  const auto survivor = StartEngine("4MiB", {"--seed", "1"});
  for (int i = 0; i < 30; ++i) {
    const auto victim = LaunchEngine("8MiB", {"--rounds", "1000"});
    usleep(random() % 60'000);
    victim->EndBy(SIGKILL);
    ASSERT_THAT(survivor->Ask("verify"), HasSubstr("ok verified"));
  }
  EXPECT_TRUE(EventuallyFree(kSlabs - 2));
}

}  // namespace
}  // namespace fineserve::integration
