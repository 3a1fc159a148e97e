#include "tests/integration/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <utility>

namespace fineserve::integration {
namespace {

// Generous: sanitizers and busy machines.
constexpr uint64_t kBoundNs = 20'000'000'000;
constexpr int kBoundMs = 20'000;

std::pair<driver::Descriptor, driver::Descriptor> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) abort();
  return {driver::Descriptor(ends[0]), driver::Descriptor(ends[1])};
}

}  // namespace

void BecomeCommand(const std::vector<std::string>& command,
                   const Process::Environment& environment) {
  for (const auto& [name, value] : environment) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  // A test that dies must not leave processes behind.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<char*> argv;
  for (const std::string& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(127);
}

uint64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(t.tv_nsec);
}

bool PastDeadline(uint64_t started_ns) {
  return NowNs() > started_ns + kBoundNs;
}

unsigned RandomSeed() {
  unsigned seed = 0;
  EXPECT_EQ(getrandom(&seed, sizeof(seed), 0),
            static_cast<ssize_t>(sizeof(seed)));
  return seed;
}

void Breathe() { usleep(2000); }

Process::Process(const std::vector<std::string>& command,
                 const Environment& environment) {
  char path[] = "/tmp/fineserve-stderr-XXXXXX";
  const driver::Descriptor error_file(mkstemp(path));
  stderr_path_ = path;
  auto [child_in, our_in] = MakePipe();
  auto [our_out, child_out] = MakePipe();
  pid_ = fork();
  if (pid_ == 0) {
    dup2(child_in.get(), STDIN_FILENO);
    dup2(child_out.get(), STDOUT_FILENO);
    dup2(error_file.get(), STDERR_FILENO);
    BecomeCommand(command, environment);
  }
  stdin_ = std::move(our_in);
  stdout_ = std::move(our_out);
}

Process::~Process() {
  if (!reaped_) {
    Signal(SIGKILL);
    Wait();
  }
  unlink(stderr_path_.c_str());
}

bool Process::Fill() {
  pollfd ready = {stdout_.get(), POLLIN, 0};
  if (poll(&ready, 1, kBoundMs) <= 0) {
    ADD_FAILURE() << "pid " << pid_ << " said nothing in " << kBoundMs
                  << " ms; stderr: " << Stderr();
    return false;
  }
  char chunk[4096];
  const ssize_t n = read(stdout_.get(), chunk, sizeof(chunk));
  if (n <= 0) return false;
  buffered_.append(chunk, static_cast<size_t>(n));
  return true;
}

std::string Process::ReadLine() {
  size_t end;
  while ((end = buffered_.find('\n')) == std::string::npos) {
    if (!Fill()) return std::exchange(buffered_, "");
  }
  std::string line = buffered_.substr(0, end);
  buffered_.erase(0, end + 1);
  return line;
}

std::string Process::ReadLineWith(const std::string& prefix) {
  for (;;) {
    std::string line = ReadLine();
    if (line.empty() || line.rfind(prefix, 0) == 0) return line;
  }
}

std::string Process::Ask(const std::string& line) {
  const std::string text = line + "\n";
  if (write(stdin_.get(), text.data(), text.size()) < 0) {
    ADD_FAILURE() << "pid " << pid_ << " takes no input; stderr: " << Stderr();
    return "";
  }
  return ReadLine();
}

std::string Process::ReadAll() {
  while (Fill()) {
  }
  return std::exchange(buffered_, "");
}

std::string Process::Stderr() const {
  std::ifstream file(stderr_path_);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Process::Signal(int signal) { kill(pid_, signal); }

bool Process::alive() {
  if (!reaped_ && waitpid(pid_, &status_, WNOHANG) == pid_) reaped_ = true;
  return !reaped_;
}

int Process::Wait() {
  if (!Eventually([this] { return !alive(); })) {
    ADD_FAILURE() << "pid " << pid_ << " does not end; stderr: " << Stderr();
    Signal(SIGKILL);
    waitpid(pid_, &status_, 0);
    reaped_ = true;
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
}

Finished RunToEnd(const std::vector<std::string>& command,
                  const Process::Environment& environment) {
  Process process(command, environment);
  process.CloseStdin();
  std::string out = process.ReadAll();
  const int code = process.Wait();
  return {code, std::move(out), process.Stderr()};
}

}  // namespace fineserve::integration
