#include "tools/up/fleet_supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/errno_status.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/run/run_command.h"
#include "tools/fsctl/terminal/clean_text.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/up/fleet_check.h"
#include "tools/up/http_health.h"

namespace fineserve::fsctl {
namespace {

using State = SupervisedEngine::State;

constexpr char kNotInFleet[] = "has left the fleet";
constexpr char kOutOfMemory[] =
    " as the kernel killed a process because host memory ran out: give it, or "
    "its cgroup, more, or let it take less";
constexpr int kConnectMs = 500;
// Limit on the time that a turn waits for answers to health checks.
constexpr int kHealthMs = 500;
// If a round of health checks took longer, it says nothing about the engines.
constexpr uint64_t kOwnPauseNs = 1'500'000'000;
// Interval between two checks of the ports of a starting engine.
constexpr uint64_t kLookPauseNs = 2'000'000'000;
constexpr unsigned kReapPauseUs = 200'000;
// Time after which other engines start beside one that has not yet served. vLLM
// takes one to two minutes.
constexpr uint64_t kStartsAloneNs = 300'000'000'000;
// Limit on the time that the memory of a process may take to leave the GPU once
// the plan does not need the process. Heuristic: a copy takes seconds.
constexpr uint64_t kLeavesNs = 60'000'000'000;

// "code 1", "signal 9 (Killed)".
std::string Ending(int status) {
  if (WIFEXITED(status)) return absl::StrCat("code ", WEXITSTATUS(status));
  return absl::StrCat("signal ", WTERMSIG(status), " (",
                      strsignal(WTERMSIG(status)), ")");
}

// True if a word of the command names this port ("--port=8000" too).
bool Names(const std::vector<std::string>& command, uint16_t port) {
  const std::string number = absl::StrCat(port);
  return std::any_of(
      command.begin(), command.end(), [&](const std::string& word) {
        return word == number || absl::EndsWith(word, "=" + number);
      });
}

// True if fsctl run, or a shell, did not find the command.
bool CannotRun(int status) {
  return WIFEXITED(status) && (WEXITSTATUS(status) == kExitNotFound ||
                               WEXITSTATUS(status) == kExitNotExecutable);
}

}  // namespace

FleetSupervisor::FleetSupervisor(const Globals& globals, FleetToRun fleet,
                                 SupervisorOptions options)
    : globals_(globals),
      options_(std::move(options)),
      is_planned_(fleet.fleet.planner.on),
      written_(std::move(fleet.written)),
      planned_gpus_(GpusOfPlaces(fleet.fleet)),
      follower_(std::make_unique<PlanFollower>(finding::RuntimeFolder(),
                                               planned_gpus_)),
      proxies_(ProxiesOf(finding::RuntimeFolder())),
      rest_(options_.fleet_path, proxies_),
      requests_(options_.fleet_path, proxies_),
      orphans_(OrphanWatch::OfFolder(finding::RuntimeFolder())) {
  for (config::FleetEngine& engine : fleet.fleet.engines) {
    if (engine.command.empty()) continue;
    engines_.push_back({std::move(engine)});
    engines_.back().wish = WishOf(plan_, engines_.back().spec);
  }
}

void FleetSupervisor::Adopt(EngineRegister engines) {
  for (RegisteredEngine& running : engines.Running()) {
    Engine* engine = Find(running.engine);
    if (engine == nullptr) {
      engines_.push_back({});
      engine = &engines_.back();
      engine->spec.name = running.engine;
      engine->is_in_fleet = false;
    }
    engine->life.Started(running.pid, NowNs());
    ++engine->starts;
    engine->pidfd = std::move(running.pidfd);
    Tell(absl::StrCat("adopted, pid ", running.pid), engine);
    if (!engine->is_in_fleet) SetWish(engine, Wish::kStop, kNotInFleet);
  }
  for (const auto& [name, since_ns] : engines.Stopped()) {
    Engine* engine = Find(name);
    if (engine == nullptr || !engine->is_in_fleet) {
      engines.EndStopped(name);
      continue;
    }
    engine->stopped_ns = std::min(since_ns, NowNs());
    Tell(absl::StrCat("stays stopped until fsctl start ", name), engine);
    BeginRest(engine, static_cast<uint64_t>(kUsualDrainS * 1e9));
  }
  register_.emplace(std::move(engines));
  size_t waiting = 0;
  for (const Engine& engine : engines_) {
    waiting += engine.wish == Wish::kUnknown && !engine.life.runs() &&
               !engine.spec.on_request;
  }
  if (waiting != 0) {
    Tell(absl::StrCat("waiting for the first plan, which says which of ",
                      waiting, " engines run"));
  }
}

void FleetSupervisor::Turn() {
  oom_.Look(NowNs());
  Reap();
  if (is_planned_) Follow();
  FollowRequests();
  if (!options_.keeps_orphans) RollOrphans();
  std::vector<std::string> resting, stopped;
  for (const Engine& engine : engines_) {
    const bool rests = engine.rests && engine.life.runs();
    if (engine.stopped_ns) stopped.push_back(engine.spec.name);
    if (rests || engine.stopped_ns) resting.push_back(engine.spec.name);
  }
  rest_.Turn(NowNs(), resting, stopped);
  CheckAll();
  for (Engine& engine : engines_) Steer(&engine);
  for (Engine& engine : engines_) {
    const std::string state = StateOf(engine);
    if (state == engine.state) continue;
    engine.state = state;
    engine.state_ns = NowNs();
  }
}

void FleetSupervisor::Stop() {
  stopping_ = true;
  Tell(absl::StrCat("stopping engines: ", Running()));
  Signal(SIGTERM);
  ReapAll(SupervisedEngine::kPatienceNs);
  if (Running() == 0) return;
  Tell(absl::StrCat("killing engines that did not stop: ", Running()));
  Signal(SIGKILL);
  ReapAll(UINT64_MAX);
}

FleetSupervisor::Engine* FleetSupervisor::Find(const std::string& name) {
  return const_cast<Engine*>(std::as_const(*this).Find(name));
}

const FleetSupervisor::Engine* FleetSupervisor::Find(
    const std::string& name) const {
  for (const Engine& engine : engines_) {
    if (engine.spec.name == name) return &engine;
  }
  return nullptr;
}

void FleetSupervisor::Follow() {
  const bool is_newer = follower_->Turn(NowNs(), &plan_);
  for (Engine& engine : engines_) {
    if (!engine.is_in_fleet || !engine.spec.is_place) continue;
    if (!is_newer && !engine.spec.may_evict) continue;
    const bool may_rest = plan_.MayRest(engine.spec.name);
    SetWish(&engine, PlannedWish(&engine),
            absl::StrCat("plan ", plan_.number(),
                         may_rest ? "" : ", no memory to rest in"));
  }
}

// A process that the plan does not need rests off the GPU, since activating it
// is faster than starting it. It ends if its memory does not leave, or if the
// plan has no host memory for it.
Wish FleetSupervisor::PlannedWish(Engine* engine) const {
  const Wish wish = WishOf(plan_, engine->spec);
  const bool may_rest = wish == Wish::kStop && engine->spec.may_evict &&
                        plan_.MayRest(engine->spec.name) && engine->life.runs();
  if (!may_rest) {
    engine->off_ns = 0;
    return wish;
  }
  if (engine->off_ns == 0 || follower_->IsAway(engine->spec.name)) {
    engine->off_ns = NowNs();
  }
  return NowNs() - engine->off_ns < kLeavesNs ? Wish::kUnknown : wish;
}

void FleetSupervisor::WishThatRunningEnginesRun() {
  for (Engine& engine : engines_) {
    if (engine.is_in_fleet && engine.spec.on_request && engine.life.runs() &&
        engine.wish == Wish::kUnknown) {
      engine.wish = Wish::kRun;
    }
  }
}

void FleetSupervisor::FollowRequests() {
  WishThatRunningEnginesRun();
  std::vector<RequestFollower::Engine> engines;
  for (const Engine& engine : engines_) {
    if (!engine.is_in_fleet || !engine.spec.on_request || engine.stopped_ns) {
      continue;
    }
    engines.push_back(OnRequest(engine));
  }
  for (const auto& change : requests_.Turn(NowNs(), engines)) {
    Engine* engine = Find(change.engine);
    SetWish(engine, change.wish, change.why);
    if (change.wish == Wish::kStop && engine->life.runs()) {
      BeginRest(engine, static_cast<uint64_t>(kUsualDrainS * 1e9));
      engine->may_go_on = true;
    }
    if (!change.makes_place_for.empty()) {
      Find(change.makes_place_for)->has_place = true;
    }
  }
  for (Engine& engine : engines_) GoOnIfAsked(&engine);
}

void FleetSupervisor::GoOnIfAsked(Engine* engine) {
  if (!engine->may_go_on || engine->wish != Wish::kRun ||
      engine->life.state() == State::kStopping || IsPlaceOfAnother(*engine)) {
    return;
  }
  engine->rests = engine->may_go_on = false;
  if (engine->next) engine->spec = *std::exchange(engine->next, absl::nullopt);
  Tell("requests wait for it: goes on", engine);
}

RequestFollower::Engine FleetSupervisor::OnRequest(const Engine& engine) {
  RequestFollower::Engine its = {engine.spec.name, engine.spec.model,
                                 engine.spec.gpu, engine.spec.stop_after_s};
  its.failed_starts = engine.failed_starts;
  its.wish = engine.wish;
  its.See(engine.life, engine.rests, engine.start_s, NowNs());
  if (engine.starts_again) its.state = RequestFollower::Engine::State::kStarts;
  return its;
}

// Sets the wish, and prints a line if that changes what the engine does.
void FleetSupervisor::SetWish(Engine* engine, Wish wish,
                              const std::string& why) const {
  if (wish != Wish::kRun) engine->has_place = engine->starts_again = false;
  const Wish before = std::exchange(engine->wish, wish);
  if (before == wish || engine->stopped_ns) return;
  if (wish == Wish::kRun && !engine->life.runs()) {
    Tell(why + ": start", engine);
  } else if (wish == Wish::kStop &&
             (before == Wish::kRun || engine->life.runs())) {
    Tell(why + ": stop", engine);
  }
}

// Carries out the wish as far as that is possible now.
void FleetSupervisor::Steer(Engine* engine) {
  SupervisedEngine& life = engine->life;
  const bool is_down = !life.runs();
  const bool is_due = life.IsDue(NowNs()) ||
                      (engine->has_place && life.state() == State::kDown);
  if (is_down && engine->is_to_run() && is_due &&
      !MustWaitForAddress(*engine) && !MustWaitForStart(*engine)) {
    Start(engine);
  }
  const bool rested =
      engine->rests &&
      (rest_.IsIdle(engine->spec.name, NowNs()) || NowNs() >= engine->end_ns);
  const bool is_to_end = engine->rests ? rested : engine->wish == Wish::kStop;
  if (is_to_end && life.runs() && life.state() != State::kStopping) {
    AskToEnd(engine);
  }
  const uint64_t patience_s = engine->spec.restart_after_s;
  if (life.Hangs(NowNs(), patience_s * 1'000'000'000)) {
    Tell(absl::StrCat("has not answered /health for ", patience_s,
                      " s; killing it and starting it again"),
         engine);
    life.KilledAsHung(NowNs());
    kill(-life.pid(), SIGKILL);
  }
  if (life.PatienceEnds(NowNs())) {
    Tell("did not stop; killing it", engine);
    kill(-life.pid(), SIGKILL);
  }
}

void FleetSupervisor::AskToEnd(Engine* engine) const {
  if (engine->rests) {
    Tell(rest_.IsIdle(engine->spec.name, NowNs())
             ? "drained; stopping it"
             : "has not answered all in time; stopping it",
         engine);
  }
  kill(-engine->life.pid(), SIGTERM);
  engine->life.AskedToEnd(NowNs());
}

bool FleetSupervisor::MustWaitForAddress(const Engine& engine) const {
  return std::any_of(engines_.begin(), engines_.end(), [&](const Engine& e) {
    return &e != &engine && e.life.runs() && e.spec.host == engine.spec.host &&
           e.spec.port == engine.spec.port;
  });
}

bool FleetSupervisor::MustWaitForStart(const Engine& engine) const {
  const auto gives_way = [](const config::FleetEngine& spec) {
    return spec.may_evict || spec.on_request;
  };
  if (!gives_way(engine.spec)) return false;
  return std::any_of(engines_.begin(), engines_.end(),
                     [&](const Engine& e) {
                       if (&e == &engine || !gives_way(e.spec) ||
                           !e.spec.MayShareGpuWith(engine.spec)) {
                         return false;
                       }
                       return e.may_go_on ||
                              (e.life.state() == State::kStarting &&
                               NowNs() - e.life.started_ns() < kStartsAloneNs);
                     }) ||
         (!engine.has_place && IsPlaceOfAnother(engine));
}

bool FleetSupervisor::IsPlaceOfAnother(const Engine& at) const {
  return std::any_of(engines_.begin(), engines_.end(), [&](const Engine& e) {
    return &e != &at && e.has_place && e.is_in_fleet && e.wish == Wish::kRun &&
           e.life.state() == State::kDown && e.spec.MayShareGpuWith(at.spec);
  });
}

const char* FleetSupervisor::StateOf(const Engine& engine) const {
  if (engine.stopped_ns && !engine.life.runs()) return "stopped";
  switch (engine.life.state()) {
    case State::kStarting:
      return engine.rests ? "draining" : "starting";
    case State::kServing:
      return engine.rests ? "draining" : engine.off_ns != 0 ? "off" : "serving";
    case State::kSilent:
      return engine.rests ? "draining" : "silent";
    case State::kStopping:
      return "stopping";
    case State::kGivenUp:
      return "given up";
    case State::kDown:
      break;
  }
  if (engine.wish == Wish::kRun && MustWaitForStart(engine)) return "starting";
  const bool fails =
      engine.spec.on_request && requests_.FailsInVain(engine.spec.name);
  if (engine.wish == Wish::kRun || fails) return "down";
  return engine.wish == Wish::kStop || engine.spec.on_request ? "off"
                                                              : "unplanned";
}

std::vector<apply::EngineState> FleetSupervisor::States() const {
  std::vector<apply::EngineState> states;
  for (const Engine& engine : engines_) {
    apply::EngineState& reported = states.emplace_back();
    reported.name = engine.spec.name;
    reported.state = StateOf(engine);
    reported.pid = engine.life.pid();
    reported.starts = engine.starts;
    uint64_t since = reported.state == engine.state ? engine.state_ns : NowNs();
    const bool is_away =
        reported.state == "down" || reported.state == "starting";
    if (is_away && engine.life.unwell_ns() != 0) {
      since = engine.life.unwell_ns();
    } else if (reported.state == "silent") {
      since = engine.life.silent_ns();
    } else if (reported.state == "stopped") {
      since = *engine.stopped_ns;
    }
    reported.for_s = static_cast<double>(NowNs() - since) * 1e-9;
    reported.last_end = engine.last_end;
    reported.trouble = engine.trouble;
    reported.log_path = LogOf(engine.spec);
    if (reported.state == "serving" || reported.starts == 0) continue;
    const driver::Descriptor log(
        open(reported.log_path.c_str(), O_RDONLY | O_CLOEXEC));
    reported.log_line = Clean(LastLine(log.get()));
  }
  return states;
}

absl::Status FleetSupervisor::CheckAddresses(
    const std::vector<Engine>& engines) const {
  for (const Engine& engine : engines) {
    const config::FleetEngine& spec = engine.spec;
    if (engine.life.runs() || engine.stopped_ns || MustWaitForAddress(engine) ||
        !IsTaken(spec.host, spec.port, kConnectMs)) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "engine ", spec.name, ": another program listens at http://", spec.host,
        ":", spec.port,
        ", maybe another fsctl up; stop it, or give the engine another url"));
  }
  return absl::OkStatus();
}

absl::Status FleetSupervisor::CheckAddresses(const config::Fleet& fleet) const {
  std::vector<Engine> engines;
  for (const config::FleetEngine& spec : fleet.engines) {
    if (spec.command.empty()) continue;
    const Engine* known = Find(spec.name);
    engines.push_back({spec});
    if (known != nullptr) engines.back().stopped_ns = known->stopped_ns;
  }
  return CheckAddresses(engines);
}

void FleetSupervisor::Start(Engine* engine) {
  const pid_t pid = fork();
  if (pid == 0) Become(engine->spec);
  if (pid < 0) {
    Fail(0, absl::StrCat("fork: ", strerror(errno)));
    engine->life.Ended(NowNs());
    return;
  }
  setpgid(pid, pid);  // in the child too: whichever comes first
  engine->has_place = engine->starts_again = false;
  engine->life.Started(pid, NowNs());
  engine->looked_ns = NowNs();
  ++engine->starts;
  Tell(absl::StrCat("started, pid ", pid, ", log ", LogOf(engine->spec)),
       engine);
}

// Runs in the child. An engine outlives a killed fsctl; the next fsctl finds it
// in the register.
void FleetSupervisor::Become(const config::FleetEngine& spec) {
  setpgid(0, 0);
  // Otherwise fsctl's handlers would swallow a signal that arrives before exec.
  for (const int ending : {SIGINT, SIGTERM, SIGHUP}) signal(ending, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const driver::Descriptor log(open(
      LogOf(spec).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  // The terminal or pipe of fsctl's own output may close before the engine
  // ends.
  if (!log.valid())
    _exit(Fail(kExitBadAnswer, base::Cannot("open", LogOf(spec))));
  RedirectOutput(log.get());
  if (const absl::Status s = register_->Enter(spec.name); !s.ok()) {
    _exit(Fail(kExitBadAnswer, s));
  }
  SetEnvironment(environment_);
  SetEnvironment({spec.environment.begin(), spec.environment.end()});
  Globals globals = globals_;
  if (!spec.gpu.empty()) globals.gpu = spec.gpu;
  RunOptions run;
  run.gpu_uuids = spec.ShownGpus();
  run.gpu_by_index = spec.gpu_by_index;
  run.name = spec.name;
  run.command = spec.command;
  run.no_daemon = true;  // `up` looked for one
  if (spec.view) run.view = "required";
  run.no_view = !spec.view;
  run.may_evict = spec.may_evict;
  _exit(RunRun(globals, run));
}

void FleetSupervisor::CheckAll() {
  std::vector<Engine*> asked;
  std::vector<HealthChecks::Server> servers;
  for (Engine& engine : engines_) {
    if (!engine.life.IsChecked()) continue;
    asked.push_back(&engine);
    servers.push_back({engine.spec.host, engine.spec.port});
  }
  checks_.LookUp(servers, NowNs());
  const uint64_t asked_ns = NowNs();
  const auto answers = checks_.Ask(servers, asked_ns, kHealthMs);
  // This process was stopped, or did not get to run on a busy machine.
  if (NowNs() - asked_ns > kOwnPauseNs) return;
  for (size_t i = 0; i < asked.size(); ++i) {
    Checked(asked[i], answers[i].health, answers[i].asked_ns);
  }
}

void FleetSupervisor::Checked(Engine* engine, HealthChecks::Health health,
                              uint64_t asked_ns) const {
  const bool serves = health == HealthChecks::Health::kServes;
  const bool changed = engine->life.Checked(serves, asked_ns);
  if (health == HealthChecks::Health::kUnknownHost) {
    engine->trouble = absl::StrCat("cannot be reached: the name ",
                                   engine->spec.host, " does not resolve");
  } else if (!serves && engine->life.state() == State::kStarting) {
    LookElsewhere(engine);
  } else {
    engine->trouble.clear();
  }
  if (!changed) return;
  if (serves) engine->has_place = false;  // it started before the other left
  if (!serves) {
    Tell(absl::StrCat("no longer answers /health (", ServingCount(), ")"),
         engine);
    return;
  }
  if (engine->pidfd.valid()) {  // its start time is unknown
    Tell(absl::StrCat("serving (", ServingCount(), ")"), engine);
    return;
  }
  const double seconds =
      static_cast<double>(NowNs() - engine->life.started_ns()) * 1e-9;
  engine->start_s = seconds;
  Tell(absl::StrFormat("serving after %.1f s (%s)", seconds, ServingCount()),
       engine);
}

// Finds a program that listens at another port than its url's, and would
// otherwise count as starting forever. Considers only ports that its command
// names, since other ports may serve any purpose.
void FleetSupervisor::LookElsewhere(Engine* engine) const {
  const config::FleetEngine& spec = engine->spec;
  if (NowNs() - engine->looked_ns < kLookPauseNs) return;
  engine->looked_ns = NowNs();
  const std::string before = std::exchange(engine->trouble, "");
  for (const uint16_t port : ListeningPorts(engine->life.pid())) {
    if (port == spec.port || !Names(spec.command, port)) continue;
    engine->trouble = absl::StrCat("listens at port ", port,
                                   ", as its command says, and its ",
                                   "url is http://", spec.host, ":", spec.port);
  }
  if (engine->trouble.empty() || engine->trouble == before) return;
  Tell(engine->trouble + ": correct one of them", engine);
}

void FleetSupervisor::Reap() {
  int status = 0;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    for (Engine& engine : engines_) {
      if (engine.life.pid() != pid) continue;
      if (CannotRun(status)) engine.life.GiveUpUnlessItServed();
      Ended(&engine, " with " + Ending(status));
    }
  }
  for (Engine& engine : engines_) {
    if (engine.pidfd.valid() && HasEnded(engine.pidfd)) Ended(&engine, "");
  }
  engines_.erase(std::remove_if(engines_.begin(), engines_.end(),
                                [](const Engine& engine) {
                                  return !engine.is_in_fleet &&
                                         !engine.life.runs();
                                }),
                 engines_.end());
}

void FleetSupervisor::ReapAll(uint64_t timeout_ns) {
  const uint64_t start_ns = NowNs();
  for (Reap(); Running() > 0 && NowNs() - start_ns < timeout_ns; Reap()) {
    usleep(kReapPauseUs);
  }
}

void FleetSupervisor::Ended(Engine* engine, const std::string& how) {
  kill(-engine->life.pid(), SIGKILL);  // what is left of its process group
  register_->Remove(engine->spec.name);
  engine->pidfd.Reset();
  const bool was_starting = engine->life.state() == State::kStarting;
  const bool was_hung = engine->life.was_hung();
  const uint64_t pause_ns = engine->life.Ended(NowNs());
  // If a command cannot be run, the cause is not that other engines hold the
  // memory.
  if (was_starting && engine->life.state() != State::kGivenUp) {
    ++engine->failed_starts;
  }
  engine->last_end = how.empty() ? "ended" : "ended" + how;
  if (pause_ns != 0 && !was_hung && oom_.KilledLately(NowNs())) {
    engine->last_end += kOutOfMemory;
  }
  engine->trouble.clear();
  const bool was_restarted = engine->rests;
  engine->starts_again = engine->rests && !engine->may_go_on &&
                         engine->wish == Wish::kRun &&
                         engine->life.state() == State::kDown;
  engine->rests = engine->may_go_on = false;
  if (engine->next) {
    engine->spec = *std::exchange(engine->next, absl::nullopt);
  }
  std::string event =
      absl::StrCat(engine->last_end, ", log ", LogOf(engine->spec));
  if (engine->life.state() == State::kGivenUp) {
    absl::StrAppend(&event,
                    "; its command cannot be run, so it is not started "
                    "again");
  } else if (!stopping_ && engine->stopped_ns) {
    absl::StrAppend(&event, "; it stays stopped until fsctl start ",
                    engine->spec.name);
  } else if (!stopping_ && engine->spec.on_request &&
             engine->wish != Wish::kRun && engine->is_in_fleet) {
    absl::StrAppend(&event, "; the next request starts it");
  } else if (!stopping_ && was_restarted) {
    absl::StrAppend(&event, engine->is_in_fleet ? "; starting it again"
                                                : "; it has left the fleet");
  } else if (!stopping_ && engine->wish == Wish::kRun) {
    absl::StrAppend(&event, "; restarting in ", pause_ns / 1'000'000'000,
                    " s (", ServingCount(), ")");
  } else if (!stopping_ && engine->wish == Wish::kUnknown) {
    absl::StrAppend(&event, "; no plan is known yet that wants it");
  }
  Tell(event, engine);
}

void FleetSupervisor::Signal(int signal) const {
  for (const Engine& engine : engines_) {
    if (engine.life.runs()) kill(-engine.life.pid(), signal);
  }
}

size_t FleetSupervisor::Running() const {
  size_t running = 0;
  for (const Engine& engine : engines_) running += engine.life.runs();
  return running;
}

std::string FleetSupervisor::ServingCount() const {
  size_t serving = 0, wanted = 0;
  for (const Engine& engine : engines_) {
    serving += engine.life.state() == State::kServing;
    wanted +=
        engine.life.runs() ? engine.wish != Wish::kStop : engine.is_to_run();
  }
  return absl::StrCat(serving, " of ", wanted, " serving");
}

std::string FleetSupervisor::LogOf(const config::FleetEngine& spec) const {
  return absl::StrCat(options_.log_folder, "/", spec.name, ".log");
}

void FleetSupervisor::Tell(const std::string& event,
                           const Engine* engine) const {
  const std::string time =
      options_.timestamps ? absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ",
                                             absl::Now(), absl::UTCTimeZone())
                          : "";
  if (globals_.json) {
    nlohmann::ordered_json line;
    if (!time.empty()) line["time"] = time;
    line["event"] = event;
    if (engine != nullptr) {
      line["engine"] = engine->spec.name;
      line["pid"] = engine->life.pid();
    }
    Print(JsonLine(line));
  } else {
    Print(absl::StrCat(time, time.empty() ? "" : " ",
                       engine == nullptr ? "" : engine->spec.name + ": ", event,
                       "\n"));
  }
  fflush(stdout);
}

}  // namespace fineserve::fsctl
