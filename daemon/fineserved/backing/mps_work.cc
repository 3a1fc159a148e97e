#include "daemon/fineserved/backing/mps_work.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::backing {
namespace {

// While a quarantine lasts, a list is taken every 50 ms.
constexpr int kListsBetweenTries = 20;

// Longest time that the control program may take. Heuristic.
constexpr int kControlMs = 5'000;

constexpr char kControl[] = "nvidia-cuda-mps-control";
constexpr char kPipes[] = "CUDA_MPS_PIPE_DIRECTORY";

bool Contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

std::vector<std::string> Environment(const std::string& pipes) {
  std::vector<std::string> variables;
  for (char** v = environ; *v != nullptr; ++v) {
    if (pipes.empty() || !absl::StartsWith(*v, absl::StrCat(kPipes, "="))) {
      variables.push_back(*v);
    }
  }
  if (!pipes.empty()) {
    variables.push_back(absl::StrCat(kPipes, "=", pipes));
  }
  return variables;
}

// The exit status of the control program, which reads its command from `input`;
// -1 if it cannot run.
int Tell(int input, const std::string& pipes) {
  std::vector<std::string> variables = Environment(pipes);
  std::vector<char*> environment;
  for (std::string& variable : variables) {
    environment.push_back(variable.data());
  }
  environment.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY,
                                   0);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  std::string program = kControl;
  char* const arguments[] = {program.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, kControl, &files, nullptr, arguments,
                                 environment.data());
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return -1;
  const driver::Descriptor pidfd(
      static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  pollfd ended = {pidfd.get(), POLLIN, 0};
  if (!pidfd.valid() || poll(&ended, 1, kControlMs) != 1) kill(child, SIGKILL);
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

void MpsWork::Saw(const DeviceProcesses& listed) {
  const std::set<pid_t> servers(listed.mps_servers.begin(),
                                listed.mps_servers.end());
  for (pid_t pid : listed.direct) seen_[pid] = {};
  for (pid_t pid : listed.mps_clients) seen_[pid] = {servers, false, 0};
}

std::vector<pid_t> MpsWork::StillAtWork(const DeviceProcesses& listed,
                                        const std::vector<pid_t>& awaited) {
  const std::vector<pid_t> all = listed.All();
  std::vector<pid_t> working;
  for (pid_t pid : awaited) {
    if (!Contains(all, pid) && !HasEnded(pid, listed)) working.push_back(pid);
  }
  return working;
}

bool MpsWork::HasEnded(pid_t pid, const DeviceProcesses& listed) {
  auto seen = seen_.find(pid);
  if (seen == seen_.end()) {
    seen = seen_.emplace(pid, Client()).first;
    seen->second.servers.insert(listed.mps_servers.begin(),
                                listed.mps_servers.end());
  }
  Client& client = seen->second;
  std::erase_if(client.servers, [&](pid_t server) {
    return !Contains(listed.mps_servers, server);
  });
  if (client.servers.empty() || client.has_ended) return true;
  if (client.pause > 0) {
    --client.pause;
    return false;
  }
  client.pause = kListsBetweenTries;
  client.has_ended =
      std::any_of(client.servers.begin(), client.servers.end(),
                  [&](pid_t server) { return terminate_(server, pid); });
  return client.has_ended;
}

bool TerminateMpsClient(const std::vector<std::string>& pipes, pid_t server,
                        pid_t client) {
  const std::string command =
      absl::StrCat("terminate_client ", server, " ", client, "\n");
  return std::any_of(pipes.begin(), pipes.end(), [&](const std::string& one) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    const driver::Descriptor input(ends[0]);
    driver::Descriptor output(ends[1]);
    const bool written = write(output.get(), command.data(), command.size()) ==
                         static_cast<ssize_t>(command.size());
    output.Reset();
    return written && Tell(input.get(), one) == 0;
  });
}

}  // namespace fineserve::backing
