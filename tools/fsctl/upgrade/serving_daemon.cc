#include "tools/fsctl/upgrade/serving_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "daemon/contract/abi/printable.h"
#include "daemon/contract/abi/process_start.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/upgrade/program_file.h"

namespace fineserve::fsctl {

namespace fs = std::filesystem;

namespace {

constexpr char kNobodyKeeps[] =
    "no parent keeps its pool for another daemon; run it as a unit of systemd "
    "or under fineserved --supervise from its next start on, which has to "
    "restart the engines once";

// systemctl returns when the unit has started, or has failed to.
constexpr absl::Duration kSystemctlTimeout = absl::Seconds(60);

std::string ProcFile(pid_t pid, absl::string_view name) {
  return ReadFile(absl::StrCat("/proc/", pid, "/", name));
}

std::vector<std::string> SplitAtNul(absl::string_view text) {
  absl::ConsumeSuffix(&text, absl::string_view("\0", 1));
  return absl::StrSplit(text, '\0');
}

pid_t ParentOf(pid_t pid) {
  for (absl::string_view line : absl::StrSplit(ProcFile(pid, "status"), '\n')) {
    pid_t parent = 0;
    if (absl::ConsumePrefix(&line, "PPid:") &&
        absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &parent)) {
      return parent;
    }
  }
  return 0;
}

std::string NameOf(pid_t pid) {
  return std::string(absl::StripAsciiWhitespace(ProcFile(pid, "comm")));
}

// Returns the unit of a process, which is the name of its control group.
std::string UnitOf(pid_t pid) {
  for (absl::string_view line : absl::StrSplit(ProcFile(pid, "cgroup"), '\n')) {
    const size_t slash = line.rfind('/');
    if (slash == absl::string_view::npos) continue;
    const absl::string_view name = line.substr(slash + 1);
    if (absl::EndsWith(name, ".service")) return std::string(name);
  }
  return "";
}

bool IsKept(const ServingDaemon& daemon) {
  const auto has = [&](absl::string_view prefix) {
    return std::any_of(
        daemon.environment.begin(), daemon.environment.end(),
        [&](const std::string& v) { return absl::StartsWith(v, prefix); });
  };
  return has("FDSTORE=") && has("NOTIFY_SOCKET=");
}

absl::Status FindKeeper(ServingDaemon* daemon) {
  daemon->keeper_pid = ParentOf(daemon->pid);
  daemon->keeper_start = abi::ProcessStart(daemon->keeper_pid);
  const std::string name = NameOf(daemon->keeper_pid);
  if (!IsKept(*daemon)) return absl::FailedPreconditionError(kNobodyKeeps);
  if (name == "fineserved") {
    daemon->keeper = ServingDaemon::Keeper::kSupervisor;
    return absl::OkStatus();
  }
  daemon->unit = UnitOf(daemon->pid);
  daemon->of_user_manager = daemon->keeper_pid != 1;
  daemon->keeper = ServingDaemon::Keeper::kSystemd;
  if (name == "systemd" && !daemon->unit.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the parent that kept its pool has died; the pool ends with its engines, "
      "which have to be restarted with the next daemon");
}

absl::Status RestartUnit(const ServingDaemon& daemon) {
  std::vector<std::string> command = {"systemctl"};
  if (daemon.of_user_manager) command.push_back("--user");
  command.insert(command.end(), {"restart", "--no-block", daemon.unit});
  Program program;
  program.command = std::move(command);
  const ChildResult done = RunProgram(program, kSystemctlTimeout);
  if (done.succeeded()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("systemctl restart ", daemon.unit, ": ",
                   absl::StripAsciiWhitespace(done.output)));
}

}  // namespace

absl::StatusOr<ServingDaemon> FindServingDaemon(pid_t pid) {
  ServingDaemon daemon;
  daemon.pid = pid;
  daemon.start = abi::ProcessStart(pid);
  daemon.executable.Reset(
      open(absl::StrCat("/proc/", pid, "/exe").c_str(), O_RDONLY | O_CLOEXEC));
  if (!daemon.executable.valid()) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot inspect daemon ", pid, " (", strerror(errno),
                     "); run fsctl as its user or as root"));
  }
  daemon.arguments = SplitAtNul(ProcFile(pid, "cmdline"));
  daemon.environment = SplitAtNul(ProcFile(pid, "environ"));
  daemon.program = daemon.arguments[0];
  daemon.arguments.erase(daemon.arguments.begin());
  if (absl::Status s = FindKeeper(&daemon); !s.ok()) return s;
  if (absl::StartsWith(daemon.program, "/")) return daemon;
  return absl::FailedPreconditionError(
      absl::StrCat("daemon ", pid, " was not started by an absolute path (",
                   daemon.program, ")"));
}

absl::Status CheckAnswers(const ServingDaemon& daemon, int socket) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
      peer.pid == daemon.pid) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("pid ", peer.pid, " answers, but its slab table names pid ",
                   daemon.pid, " as its daemon"));
}

absl::Status CheckTrust(const ServingDaemon& daemon) {
  if (geteuid() != 0) return absl::OkStatus();
  std::error_code error;
  std::string runs = fs::read_symlink(
      absl::StrCat("/proc/self/fd/", daemon.executable.get()), error);
  // The kernel appends this suffix if the file has been replaced.
  runs = std::string(absl::StripSuffix(runs, " (deleted)"));
  const fs::path program = daemon.program;
  const fs::path folder = fs::canonical(program.parent_path(), error);
  if (runs != folder / program.filename() &&
      !IsSameFile(daemon.executable.get(), daemon.program)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "daemon ", daemon.pid, " runs ",
        abi::Printable(runs.data(), runs.size()),
        ", not the program by whose path it was started, ",
        abi::Printable(daemon.program.data(), daemon.program.size())));
  }
  return CheckOnlyRootChanges(daemon.program);
}

std::string KeeperName(const ServingDaemon& daemon) {
  return daemon.keeper == ServingDaemon::Keeper::kSupervisor
             ? absl::StrCat("fineserved --supervise (pid ", daemon.keeper_pid,
                            ")")
             : absl::StrCat("systemd (", daemon.unit, ")");
}

absl::Status StartNext(const ServingDaemon& daemon) {
  if (daemon.keeper == ServingDaemon::Keeper::kSystemd) {
    return RestartUnit(daemon);
  }
  const driver::Descriptor keeper =
      abi::OpenPidfd(daemon.keeper_pid, daemon.keeper_start);
  if (!keeper.valid() ||
      syscall(SYS_pidfd_send_signal, keeper.get(), SIGUSR2, nullptr, 0) != 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot signal ", KeeperName(daemon), ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace fineserve::fsctl
