#include "bench/micro/process.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "bench/micro/report.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::bench {
namespace {

[[noreturn]] void Become(const std::vector<std::string>& words,
                         const std::vector<std::string>& environment,
                         int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (output < 0) output = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(output, STDOUT_FILENO);
  for (const std::string& e : environment) putenv(strdup(e.c_str()));
  std::vector<char*> argv;
  for (const std::string& w : words) {
    argv.push_back(const_cast<char*>(w.c_str()));
  }
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  perror(argv[0]);
  _exit(127);
}

}  // namespace

std::string ProgramFolder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

uint16_t FreePort() {
  const driver::Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), any, bytes) != 0 ||
      getsockname(fd.get(), any, &bytes) != 0) {
    Die(std::string("no free port: ") + strerror(errno));
  }
  return ntohs(address.sin_port);
}

Folder::Folder(const std::string& parent)
    : path_(parent + "/fineserve-bench-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) Die("mkdtemp " + path_);
}

Folder::Folder(Folder&& other) noexcept
    : path_(std::exchange(other.path_, std::string())) {}

Folder::~Folder() {
  if (!path_.empty()) std::filesystem::remove_all(path_);
}

Process::Process(const std::vector<std::string>& words,
                 const std::vector<std::string>& environment, int output)
    : pid_(fork()) {
  if (pid_ < 0) Die("fork for " + words[0]);
  if (pid_ == 0) Become(words, environment, output);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)) {}

Process::~Process() {
  if (pid_ < 0) return;
  kill(pid_, SIGTERM);
  Wait();
}

int Process::Wait() {
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return status;
}

double Process::CpuSeconds() const {
  double ns = 0;
  const std::string tasks = "/proc/" + std::to_string(pid_) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::ifstream file(task.path() / "schedstat");
    double running_ns = 0;
    file >> running_ns;
    ns += running_ns;
  }
  return ns * 1e-9;
}

uint64_t Process::ResidentBytes() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/statm");
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace fineserve::bench
