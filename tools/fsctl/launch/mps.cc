#include "tools/fsctl/launch/mps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/process/child.h"

namespace fineserve::fsctl {
namespace {

constexpr char kControl[] = "nvidia-cuda-mps-control";
constexpr char kPipes[] = "CUDA_MPS_PIPE_DIRECTORY";
constexpr char kLogs[] = "CUDA_MPS_LOG_DIRECTORY";
constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr int kNotExecutable = 126;
constexpr int kNotInstalled = 127;

// A line for the control daemon as its standard input; nothing: end of file.
driver::Descriptor InputOf(const std::string& line) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return driver::Descriptor();
  const driver::Descriptor write_end(ends[1]);
  // A pipe takes so little at once.
  if (write(write_end.get(), line.data(), line.size()) < 0) {
    return driver::Descriptor();
  }
  return driver::Descriptor(ends[0]);
}

// In a child: becomes the control program, with `argument` or null; the exit
// code if that fails.
int Become(const std::string& pipes, const std::string& line, int output,
           const char* argument) {
  dup2(InputOf(line).get(), STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  setenv(kPipes, pipes.c_str(), 1);
  execlp(kControl, kControl, argument, nullptr);
  return errno == ENOENT ? kNotInstalled : kNotExecutable;
}

// The control program, told `line`.
ChildResult Tell(const std::string& pipes, const std::string& line) {
  return RunChild(
      [&](int output) { return Become(pipes, line, output, nullptr); },
      kPatience);
}

// The same as a daemon. Its output is a file's, for it lives on.
ChildResult StartDaemon(const std::string& pipes, const std::string& logs) {
  return RunChild(
      [&](int) {
        const int log = open((logs + "/start.log").c_str(),
                             O_WRONLY | O_CREAT | O_TRUNC, 0600);
        setenv(kLogs, logs.c_str(), 1);
        return Become(pipes, "", log, "-d");
      },
      kPatience);
}

absl::Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(path, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<Mps> Mps::Start(const std::string& folder) {
  const std::string pipes = folder + "/mps";
  const std::string logs = folder + "/mps-log";
  absl::Status s = MakeFolder(pipes);
  s.Update(MakeFolder(logs));
  if (!s.ok()) return s;
  // One that an fsctl before this left is used on: it answers.
  if (Tell(pipes, "get_server_list\n").exit_code == 0) return Mps(pipes);
  const ChildResult started = StartDaemon(pipes, logs);
  if (started.exit_code == kNotInstalled) {
    return absl::NotFoundError(absl::StrCat(
        kControl,
        " is not installed; install the driver's utilities (Debian: "
        "nvidia-cuda-mps) or leave out --mps"));
  }
  if (started.exit_code == 0 && started.signal == 0) return Mps(pipes);
  return absl::InternalError(
      absl::StrCat(kControl, " does not start; see ", logs));
}

Mps::~Mps() {
  if (!pipes_.empty()) Tell(pipes_, "quit\n");
}

std::vector<std::pair<std::string, std::string>> Mps::environment() const {
  return {{kPipes, pipes_}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"}};
}

}  // namespace fineserve::fsctl
