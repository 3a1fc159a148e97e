#include "tools/fsctl/launch/up.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "daemon/config/fleet.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/launch/http_health.h"
#include "tools/fsctl/launch/mps.h"
#include "tools/fsctl/launch/run_command.h"
#include "tools/fsctl/launch/supervised_engine.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/signal_watch.h"

namespace fineserve::fsctl {
namespace {

using State = SupervisedEngine::State;

constexpr uint64_t kRoundNs = 200'000'000;
constexpr int kHealthMs = 500;
// Between a polite request to end and the other one.
constexpr uint64_t kPatienceNs = 10'000'000'000;

uint64_t NowNs() { return Now().monotonic_ns; }

// "code 1", "signal 9 (Killed)".
std::string Ending(int status) {
  if (WIFEXITED(status)) return absl::StrCat("code ", WEXITSTATUS(status));
  return absl::StrCat("signal ", WTERMSIG(status), " (",
                      strsignal(WTERMSIG(status)), ")");
}

class Fleet {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  Fleet(const Globals& globals, config::Fleet fleet, std::string log_folder)
      : globals_(globals), log_folder_(std::move(log_folder)) {
    for (config::FleetEngine& engine : fleet.engines) {
      if (engine.command.empty()) continue;
      engines_.push_back({std::move(engine), {}});
    }
  }

  size_t size() const { return engines_.size(); }

  // Of every engine that is started from now on.
  void SetEnvironment(Environment environment) {
    environment_ = std::move(environment);
  }

  // One turn: what ended, what is due, who serves.
  void Turn() {
    Reap();
    for (Engine& engine : engines_) {
      if (engine.life.IsDue(NowNs())) Start(&engine);
      Check(&engine);
    }
  }

  // Ends them all; those that take too long are killed.
  void End() {
    ending_ = true;
    Tell(absl::StrCat("ending ", Alive(), " engines"));
    Signal(SIGTERM);
    const uint64_t until = NowNs() + kPatienceNs;
    while (Alive() > 0 && NowNs() < until) {
      usleep(kRoundNs / 1000);
      Reap();
    }
    if (Alive() == 0) return;
    Tell(absl::StrCat("killing ", Alive(), " engines that did not end"));
    Signal(SIGKILL);
    while (Alive() > 0) {
      usleep(kRoundNs / 1000);
      Reap();
    }
  }

 private:
  struct Engine {
    config::FleetEngine spec;
    SupervisedEngine life;
  };

  size_t Alive() const {
    size_t alive = 0;
    for (const Engine& engine : engines_) alive += engine.life.pid() != 0;
    return alive;
  }
  std::string Serving() const {
    size_t serving = 0;
    for (const Engine& engine : engines_) {
      serving += engine.life.state() == State::kServing;
    }
    return absl::StrCat(serving, " of ", engines_.size(), " serve");
  }
  std::string LogOf(const config::FleetEngine& spec) const {
    return absl::StrCat(log_folder_, "/", spec.name, ".log");
  }

  // A line for people, or an object for programs.
  void Tell(const std::string& what, const Engine* engine = nullptr) const {
    if (globals_.json) {
      nlohmann::ordered_json line = {{"event", what}};
      if (engine != nullptr) {
        line["engine"] = engine->spec.name;
        line["pid"] = engine->life.pid();
      }
      Print(line.dump() + "\n");
    } else {
      const std::string who =
          engine == nullptr ? "" : absl::StrCat(engine->spec.name, ": ");
      Print(absl::StrCat(who, what, "\n"));
    }
    fflush(stdout);
  }

  void Start(Engine* engine) {
    const pid_t pid = fork();
    if (pid == 0) Become(engine->spec);
    if (pid < 0) {
      Fail(0, absl::StrCat("fork: ", strerror(errno)));
      engine->life.Ended(NowNs());
      return;
    }
    setpgid(pid, pid);  // here too: whichever of both comes first
    engine->life.Started(pid, NowNs());
    Tell(absl::StrCat("started, pid ", pid, ", log ", LogOf(engine->spec)),
         engine);
  }

  // In the child. An engine does not outlive a killed fsctl.
  [[noreturn]] void Become(const config::FleetEngine& spec) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const driver::Descriptor log(open(
        LogOf(spec).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (log.valid()) {
      dup2(log.get(), STDOUT_FILENO);
      dup2(log.get(), STDERR_FILENO);
    }
    for (const auto& [variable, value] : environment_) {
      setenv(variable.c_str(), value.c_str(), 1);
    }
    Globals globals = globals_;
    if (!spec.gpu.empty()) {
      globals.gpu = spec.gpu;
      setenv("CUDA_VISIBLE_DEVICES", spec.gpu.c_str(), 1);
    }
    RunOptions run;
    run.name = spec.name;
    run.command = spec.command;
    if (spec.view) run.view = "required";
    _exit(RunRun(globals, run));
  }

  void Check(Engine* engine) {
    if (engine->life.state() == State::kDown) return;
    const bool serves =
        IsHealthy(engine->spec.host, engine->spec.port, kHealthMs);
    if (!engine->life.Checked(serves, NowNs())) return;
    if (serves) {
      const double seconds =
          static_cast<double>(NowNs() - engine->life.started_ns()) * 1e-9;
      Tell(absl::StrFormat("serves after %.1f s (%s)", seconds, Serving()),
           engine);
    } else {
      Tell(absl::StrCat("does not answer /health any more (", Serving(), ")"),
           engine);
    }
  }

  void Reap() {
    int status = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      for (Engine& engine : engines_) {
        if (engine.life.pid() == pid) Ended(&engine, status);
      }
    }
  }

  void Ended(Engine* engine, int status) {
    kill(-engine->life.pid(), SIGKILL);  // what it left of its group
    const uint64_t pause_ns = engine->life.Ended(NowNs());
    std::string what = absl::StrCat("ended with ", Ending(status), ", log ",
                                    LogOf(engine->spec));
    if (!ending_) {
      absl::StrAppend(&what, "; to be started in ", pause_ns / 1'000'000'000,
                      " s (", Serving(), ")");
    }
    Tell(what, engine);
  }

  void Signal(int signal) const {
    for (const Engine& engine : engines_) {
      if (engine.life.pid() != 0) kill(-engine.life.pid(), signal);
    }
  }

  const Globals& globals_;
  const std::string log_folder_;
  Environment environment_;
  std::vector<Engine> engines_;
  bool ending_ = false;
};

// Every GPU of the fleet has a daemon: 0, or the exit code, the reason told.
int CheckDaemons(const Globals& globals, const config::Fleet& fleet) {
  std::set<std::string> gpus;
  for (const config::FleetEngine& engine : fleet.engines) {
    gpus.insert(engine.gpu.empty() ? globals.gpu : engine.gpu);
  }
  for (const std::string& gpu : gpus) {
    const absl::StatusOr<Pool> pool = ChoosePool(gpu);
    if (!pool.ok()) return Fail(ExitCodeOf(pool.status()), pool.status());
    if (!pool->daemon_answers()) {
      return Fail(kExitNoDaemon, DaemonTrouble(*pool));
    }
  }
  return kExitOk;
}

}  // namespace

int RunUp(const Globals& globals, const UpOptions& options) {
  absl::StatusOr<config::Fleet> fleet = config::ReadFleet(options.fleet_path);
  if (!fleet.ok()) return Fail(kExitUsage, fleet.status());
  if (const int code = CheckDaemons(globals, *fleet)) return code;
  Fleet engines(
      globals, *std::move(fleet),
      options.log_folder.empty() ? SocketFolder() : options.log_folder);
  if (engines.size() == 0) {
    return Fail(kExitUsage,
                absl::StrCat(options.fleet_path,
                             ": no [[engine]] has a command; add one, like "
                             "command = [\"vllm\", \"serve\", \"MODEL\"]"));
  }
  absl::optional<Mps> mps;
  if (options.mps) {
    absl::StatusOr<Mps> started = Mps::Start(SocketFolder());
    if (!started.ok()) return Fail(kExitBadAnswer, started.status());
    mps.emplace(*std::move(started));
    engines.SetEnvironment(mps->environment());
  }
  SignalWatch signals;
  while (signals.ending() == 0) {
    engines.Turn();
    signals.WaitFor(-1, kRoundNs);
  }
  engines.End();
  return kExitOk;
}

}  // namespace fineserve::fsctl
