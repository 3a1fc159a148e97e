#include "tools/fsctl/upgrade/release.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "daemon/contract/abi/printable.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/processes/inspected_process.h"

namespace fineserve::fsctl {
namespace {

// cuInit takes seconds on a machine with many GPUs.
constexpr absl::Duration kAskTimeout = absl::Seconds(30);
// The value of SD_LISTEN_FDS_START (sd_listen_fds(3)).
constexpr int kFirstInherited = 3;

std::string LastLine(const std::string& text) {
  const std::vector<std::string> lines =
      absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty()
             ? "it said nothing"
             : abi::Printable(lines.back().data(), lines.back().size());
}

std::string HowItEnded(const ChildResult& result) {
  if (result.timed_out) return "it did not answer in time";
  if (result.signal != 0) {
    return absl::StrCat("it died of signal ", result.signal);
  }
  return LastLine(result.output);
}

// True for variables that tell a daemon about its keeper, which are left out.
bool IsOfItsKeeper(absl::string_view variable) {
  for (const char* name :
       {"NOTIFY_SOCKET=", "FDSTORE=", "LISTEN_", "WATCHDOG_"}) {
    if (absl::StartsWith(variable, name)) return true;
  }
  return false;
}

// Returns the numbers of a line of /proc/PID/status.
std::vector<uint32_t> NumbersOf(const std::string& status, const char* name) {
  std::vector<uint32_t> numbers;
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) continue;
    for (const absl::string_view word :
         absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
      uint32_t number;
      if (absl::SimpleAtoi(word, &number)) numbers.push_back(number);
    }
  }
  return numbers;
}

// Runs in a child. Takes the rights of the serving daemon, which the next one
// will have, so that a file which only root can read does not pass as readable.
// If the caller is not root, it keeps its rights.
bool TakeRightsOf(pid_t pid) {
  if (geteuid() != 0) return true;
  const std::string status = ReadFile(absl::StrCat("/proc/", pid, "/status"));
  // The second number of Uid and of Gid is the effective id.
  const std::vector<uint32_t> uids = NumbersOf(status, "Uid:"),
                              gids = NumbersOf(status, "Gid:"),
                              groups = NumbersOf(status, "Groups:");
  if (uids.size() < 2 || gids.size() < 2) return false;
  const std::vector<gid_t> supplementary(groups.begin(), groups.end());
  return setgroups(supplementary.size(), supplementary.data()) == 0 &&
         setresgid(gids[1], gids[1], gids[1]) == 0 &&
         setresuid(uids[1], uids[1], uids[1]) == 0;
}

// In a child.
int AskAsNext(const std::string& path, const ServingDaemon& daemon, int table,
              int output) {
  RedirectOutput(output);
  if (chdir(absl::StrCat("/proc/", daemon.pid, "/cwd").c_str()) != 0 ||
      dup2(table, kFirstInherited) < 0) {
    return kExitNotExecutable;
  }
  // Opens the program first, since the daemon's user may have no access to its
  // folder; it is installed elsewhere later.
  const int program = open(path.c_str(), O_RDONLY);  // NOLINT: no O_CLOEXEC
  if (program < 0 || !TakeRightsOf(daemon.pid)) return kExitNotExecutable;
  clearenv();
  for (const std::string& variable : daemon.environment) {
    const size_t equals = variable.find('=');
    if (equals == std::string::npos || IsOfItsKeeper(variable)) continue;
    setenv(variable.substr(0, equals).c_str(),
           variable.substr(equals + 1).c_str(), 1);
  }
  SetEnvironment({{"LISTEN_PID", absl::StrCat(getpid())},
                  {"LISTEN_FDS", "1"},
                  {"LISTEN_FDNAMES", "table"}});
  std::vector<std::string> command = {absl::StrCat("/proc/self/fd/", program)};
  command.insert(command.end(), daemon.arguments.begin(),
                 daemon.arguments.end());
  command.push_back("--check-takeover");
  return Exec(command);
}

absl::StatusOr<Release> ReleaseOf(const std::string& path,
                                  const ChildResult& answer) {
  if (!answer.succeeded()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " does not run here: ", HowItEnded(answer)));
  }
  absl::StatusOr<Release> release = ParseRelease(answer.output);
  if (release.ok()) return release;
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is no fineserved: ", release.status().message()));
}

}  // namespace

std::string ReleaseName(const Release& release) {
  return absl::StrCat("fineserved ", release.version, " (ABI ", release.abi,
                      ")");
}

absl::StatusOr<Release> ParseRelease(const std::string& version_text) {
  // "fineserved 0.1.0, ABI 10"
  absl::string_view text = absl::StripAsciiWhitespace(version_text);
  const std::string seen = LastLine(std::string(text));
  Release release;
  const std::vector<absl::string_view> parts =
      absl::ConsumePrefix(&text, "fineserved ")
          ? absl::StrSplit(text, absl::MaxSplits(", ABI ", 1))
          : std::vector<absl::string_view>{};
  if (parts.size() != 2 || parts[0].empty() ||
      !absl::SimpleAtoi(parts[1], &release.abi)) {
    return absl::InvalidArgumentError(
        absl::StrCat("its --version is \"", seen, "\""));
  }
  release.version = abi::Printable(parts[0].data(), parts[0].size());
  return release;
}

absl::StatusOr<Release> AskRelease(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": ", strerror(errno),
                     "; install the release there, or name one by --binary"));
  }
  if (!S_ISREG(st.st_mode) || access(path.c_str(), X_OK) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no file that this user may execute"));
  }
  return ReleaseOf(path,
                   RunProgram({{path, "--version"}, {}, "", ""}, kAskTimeout));
}

// Runs the program with the daemon's rights, since the daemon's user has chosen
// it.
absl::StatusOr<Release> AskRelease(const ServingDaemon& daemon) {
  const auto ask = [&](int output) {
    RedirectOutput(output);
    // A script needs it after exec.
    const int program = dup(daemon.executable.get());  // NOLINT: no O_CLOEXEC
    if (program < 0 || !TakeRightsOf(daemon.pid)) return kExitNotExecutable;
    return Exec({absl::StrCat("/proc/self/fd/", program), "--version"});
  };
  return ReleaseOf(absl::StrCat("/proc/", daemon.pid, "/exe"),
                   RunChild(ask, kAskTimeout));
}

absl::Status AskTakeover(const std::string& path, const ServingDaemon& daemon,
                         int table) {
  // Away from where it has to be.
  const driver::Descriptor copy(
      fcntl(table, F_DUPFD_CLOEXEC, kFirstInherited + 1));
  const ChildResult answer = RunChild(
      [&](int output) { return AskAsNext(path, daemon, copy.get(), output); },
      kAskTimeout);
  if (answer.succeeded()) return absl::OkStatus();
  const std::string why = HowItEnded(answer);
  if (!answer.timed_out && answer.exit_code == 2 &&
      absl::StrContains(why, "--check-takeover")) {
    return absl::UnimplementedError(
        "this release cannot be asked; its ABI version is the right one");
  }
  return absl::FailedPreconditionError(why);
}

}  // namespace fineserve::fsctl
