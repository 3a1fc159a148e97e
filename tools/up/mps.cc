#include "tools/up/mps.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tools/fsctl/process/child.h"

namespace fineserve::fsctl {
namespace {

constexpr char kControl[] = "nvidia-cuda-mps-control";
constexpr char kPipes[] = "CUDA_MPS_PIPE_DIRECTORY";
constexpr char kLogs[] = "CUDA_MPS_LOG_DIRECTORY";
constexpr absl::Duration kControlPatience = absl::Seconds(20);

// Runs the control program, which passes `input` to the control daemon.
ChildResult Tell(const std::string& pipes, const std::string& input) {
  return RunProgram({{kControl}, {{kPipes, pipes}}, input, ""},
                    kControlPatience);
}

// Starts the control daemon. It lives on, so its output goes to a file.
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

}  // namespace

absl::StatusOr<Mps> Mps::Start(const std::string& folder) {
  const std::string pipes = folder + "/mps";
  const std::string logs = folder + "/mps-log";
  absl::Status s = MakeMpsFolder(pipes);
  s.Update(MakeMpsFolder(logs));
  if (!s.ok()) return s;
  // A daemon that an earlier fsctl left behind answers: keep it.
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

}  // namespace fineserve::fsctl
