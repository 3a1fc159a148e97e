#include "tools/fsctl/launch/fleet_supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/launch/http_health.h"
#include "tools/fsctl/launch/launch_commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

using State = SupervisedEngine::State;

constexpr int kHealthMs = 500;
constexpr unsigned kReapPauseUs = 200'000;
// How long engines may take to end before they are killed.
constexpr uint64_t kPatienceNs = 10'000'000'000;

uint64_t NowNs() { return Now().monotonic_ns; }

// "code 1", "signal 9 (Killed)".
std::string Ending(int status) {
  if (WIFEXITED(status)) return absl::StrCat("code ", WEXITSTATUS(status));
  return absl::StrCat("signal ", WTERMSIG(status), " (",
                      strsignal(WTERMSIG(status)), ")");
}

}  // namespace

FleetSupervisor::FleetSupervisor(const Globals& globals, config::Fleet fleet,
                                 std::string log_folder)
    : globals_(globals), log_folder_(std::move(log_folder)) {
  for (config::FleetEngine& engine : fleet.engines) {
    if (engine.command.empty()) continue;
    engines_.push_back({std::move(engine), {}});
  }
}

void FleetSupervisor::Turn() {
  Reap();
  for (Engine& engine : engines_) {
    if (engine.life.IsDue(NowNs())) Start(&engine);
    Check(&engine);
  }
}

void FleetSupervisor::Stop() {
  stopping_ = true;
  Tell(absl::StrCat("stopping engines: ", Running()));
  Signal(SIGTERM);
  ReapAll(kPatienceNs);
  if (Running() == 0) return;
  Tell(absl::StrCat("killing engines that did not stop: ", Running()));
  Signal(SIGKILL);
  ReapAll(UINT64_MAX);
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
  engine->life.Started(pid, NowNs());
  Tell(absl::StrCat("started, pid ", pid, ", log ", LogOf(engine->spec)),
       engine);
}

// In the child. An engine does not outlive a killed fsctl.
void FleetSupervisor::Become(const config::FleetEngine& spec) const {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // Else fsctl's handlers would swallow a signal until exec.
  for (const int ending : {SIGINT, SIGTERM, SIGHUP}) signal(ending, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const driver::Descriptor log(open(
      LogOf(spec).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  RedirectOutput(log.get());
  SetEnvironment(environment_);
  Globals globals = globals_;
  if (!spec.gpu.empty()) globals.gpu = spec.gpu;
  RunOptions run;
  run.gpu_uuid = spec.CudaGpu();
  run.gpu_by_index = spec.gpu_by_index;
  run.name = spec.name;
  run.command = spec.command;
  run.no_daemon = true;  // `up` looked for one
  if (spec.view) run.view = "required";
  run.no_view = !spec.view;
  _exit(RunRun(globals, run));
}

void FleetSupervisor::Check(Engine* engine) const {
  if (engine->life.state() == State::kDown) return;
  const bool serves =
      IsHealthy(engine->spec.host, engine->spec.port, kHealthMs);
  if (!engine->life.Checked(serves, NowNs())) return;
  if (!serves) {
    Tell(absl::StrCat("no longer answers /health (", ServingCount(), ")"),
         engine);
    return;
  }
  const double seconds =
      static_cast<double>(NowNs() - engine->life.started_ns()) * 1e-9;
  Tell(absl::StrFormat("serving after %.1f s (%s)", seconds, ServingCount()),
       engine);
}

void FleetSupervisor::Reap() {
  int status = 0;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    for (Engine& engine : engines_) {
      if (engine.life.pid() == pid) Ended(&engine, status);
    }
  }
}

void FleetSupervisor::ReapAll(uint64_t timeout_ns) {
  const uint64_t start_ns = NowNs();
  for (Reap(); Running() > 0 && NowNs() - start_ns < timeout_ns; Reap()) {
    usleep(kReapPauseUs);
  }
}

void FleetSupervisor::Ended(Engine* engine, int status) const {
  kill(-engine->life.pid(), SIGKILL);  // what is left of its process group
  const uint64_t pause_ns = engine->life.Ended(NowNs());
  std::string event = absl::StrCat("ended with ", Ending(status), ", log ",
                                   LogOf(engine->spec));
  if (!stopping_) {
    absl::StrAppend(&event, "; restarting in ", pause_ns / 1'000'000'000,
                    " s (", ServingCount(), ")");
  }
  Tell(event, engine);
}

void FleetSupervisor::Signal(int signal) const {
  for (const Engine& engine : engines_) {
    if (engine.life.pid() != 0) kill(-engine.life.pid(), signal);
  }
}

size_t FleetSupervisor::Running() const {
  size_t running = 0;
  for (const Engine& engine : engines_) running += engine.life.pid() != 0;
  return running;
}

std::string FleetSupervisor::ServingCount() const {
  size_t serving = 0;
  for (const Engine& engine : engines_) {
    serving += engine.life.state() == State::kServing;
  }
  return absl::StrCat(serving, " of ", engines_.size(), " serving");
}

std::string FleetSupervisor::LogOf(const config::FleetEngine& spec) const {
  return absl::StrCat(log_folder_, "/", spec.name, ".log");
}

void FleetSupervisor::Tell(const std::string& event,
                           const Engine* engine) const {
  if (globals_.json) {
    nlohmann::ordered_json line = {{"event", event}};
    if (engine != nullptr) {
      line["engine"] = engine->spec.name;
      line["pid"] = engine->life.pid();
    }
    Print(JsonLine(line));
  } else {
    const std::string who =
        engine == nullptr ? "" : absl::StrCat(engine->spec.name, ": ");
    Print(absl::StrCat(who, event, "\n"));
  }
  fflush(stdout);
}

}  // namespace fineserve::fsctl
