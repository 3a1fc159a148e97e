// `fsctl up`: supervises the engines of a fleet until a signal arrives.

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/door/door.h"
#include "daemon/fleet/door/fleet_holder.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/globals.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/signal_watch.h"
#include "tools/up/engine_register.h"
#include "tools/up/fleet_check.h"
#include "tools/up/fleet_supervisor.h"
#include "tools/up/supervised_engine.h"

namespace fineserve::fsctl {
namespace {

struct UpOptions {
  std::string fleet_path;
  std::string log_folder;     // for the engines' output; empty: runtime folder
  bool mps = false;           // run the engines' kernels concurrently
  bool timestamps = false;    // before each line
  bool keep_orphans = false;  // do not restart what a former daemon left
  bool dry_run = false;       // show what would be started, start nothing
};

// Runs NVIDIA's Multi-Process Service on this machine's GPUs for the life of
// this object: kernels of several engines run concurrently instead of taking
// turns. Its control daemon is a separate process; it survives a killed fsctl,
// and the next fsctl takes it over.
class Mps {
 public:
  // Starts `nvidia-cuda-mps-control` with its pipes and logs below `folder`.
  // NotFound if it is not installed; Internal, naming the logs, if it fails.
  static absl::StatusOr<Mps> Start(const std::string& folder);

  Mps(Mps&& other) noexcept : pipes_(std::exchange(other.pipes_, "")) {}
  Mps& operator=(Mps&&) = delete;
  // Stops the service; engines that still run lose their GPU.
  ~Mps();

  // Returns the variables that let an engine share all of the GPU's compute
  // through the service.
  Environment environment() const;

 private:
  explicit Mps(std::string pipes) : pipes_(std::move(pipes)) {}

  std::string pipes_;  // folder; empty: moved from
};

constexpr char kControl[] = "nvidia-cuda-mps-control";
constexpr char kPipes[] = "CUDA_MPS_PIPE_DIRECTORY";
constexpr char kLogs[] = "CUDA_MPS_LOG_DIRECTORY";
constexpr absl::Duration kControlPatience = absl::Seconds(20);

// Runs the control program, which passes `input` to the control daemon.
ChildResult Tell(const std::string& pipes, const std::string& input) {
  return RunProgram({{kControl}, {{kPipes, pipes}}, input, ""},
                    kControlPatience);
}

// Starts the control daemon. Its output goes to a file, since it outlives this
// call.
ChildResult StartControlDaemon(const std::string& pipes,
                               const std::string& logs) {
  return RunProgram({{kControl, "-d"},
                     {{kPipes, pipes}, {kLogs, logs}},
                     "",
                     logs + "/start.log"},
                    kControlPatience);
}

absl::Status MakeMpsFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(path, ": ", strerror(errno)));
}

absl::StatusOr<Mps> Mps::Start(const std::string& folder) {
  const std::string pipes = folder + "/mps";
  const std::string logs = folder + "/mps-log";
  absl::Status s = MakeMpsFolder(pipes);
  s.Update(MakeMpsFolder(logs));
  if (!s.ok()) return s;
  // Keeps a daemon that an earlier fsctl left behind if it answers.
  if (Tell(pipes, "get_server_list\n").exit_code == 0) return Mps(pipes);
  const ChildResult started = StartControlDaemon(pipes, logs);
  if (started.exit_code == kExitNotFound) {
    return absl::NotFoundError(absl::StrCat(
        kControl,
        " is not installed; install the driver's utilities (Debian: "
        "nvidia-cuda-mps) or leave out --mps"));
  }
  if (started.succeeded()) return Mps(pipes);
  return absl::InternalError(
      absl::StrCat(kControl, " did not start; see ", logs));
}

Mps::~Mps() {
  if (!pipes_.empty()) Tell(pipes_, "quit\n");
}

Environment Mps::environment() const {
  return {{kPipes, pipes_}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"}};
}

// Reloads the fleet file of `fsctl up`.
class UpFleet final : public apply::FleetHolder {
 public:
  // `globals` and `engines` must outlive this object.
  UpFleet(const Globals& globals, std::string fleet_path,
          FleetSupervisor* engines)
      : globals_(globals),
        fleet_path_(std::move(fleet_path)),
        engines_(engines) {}

 protected:
  void DescribeTo(apply::Answer* answer) const override;
  absl::StatusOr<config::FleetDescription> Read(
      std::vector<std::string>* notes) override;
  absl::Status TakeRead() override;
  void SetDrain(double seconds) override { drain_s_ = seconds; }
  absl::Status Other(const apply::Question& question) override;

 private:
  const Globals& globals_;
  const std::string fleet_path_;
  FleetSupervisor* const engines_;
  absl::optional<FleetToRun> found_;
  double drain_s_ = kUsualDrainS;
};

uint64_t Nanoseconds(double seconds) {
  return static_cast<uint64_t>(seconds * 1e9);
}

void UpFleet::DescribeTo(apply::Answer* answer) const {
  answer->process = "fsctl up";
  answer->pid = getpid();
  answer->fleet_path = config::FleetPath(fleet_path_);
  answer->fleet = engines_->written();
  answer->engines = engines_->States();
}

absl::StatusOr<config::FleetDescription> UpFleet::Read(
    std::vector<std::string>* notes) {
  absl::StatusOr<FleetToRun> found = ReadFleetOfUp(fleet_path_);
  if (!found.ok()) return found.status();
  absl::Status s = CompleteGpus(globals_, &found->fleet, notes);
  if (s.ok()) s = engines_->CheckAddresses(found->fleet);
  if (!s.ok()) return s;
  found_ = *std::move(found);
  return found_->written;
}

absl::Status UpFleet::TakeRead() {
  engines_->Take(*std::exchange(found_, absl::nullopt), Nanoseconds(drain_s_));
  drain_s_ = kUsualDrainS;
  return absl::OkStatus();
}

absl::Status UpFleet::Other(const apply::Question& question) {
  const uint64_t drain_ns = Nanoseconds(question.seconds);
  switch (question.kind) {
    case apply::Question::Kind::kRestart:
      return engines_->Restart(question.engines, drain_ns);
    case apply::Question::Kind::kStop:
      return engines_->StopEngines(question.engines, drain_ns);
    case apply::Question::Kind::kStart:
      return engines_->StartEngines(question.engines);
    default:
      return FleetHolder::Other(question);
  }
}

constexpr uint64_t kTurnNs = 200'000'000;
constexpr uint64_t kDaemonStartNs = 10'000'000'000;

// Returns the folder of the engines' output. Creates the folder that --logs
// names if it is missing.
absl::StatusOr<std::string> LogFolder(const UpOptions& options) {
  if (options.log_folder.empty()) return finding::RuntimeFolder();
  std::error_code error;
  std::filesystem::create_directories(options.log_folder, error);
  if (!error && access(options.log_folder.c_str(), W_OK | X_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (!error) return std::filesystem::absolute(options.log_folder).string();
  return absl::InvalidArgumentError(
      absl::StrCat("--logs ", options.log_folder, ": ", error.message()));
}

// Waits for the addresses, since engines of an `up` that was killed a moment
// ago may still be ending.
absl::Status AwaitAddresses(const FleetSupervisor& engines,
                            SignalWatch* signals) {
  const uint64_t start_ns = Now().monotonic_ns;
  for (;;) {
    absl::Status s = engines.CheckAddresses();
    const bool late =
        Now().monotonic_ns - start_ns > SupervisedEngine::kPatienceNs;
    if (s.ok() || late || signals->ending() != 0) return s;
    signals->WaitFor(-1, kTurnNs);
  }
}

// Waits for the daemons, since a daemon that was started a moment ago may still
// be creating its pool.
absl::Status AwaitDaemons(const Globals& globals, config::Fleet* fleet,
                          std::vector<std::string>* warnings) {
  const uint64_t start_ns = Now().monotonic_ns;
  bool reported = false;
  for (;;) {
    config::Fleet completed = *fleet;
    warnings->clear();
    const absl::Status found = CompleteGpus(globals, &completed, warnings);
    if (found.ok()) *fleet = std::move(completed);
    if (!absl::IsNotFound(found) ||
        Now().monotonic_ns - start_ns > kDaemonStartNs) {
      return found;
    }
    if (!std::exchange(reported, true)) {
      Fail(0, absl::StrCat(found.message(), "; waiting 10 s for it"));
    }
    absl::SleepFor(absl::Nanoseconds(kTurnNs));
  }
}

// Reads the fleet for the first time. Returns 0, or prints the error and
// returns the exit code.
int ReadFirst(const Globals& globals, const UpOptions& options,
              FleetToRun* read) {
  absl::StatusOr<FleetToRun> found = ReadFleetOfUp(options.fleet_path);
  if (!found.ok()) return Fail(kExitUsage, found.status());
  std::vector<std::string> warnings;
  const absl::Status daemons = AwaitDaemons(globals, &found->fleet, &warnings);
  for (const std::string& warning : warnings) Fail(0, "warning: " + warning);
  if (!daemons.ok()) return FailWithoutPool(daemons);
  *read = *std::move(found);
  return kExitOk;
}

// Needs no daemon.
int Preview(const Globals& globals, const UpOptions& options) {
  const absl::StatusOr<FleetToRun> found = ReadFleetOfUp(options.fleet_path);
  if (!found.ok()) return Fail(kExitUsage, found.status());
  return Print(globals.json ? PreviewJson(found->fleet)
                            : PreviewText(found->fleet));
}

// Runs until it is asked to end.
void Watch(SignalWatch* signals, UpFleet* fleet, apply::Door* door,
           FleetSupervisor* engines) {
  const bool had_terminal = isatty(STDOUT_FILENO) != 0;
  while (signals->ending() == 0) {
    engines->Turn();
    signals->WaitFor(door == nullptr ? -1 : door->descriptor(), kTurnNs);
    if (door != nullptr) door->Turn();
    if (!signals->TakeHangup()) continue;
    // A terminal's shell also sends SIGHUP when the terminal closes.
    if (had_terminal && isatty(STDOUT_FILENO) == 0) return;
    const absl::Status taken = fleet->TakeAgain();
    if (!taken.ok()) {
      Fail(0, absl::StrCat("keeping the present fleet: ", taken.message()));
    }
  }
}

// Returns null, with a warning, if it cannot be opened.
std::unique_ptr<apply::Door> OpenDoor(UpFleet* fleet) {
  auto door = apply::Door::Open(
      finding::RuntimeFolder(), apply::ProcessDoor("up"),
      [fleet](const apply::Question& q) { return fleet->Reply(q); });
  if (door.ok()) return *std::move(door);
  Fail(0, absl::StrCat("warning: fsctl apply cannot reach this fsctl up: ",
                       door.status().message()));
  return nullptr;
}

int RunUp(const Globals& globals, const UpOptions& options) {
  if (options.dry_run) return Preview(globals, options);
  const absl::StatusOr<std::string> logs = LogFolder(options);
  if (!logs.ok()) return Fail(kExitUsage, logs.status());
  FleetToRun first;
  if (const int code = ReadFirst(globals, options, &first)) return code;
  const std::string path = config::FleetPath(options.fleet_path);
  FleetSupervisor engines(
      globals, std::move(first),
      {path, *logs, options.timestamps, options.keep_orphans});
  if (engines.size() == 0) {
    return Fail(kExitUsage,
                absl::StrCat(options.fleet_path,
                             ": no [[engine]] has a command; add one, like "
                             "engine = \"vllm\" and checkpoint = \"MODEL\""));
  }
  absl::StatusOr<EngineRegister> running =
      EngineRegister::Claim(finding::RuntimeFolder(), options.fleet_path);
  if (!running.ok()) return Fail(kExitBadAnswer, running.status());
  absl::optional<Mps> mps;
  if (options.mps) {
    absl::StatusOr<Mps> started = Mps::Start(finding::RuntimeFolder());
    if (!started.ok()) return Fail(kExitBadAnswer, started.status());
    mps.emplace(*std::move(started));
    fprintf(stderr,
            "fsctl: --mps is experimental: no GPU has shown yet that the work "
            "of a killed engine ends with it (gpu_check --mps asks that)\n");
    engines.SetEngineEnvironment(mps->environment());
  }
  SignalWatch signals(SignalWatch::Hangup::kIsTold);
  engines.Adopt(*std::move(running));
  const absl::Status free = AwaitAddresses(engines, &signals);
  if (!free.ok()) return Fail(kExitBadAnswer, free);
  UpFleet fleet(globals, path, &engines);
  const std::unique_ptr<apply::Door> door = OpenDoor(&fleet);
  Watch(&signals, &fleet, door.get(), &engines);
  engines.Stop();
  return kExitOk;
}
}  // namespace

void AddUp(Commands& c) {
  const auto [command, o] = c.Add(
      "up", "Start a fleet's engines and keep them running",
      "  fsctl up fleet.toml             Ctrl-C stops all engines\n"
      "  fsctl up fleet.toml --logs /var/log/fineserve\n"
      "  fsctl up fleet.toml --json      print one JSON object per line\n"
      "  fsctl up fleet.toml --mps       run the engines' kernels "
      "concurrently\n"
      "  fsctl up fleet.toml --dry-run   each engine's command, with what is "
      "filled in\n"
      "fineserved must be running. fineserve-proxy reads the same file.\n",
      RunUp);
  command->add_option("FILE", o->fleet_path, "Fleet file (TOML)")->required();
  command->add_option("--logs", o->log_folder,
                      "Folder for the engines' output (default: the runtime "
                      "folder)");
  command->add_flag("--dry-run", o->dry_run,
                    "Show what would be started, and start nothing");
  command->add_flag("--keep-orphans", o->keep_orphans,
                    "Do not restart engines that a daemon's end has left in "
                    "a former pool");
  command->add_flag("--timestamps", o->timestamps,
                    "Begin each line with the time (UTC)");
  command->add_flag("--mps", o->mps,
                    "Run the engines under NVIDIA MPS: kernels run "
                    "concurrently, but a fatal fault of one engine ends all");
}

}  // namespace fineserve::fsctl
