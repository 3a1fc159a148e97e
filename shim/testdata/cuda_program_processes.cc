// cuda_program's commands about its process: forks, descriptors, signals.
// clang-format off
//
//   fork              what follows runs in a child; the parent waits and exits
//   storm COUNT       forks COUNT children while a thread allocates KV
//   exec              executes the program again with what follows
//   closeall          closes every descriptor from 3 on
//   sockets           "sockets N", the open ones
//   signals           "signals N heard N blocked N": how many handlers changed
//                     since the start, how many of a SIGUSR1 and a SIGUSR2 came
//                     to the program's own, how many signals are blocked
//
// clang-format on

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "shim/testdata/cuda_program.h"

namespace fineserve::shim {
namespace {

using driver::CUdeviceptr;

void ForkHere() {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) return;
  int status = 0;
  waitpid(child, &status, 0);
  exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

// A child must get its answer whatever the thread was doing at the fork.
void Storm(long count) {
  std::atomic<bool> stop{false};
  std::thread allocating([&stop] {
    while (!stop) {
      CUdeviceptr address;
      if (AllocScoped(&address, 4 << 20) == 0) {
        driver::cuMemFree_v2(address);
      }
    }
  });
  long answered = 0;
  for (long i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      CUdeviceptr address = 0;
      _exit(AllocScoped(&address, 4 << 20) == 0 && !IsShared(address) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) ++answered;
  }
  stop = true;
  allocating.join();
  printf("storm %ld\n", answered);
}

void PrintSockets() {
  int count = 0;
  for (int fd = 3; fd < 256; ++fd) {
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode)) ++count;
  }
  printf("sockets %d\n", count);
}

void* g_handlers[NSIG];
volatile sig_atomic_t g_heard = 0;

void* HandlerOf(int signal) {
  struct sigaction now = {};
  sigaction(signal, nullptr, &now);
  return reinterpret_cast<void*>(now.sa_handler);
}

void PrintSignals() {
  int changed = 0;
  for (int i = 1; i < NSIG; ++i) changed += HandlerOf(i) != g_handlers[i];
  raise(SIGUSR1);
  raise(SIGUSR2);
  sigset_t blocked;
  sigprocmask(SIG_SETMASK, nullptr, &blocked);
  int count = 0;
  for (int i = 1; i < NSIG; ++i) count += sigismember(&blocked, i) == 1;
  printf("signals %d heard %d blocked %d\n", changed, static_cast<int>(g_heard),
         count);
}

constexpr Command kProcessCommands[] = {
    {"fork", [](char**) { return ForkHere(), 0; }},
    {"storm", [](char** words) { return Storm(atol(words[0])), 1; }},
    {"exec",
     [](char** words) {
       fflush(stdout);
       words[-1] = program_invocation_name;
       execv("/proc/self/exe", words - 1);
       return 0;
     }},
    {"closeall",
     [](char**) {
       for (int fd = 3; fd < 256; ++fd) close(fd);
       return 0;
     }},
    {"sockets", [](char**) { return PrintSockets(), 0; }},
    {"signals", [](char**) { return PrintSignals(), 0; }},
};

}  // namespace

std::span<const Command> ProcessCommands() { return kProcessCommands; }

void WatchSignals() {
  // Profilers and checkpoint tools use these two.
  signal(SIGUSR1, [](int) { g_heard = g_heard + 1; });
  signal(SIGUSR2, [](int) { g_heard = g_heard + 1; });
  for (int i = 1; i < NSIG; ++i) g_handlers[i] = HandlerOf(i);
}

}  // namespace fineserve::shim
