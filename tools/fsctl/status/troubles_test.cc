#include "tools/fsctl/status/troubles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tools/fsctl/daemons/fabricated_pool.h"

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kFleet[] = "/etc/fleet.toml";

FleetProcess ProcessOf(const std::string& program) {
  FleetProcess process;
  process.state.process = program;
  process.state.pid = 4711;
  process.state.fleet_path = kFleet;
  return process;
}

// A daemon, a proxy and an fsctl up whose engine serves.
class TroublesTest : public ::testing::Test {
 protected:
  TroublesTest() {
    in_.now = kTestNow;
    LivePool& pool = in_.pools.emplace_back();
    pool.table.slabs.resize(4);
    for (const char* program : {"fineserved", "fineserve-proxy", "fsctl up"}) {
      in_.found.processes.push_back(ProcessOf(program));
    }
    proxy().state.daemons[""] = true;
    up().state.engines.push_back({"a", "serving", 1, 1, 60, "", 0});
    in_.words.resize(1);
    in_.words[0].models.emplace();
    in_.words[0].plan.emplace();
    in_.fleets.push_back({kFleet, "", {}, "127.0.0.1:8000", true});
  }
  FleetProcess& proxy() { return in_.found.processes[1]; }
  FleetProcess& up() { return in_.found.processes[2]; }
  apply::EngineState& engine() { return up().state.engines[0]; }
  abi::TableSnapshot& table() { return in_.pools[0].table; }
  wire::EngineFiguresT& Figures() {
    auto model = std::make_unique<wire::ModelFiguresT>();
    model->engines.push_back(std::make_unique<wire::EngineFiguresT>());
    wire::EngineFiguresT& figures = *model->engines[0];
    figures.name = "a";
    figures.serves = true;
    in_.words[0].models->models.push_back(std::move(model));
    return figures;
  }
  abi::EngineSnapshot& View() {
    abi::EngineSnapshot& view = table().engines.emplace_back();
    view.name = "a";
    view.state = abi::EngineState::kAlive;
    view.view.planes = 1;
    view.view.cap = 100;
    return view;
  }
  // The only one.
  Finding The() {
    const Findings troubles = TroublesOf(in_);
    EXPECT_THAT(troubles, SizeIs(1));
    return troubles.empty() ? Finding() : troubles[0];
  }

  StatusInput in_;
};

TEST_F(TroublesTest, NothingIsWrongWhereAllServe) {
  const Findings troubles = TroublesOf(in_);
  EXPECT_THAT(troubles, IsEmpty());
  EXPECT_EQ(StatusText(in_, troubles, false),
            "All is well: 1 daemon, 1 proxy, 1 fsctl up with 1 engine that "
            "serves\n");
  EXPECT_THAT(StatusJson(in_, troubles), HasSubstr("\"well\": true"));
}

// Kubernetes or systemd may have started the engines.
TEST_F(TroublesTest, EnginesInThePoolAreCountedWhoeverStartsThem) {
  in_.pools[0].table.engines.resize(2);
  in_.pools[0].table.engines[0].state = abi::EngineState::kAlive;
  in_.pools[0].table.engines[1].state = abi::EngineState::kQuarantined;
  in_.found.processes.clear();
  EXPECT_THAT(StatusText(in_, {}, false),
              HasSubstr("1 daemon with 1 engine, 0 proxies, 0 fsctl up\n"));
}

TEST_F(TroublesTest, DaemonThatIsAwayIsTheFirst) {
  in_.pools.clear();
  proxy().state.daemons[""] = false;
  proxy().state.away_s[""] = 7;
  const Findings troubles = TroublesOf(in_);
  ASSERT_THAT(troubles, SizeIs(2));
  EXPECT_EQ(troubles[0].what, "no fineserved runs");
  EXPECT_THAT(troubles[1].what, HasSubstr("admitted unscheduled"));
  EXPECT_EQ(troubles[1].since_s, 7);
  EXPECT_TRUE(AnyWrong(troubles));
}

TEST_F(TroublesTest, FolderOfAnotherUserIsNotTakenForOneWithoutADaemon) {
  in_.pools.clear();
  in_.closed = "/run/fineserve belongs to another user, whose daemon may serve";
  EXPECT_THAT(The().what, HasSubstr("another user"));
  EXPECT_THAT(The().cure, Not(HasSubstr("fineserved --gpu")));
  EXPECT_TRUE(The().is_wrong());
}

TEST_F(TroublesTest, OrphansAndFormerPoolsAreShown) {
  in_.pools[0].former = "the pool of a former daemon is still held by pid 7";
  EXPECT_THAT(The().cure, HasSubstr("restart the others"));
  in_.pools.clear();
  in_.orphans.emplace_back().table.daemon_pid = 99;
  EXPECT_THAT(The().what, HasSubstr("daemon 99 of GPU-"));
  in_.dead_daemons = {"/run/" + GpuName(in_.orphans[0].table.gpu_uuid) +
                      ".sock: connect: Connection refused"};
  EXPECT_THAT(The().what, HasSubstr("daemon 99 of GPU-")) << "and only once";
  in_.dead_daemons = {"/run/GPU-other.sock: connect: Connection refused"};
  EXPECT_THAT(TroublesOf(in_), SizeIs(2));
}

TEST_F(TroublesTest, DaemonThatHangsIsNotCalledDeadAndIsNamedOnce) {
  OrphanedPool orphan;
  orphan.table = in_.pools[0].table;
  orphan.table.daemon_pid = 99;
  orphan.table.flags = abi::kTableIsKept;
  orphan.daemon_exists = true;
  orphan.whereabouts = "thread 99 is stopped by a signal (SIGSTOP)";
  in_.pools.clear();
  in_.orphans = {orphan};
  const std::string gpu = GpuName(orphan.table.gpu_uuid);
  in_.dead_daemons = {"/run/" + gpu + ".sock: Welcome: no answer"};
  in_.found.silent = {{"/run/" + gpu + ".fleet", "it does not answer", 7}};
  in_.words[0] = {gpu, absl::nullopt, absl::nullopt};
  const Finding hangs = The();
  EXPECT_EQ(hangs.what, "daemon 99 of " + gpu +
                            " does not answer; engines go on without it: "
                            "thread 99 is stopped by a signal (SIGSTOP)");
  EXPECT_EQ(
      hangs.cure,
      "fsctl stack 99; if it stays so, kill -9 99: the next one takes the "
      "pool over");
  EXPECT_EQ(hangs.since_s, 7);
  in_.orphans[0].table.flags = 0;
  EXPECT_THAT(The().cure, HasSubstr("start fineserved again"));
}

TEST_F(TroublesTest, EngineThatDoesNotComeUpIsWrongAndOneThatStartsIsNot) {
  const struct {
    apply::EngineState engine;
    bool is_wrong;
    const char* what;
    const char* cure;
  } kCases[] = {
      {{"a", "starting", 1, 1, 5, "", 0}, false, "is starting", "wait"},
      {{"a", "starting", 1, 1, 3600, "", 0},
       true,
       "has not answered /health",
       "fsctl restart a"},
      {{"a", "starting", 1, 1, 5, "", 0, "listens at port 2"},
       true,
       "listens at port 2",
       "fsctl apply"},
      {{"a", "down", 0, 3, 5, "ended with code 3", 0},
       true,
       "ended with code 3",
       "see its log"},
      {{"a", "given up", 0, 1, 5, "ended with code 127", 0},
       true,
       "cannot be started",
       "fsctl restart a"},
      {{"a", "draining", 1, 1, 5, "", 0},
       false,
       "answers what it runs",
       "wait"},
      {{"a", "stopped", 0, 1, 5, "ended with code 0", 0},
       false,
       "was stopped by hand",
       "fsctl start a"}};
  for (const auto& c : kCases) {
    engine() = c.engine;
    const Finding trouble = The();
    EXPECT_EQ(trouble.is_wrong(), c.is_wrong) << trouble.what;
    EXPECT_THAT(trouble.what, HasSubstr(c.what));
    EXPECT_THAT(trouble.cure, HasSubstr(c.cure));
    EXPECT_EQ(trouble.since_s, c.engine.for_s) << trouble.what;
  }
  engine() = {"a", "off", 0, 0, 5, "", 0};
  EXPECT_THAT(TroublesOf(in_), IsEmpty()) << "the plan wants it so";
}

TEST_F(TroublesTest, PoolThatHasLostItsKeeperIsWrongSinceThen) {
  table().daemon_pid = 12;
  table().flags = abi::kTableIsKept;
  EXPECT_THAT(TroublesOf(in_), IsEmpty());
  table().keeper_lost_ns = kTestNow.monotonic_ns - 3'000'000'000;
  const Finding lost = The();
  EXPECT_TRUE(lost.is_wrong());
  EXPECT_THAT(lost.what, HasSubstr("the supervisor of fineserved 12 ("));
  EXPECT_THAT(lost.what, HasSubstr("the pool is lost when this daemon ends"));
  EXPECT_NEAR(lost.since_s, 3, 1e-6);
  EXPECT_FALSE(table().is_kept());
}

TEST_F(TroublesTest, ProxyOfAnotherFleetThanTheDaemonsIsWrong) {
  FleetProcess other = ProcessOf("fineserve-proxy");
  other.state.pid = 12;
  other.state.fleet_path = "/home/me/fleet.toml";
  in_.found.processes.push_back(other);
  const Finding trouble = The();
  EXPECT_EQ(trouble.what,
            "fineserve-proxy 12 runs /home/me/fleet.toml, and fineserved 4711 "
            "runs /etc/fleet.toml: two fleets share one runtime folder");
  EXPECT_THAT(trouble.cure, HasSubstr("FINESERVE_RUNTIME_DIR"));
  // Two GPUs may each run a fleet.
  other.state.process = "fineserved";
  in_.found.processes.push_back(other);
  EXPECT_THAT(TroublesOf(in_), IsEmpty());
}

// Another process that did not answer may have delayed fsctl in between.
TEST_F(TroublesTest, TimesAreThoseOfTheEndHoweverLongTheOthersTook) {
  const uint64_t heard_ns = kTestNow.monotonic_ns - 3 * kTestSecond;
  engine() = {"a", "down", 0, 3, 5, "ended with code 3", 0};
  up().heard_ns = heard_ns;
  EXPECT_EQ(The().since_s, 8);
  engine().state = "serving";
  Figures().drains = true;
  in_.words[0].models->models[0]->engines[0]->drains_s = 7;
  in_.words[0].heard_ns = heard_ns;
  EXPECT_EQ(The().since_s, 10);
  in_.words[0].models->models.clear();
  in_.found.silent = {{"/run/fineserve/proxy-4711.fleet", "does not answer", 4,
                       4711, heard_ns}};
  EXPECT_EQ(The().since_s, 7);
}

TEST_F(TroublesTest, KvOutsideThePoolIsATroubleSinceItsFirstAllocation) {
  abi::ScoreboardSnapshot& process = in_.scoreboards.emplace_back();
  for (const uint64_t seconds : {9, 2}) {
    abi::DecisionSnapshot& decision = process.decisions.emplace_back();
    decision.verdict = abi::Verdict::kPassThrough;
    decision.reason = abi::Reason::kNoDaemon;
    decision.time_ns = kTestNow.monotonic_ns - seconds * kTestSecond;
  }
  EXPECT_EQ(The().since_s, 9);
}

TEST_F(TroublesTest, JsonHasTheTimeAsLogsHaveIt) {
  in_.now.realtime_ns = 1'764'000'000 * kTestSecond;
  EXPECT_THAT(StatusJson(in_, {Trouble(true, "it is down", 1.5, "mend it")}),
              HasSubstr("\"since\": \"2025-11-24T15:59:58.500Z\""));
  EXPECT_THAT(StatusJson(in_, {Trouble(true, "it is down", -1, "mend it")}),
              HasSubstr("\"since\": null"));
}

TEST_F(TroublesTest, FullDiskIsWrong) {
  in_.full_disks = {{"/var/log/fineserve/a.log", 3 << 20, 90}};
  EXPECT_EQ(The().what,
            "the disk of /var/log/fineserve/a.log is full (3 MiB free): logs "
            "and state files are not written");
  EXPECT_EQ(The().since_s, 90);
}

TEST_F(TroublesTest, EngineThatServedAndIsSilentIsWrong) {
  engine().state = "silent";
  engine().for_s = 12;
  engine().log_line = "step 4711";
  const Finding silent = The();
  EXPECT_TRUE(silent.is_wrong());
  EXPECT_EQ(silent.what,
            "engine a (fsctl up 4711) does not answer /health (pid 1); its log "
            "ends: step 4711");
  EXPECT_EQ(silent.since_s, 12);
  EXPECT_EQ(silent.cure, "fsctl restart a");
  in_.whereabouts[1] = "thread 7 waits in cuStreamSynchronize";
  EXPECT_EQ(
      The().what,
      "engine a (fsctl up 4711) does not answer /health (pid 1): thread 7 "
      "waits in cuStreamSynchronize; its log ends: step 4711");
  up().state.fleet["engine a"]["restart_after"] = "120";
  in_.fleets[0].fleet = up().state.fleet;
  proxy().state.fleet = up().state.fleet;
  in_.found.processes[0].state.fleet = up().state.fleet;
  EXPECT_EQ(The().cure, "fsctl restart a; fsctl up does it after 120 s");
}

TEST_F(TroublesTest, ProgramThatTheFleetWantsAndThatIsNotThereIsWrong) {
  const std::vector<FleetProcess> all = in_.found.processes;
  in_.found.processes = {all[0], all[2]};
  EXPECT_TRUE(The().is_wrong());
  EXPECT_EQ(The().what,
            "no fineserve-proxy runs for /etc/fleet.toml: clients get no "
            "connection at 127.0.0.1:8000");
  EXPECT_EQ(The().cure, "fineserve-proxy --fleet /etc/fleet.toml");
  EXPECT_EQ(The().since_s, -1);
  in_.found.gone = {{"/run/fineserve/proxy-1.fleet", "connect: refused", 500},
                    {"/run/fineserve/proxy-2.fleet", "connect: refused", 9},
                    {"/run/fineserve/up-3.fleet", "connect: refused", 4}};
  EXPECT_EQ(The().since_s, 9) << "the last one that was killed";
  in_.found.silent = {
      {"/run/fineserve/proxy-4711.fleet", "does not answer", 3, 4711}};
  EXPECT_EQ(The().what, "does not answer") << "but it is there";
  in_.whereabouts[4711] = "its descriptor table is full";
  EXPECT_EQ(The().what, "does not answer: its descriptor table is full");
  EXPECT_EQ(The().since_s, 3);
  in_.found.silent.clear();
  in_.found.processes = {all[0], all[1]};
  EXPECT_THAT(The().what, HasSubstr("no fsctl up runs for /etc/fleet.toml"));
  EXPECT_EQ(The().since_s, 4);
  EXPECT_THAT(The().cure, HasSubstr("adopts"));
  in_.found.silent = {{"/run/fineserve/up-4712.fleet", "does not answer", 3}};
  EXPECT_THAT(The().what, HasSubstr("does not answer")) << "but it is there";
  in_.found.silent.clear();
  in_.fleets[0].starts_engines = false;
  EXPECT_THAT(TroublesOf(in_), IsEmpty());
}

TEST_F(TroublesTest, EngineOfOthersIsShownWithTheTimeSinceItDoesNotServe) {
  up().state.engines.clear();
  wire::EngineFiguresT& figures = Figures();
  figures.serves = false;
  figures.silent_s = 7;
  EXPECT_EQ(The().since_s, 7);
  figures.serves = true;
  figures.troubles = {"it breaks off its answers"};
  EXPECT_EQ(The().since_s, -1) << "of an older daemon";
  figures.troubles_s = {9};
  EXPECT_EQ(The().since_s, 9);
  EXPECT_THAT(The().what, HasSubstr("engine a: it breaks off"));
}

TEST_F(TroublesTest, ModelThatMissesItsSloIsWrongWithItsBottleneck) {
  Figures();
  in_.words[0].gpu = "GPU-1";
  wire::ModelFiguresT& model = *in_.words[0].models->models[0];
  model.name = "m";
  model.recent_on_time = 15;
  model.recent_late = 1;
  model.recent_refused = 84;
  model.recent_lack = wire::WaitedFor::kKv;
  EXPECT_THAT(TroublesOf(in_), IsEmpty()) << "the daemon judges";
  model.burns_s = 30;
  EXPECT_TRUE(The().is_wrong());
  EXPECT_EQ(The().since_s, 30);
  EXPECT_EQ(The().what,
            "model m on GPU-1 misses its SLO: of 100 requests of the last "
            "minute 15 were on time, 1 late and 84 refused, most for want of "
            "KV");
  EXPECT_THAT(The().cure, HasSubstr("cap"));
  model.recent_lack = wire::WaitedFor::kBatch;
  EXPECT_THAT(The().cure, HasSubstr("max_batch"));
}

TEST_F(TroublesTest, DrainedEngineAndFrozenPlanAreShownWithTheirUndoing) {
  Figures().drains = true;
  EXPECT_EQ(The().cure, "fsctl drain a --undo");
  in_.words[0].models->models[0]->engines[0]->drains_s = 12;
  EXPECT_EQ(The().since_s, 12);
  in_.words[0].models->models.clear();
  in_.words[0].plan->frozen = true;
  in_.words[0].plan->frozen_s = 5;
  EXPECT_EQ(The().cure, "fsctl plan --thaw");
  EXPECT_EQ(The().since_s, 5);
}

TEST_F(TroublesTest, EngineThatNoFsctlStartsIsReportedByTheDaemon) {
  Figures().serves = false;
  EXPECT_THAT(TroublesOf(in_), IsEmpty()) << "fsctl up knows better";
  up().state.engines.clear();
  EXPECT_EQ(The().what, "engine a does not serve");
  in_.words[0].plan->plan = std::make_unique<wire::PlanT>();
  auto place = std::make_unique<wire::PlannedPlaceT>();
  place->engine = "a";
  place->state = wire::PlaceState::kOff;
  in_.words[0].plan->plan->places.push_back(std::move(place));
  EXPECT_THAT(TroublesOf(in_), IsEmpty()) << "the plan wants it so";
}

TEST_F(TroublesTest, EngineThatAnAutoscalerHasEndedIsNoTrouble) {
  up().state.engines.clear();
  wire::EngineFiguresT& figures = Figures();
  figures.serves = false;
  figures.scaled = true;
  EXPECT_THAT(TroublesOf(in_), IsEmpty());
  figures.troubles = {"it breaks off its answers"};
  EXPECT_THAT(The().what, HasSubstr("engine a: it breaks off"));
}

TEST_F(TroublesTest, QuarantineIsStuckAfterAWhile) {
  abi::EngineSnapshot& dead = table().engines.emplace_back();
  dead.name = "dead";
  dead.state = abi::EngineState::kQuarantined;
  dead.slabs_held = 3;
  dead.member_pids = {42};
  dead.since_ns = kTestNow.monotonic_ns - 5 * kTestSecond;
  EXPECT_THAT(TroublesOf(in_), IsEmpty());
  dead.since_ns = kTestNow.monotonic_ns - 50 * kTestSecond;
  EXPECT_THAT(The().what, HasSubstr("3 slabs of the dead engine dead"));
  EXPECT_THAT(The().cure, HasSubstr("pid 42"));
  EXPECT_EQ(The().since_s, 50);
}

TEST_F(TroublesTest, CertificateIsMentionedBeforeItExpiresAndWrongThen) {
  proxy().state.certificate_s = 30 * 86400;
  EXPECT_THAT(TroublesOf(in_), IsEmpty());
  proxy().state.certificate_s = 86300;
  EXPECT_TRUE(The().is_wrong()) << "as the alert says";
  EXPECT_EQ(The().since_s, 100);
  EXPECT_THAT(The().what,
              HasSubstr("fineserve-proxy 4711 expires within 24 h"));
  proxy().state.certificate_s = 2 * 86400;
  EXPECT_FALSE(The().is_wrong());
  proxy().state.certificate_s = -5;
  EXPECT_TRUE(The().is_wrong());
  EXPECT_EQ(The().since_s, 5);
  EXPECT_THAT(The().what, HasSubstr("has expired"));
  EXPECT_EQ(The().cure, "renew it, then kill -HUP 4711");
}

TEST_F(TroublesTest, FloorThatIsNotMetAndPoolThatIsExhaustedAreShown) {
  abi::EngineSnapshot& view = View();
  view.view.floor = 4;
  view.view.wanted = 4;
  view.view.leased = 2;
  EXPECT_THAT(The().what, HasSubstr("less than its floor of 4"));
  view.view.floor = 0;
  EXPECT_THAT(TroublesOf(in_), IsEmpty()) << "slabs are free";
  table().exhausted_ns = kTestNow.monotonic_ns - 3'000'000'000;
  EXPECT_THAT(The().what, HasSubstr("is exhausted: a wants more"));
  EXPECT_EQ(The().since_s, 3);
}

TEST_F(TroublesTest, OtherMachinesAreShownAsTheNodeKnowsThem) {
  cluster::FleetView view;
  view.machine = "here";
  view.has_quorum = true;
  view.written_ns = kTestNow.monotonic_ns;
  for (const char* name : {"here", "there"}) {
    cluster::SeenMachine& machine = view.machines.emplace_back();
    machine.record.name = name;
    machine.is_alive = true;
    machine.record.daemons.resize(1);
    machine.record.daemons[0].gpu = "GPU-1";
    machine.record.daemons[0].answers = true;
  }
  in_.machines = view;
  EXPECT_THAT(TroublesOf(in_), IsEmpty());
  cluster::SeenMachine& there = in_.machines->machines[1];
  there.record.daemons[0].refused[0] = 3;
  EXPECT_FALSE(The().is_wrong());
  EXPECT_THAT(The().what, HasSubstr("there (GPU-1): 3 connections"));
  there.record.daemons[0].refused = {};
  there.record.daemons[0].answers = false;
  EXPECT_EQ(The().what, "machine there: no fineserved of GPU-1 answers");
  there.is_alive = false;
  EXPECT_EQ(The().what, "machine there is silent");
  there.silent_ns = kTestNow.monotonic_ns - 2'000'000'000;
  EXPECT_EQ(The().since_s, 2);
  there.is_lost = true;
  EXPECT_THAT(The().what, HasSubstr("machine there is lost"));
  there.is_alive = true;
  there.record.daemons[0].answers = true;
  in_.machines->has_quorum = false;
  EXPECT_THAT(The().what, HasSubstr("majority"));
  in_.machines->quorum_ns = in_.now.monotonic_ns - 6'000'000'000;
  EXPECT_EQ(The().since_s, 6);
}

TEST_F(TroublesTest, FileThatDiffersFromWhatRunsIsNoted) {
  in_.fleets[0].fleet = {{"model m", {{"slo_ttft_ms", "1"}}}};
  EXPECT_FALSE(The().is_wrong());
  EXPECT_EQ(The().cure, "fsctl apply /etc/fleet.toml");
  in_.fleets[0].error = "/etc/fleet.toml:3: unknown key";
  EXPECT_TRUE(The().is_wrong());
}

TEST_F(TroublesTest, KvOutsideThePoolIsShownWithItsReason) {
  const struct {
    abi::Reason reason;
    const char* why;
  } kReasons[] = {{abi::Reason::kNoDaemon, "no fineserved ran"},
                  {abi::Reason::kRefused, "fineserved refused it"},
                  {abi::Reason::kOtherGpu, "of another GPU"}};
  for (const auto& c : kReasons) {
    abi::ScoreboardSnapshot early;
    early.pid = 4712;
    early.program = "vllm";
    early.decisions.resize(3);
    for (abi::DecisionSnapshot& decision : early.decisions) {
      decision.bytes = 1ull << 30;
      decision.time_ns = kTestNow.monotonic_ns - 5'000'000'000;
      decision.reason = c.reason;
    }
    early.decisions[0].reason = abi::Reason::kNotKv;
    in_.scoreboards = {early};
    EXPECT_THAT(The().what,
                HasSubstr("vllm (pid 4712) allocated 2 GiB of KV outside the "
                          "pool: "));
    EXPECT_THAT(The().what, HasSubstr(c.why));
    EXPECT_THAT(The().cure, HasSubstr("fsctl explain 4712"));
    EXPECT_NEAR(The().since_s, 5, 0.1);
  }
  for (abi::DecisionSnapshot& decision : in_.scoreboards[0].decisions) {
    decision.verdict = abi::Verdict::kRedirected;
  }
  EXPECT_THAT(TroublesOf(in_), IsEmpty());
}

}  // namespace
}  // namespace fineserve::fsctl
