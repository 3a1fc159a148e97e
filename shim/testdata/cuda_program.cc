// A program that is linked to the driver's symbols. It runs the commands on its
// command line.

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/driver/prototypes.h"
#include "shim/fineserve_kv.h"
#include "shim/testdata/null_driver.h"
#include "shim/testdata/scoreboard_copy.h"
#include "shim/testdata/where.h"

extern "C" {
#pragma weak fs_kv_begin
#pragma weak fs_kv_end
#pragma weak fs_kv_progress
#pragma weak fs_kv_register
}

namespace fineserve::shim {
namespace {

using driver::CUdeviceptr;
using driver::CUresult;

// A word of the command line, and its action.
struct Command {
  const char* name;
  // Takes the words after its name; returns how many of them it used.
  int (*run)(char** words);
};

// The null driver's addresses for reserved ranges.
constexpr CUdeviceptr kReserved = 0x5000'0000'0000;
constexpr CUdeviceptr kReservedEnd = 0x6000'0000'0000;

// Allocates in a KV scope, if the shim is there.
CUresult AllocScoped(CUdeviceptr* out, size_t bytes) {
  if (fs_kv_begin != nullptr) fs_kv_begin();
  const CUresult result = driver::cuMemAlloc_v2(out, bytes);
  if (fs_kv_end != nullptr) fs_kv_end();
  return result;
}

// True if an address is in a range that the shim reserved.
bool IsShared(CUdeviceptr address) {
  return address >= kReserved && address < kReservedEnd;
}

CUdeviceptr g_latest = 0;

void PrintAlloc(CUresult result) {
  printf("alloc %u %s\n", result, IsShared(g_latest) ? "shared" : "own");
}

void Small(long count) {
  for (long i = 0; i < count; ++i) {
    CUdeviceptr address;
    driver::cuMemAlloc_v2(&address, 512);
  }
}

void Threads(long count) {
  std::atomic<long> good{0};
  std::vector<std::thread> threads;
  for (long i = 0; i < count; ++i) {
    threads.emplace_back([&good] {
      CUdeviceptr address = 0;
      if (AllocScoped(&address, 4 << 20) == 0 && IsShared(address) &&
          driver::cuMemFree_v2(address) == 0) {
        ++good;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  printf("threads %ld\n", good.load());
}

void AskIpc() {
  driver::CUipcMemHandle handle;
  printf("ipc %u\n", driver::cuIpcGetMemHandle(&handle, g_latest));
}

void RegisterView() {
  fs_kv_format format = {};
  format.struct_bytes = sizeof(format);
  format.mode = FS_KV_VIEW;
  format.planes = format.planes_per_allocation = 1;
  format.page_bytes = 64 << 10;
  fs_kv_geometry geometry = {};
  geometry.struct_bytes = sizeof(geometry);
  printf("register %d\n", fs_kv_register(&format, &geometry));
}

constexpr Command kAllocationCommands[] = {
    {"alloc",
     [](char** words) {
       PrintAlloc(driver::cuMemAlloc_v2(&g_latest, atol(words[0])));
       return 1;
     }},
    {"scoped",
     [](char** words) {
       PrintAlloc(AllocScoped(&g_latest, atol(words[0])));
       return 1;
     }},
    {"small",
     [](char** words) {
       Small(atol(words[0]));
       return 1;
     }},
    {"thread",
     [](char** words) {
       std::thread(Small, atol(words[0])).join();
       return 1;
     }},
    {"threads",
     [](char** words) {
       Threads(atol(words[0]));
       return 1;
     }},
    {"free",
     [](char**) {
       printf("free %u\n", driver::cuMemFree_v2(g_latest));
       return 0;
     }},
    {"inside",
     [](char**) {
       printf("inside %u\n", driver::cuMemFree_v2(g_latest + 1));
       return 0;
     }},
    {"asyncfree",
     [](char**) {
       printf("asyncfree %u\n", driver::cuMemFreeAsync(g_latest, nullptr));
       return 0;
     }},
    {"meminfo",
     [](char**) {
       printf("meminfo %u\n", driver::cuMemGetInfo_v2(nullptr, nullptr));
       return 0;
     }},
    {"unmaps",
     [](char**) {
       printf("unmaps %ld\n", nulldriver_calls("cuMemUnmap"));
       return 0;
     }},
    {"ipc", [](char**) { return AskIpc(), 0; }},
    {"register", [](char**) { return RegisterView(), 0; }},
    {"progress",
     [](char** words) {
       printf("progress %d\n", fs_kv_progress(atoi(words[0])));
       return 1;
     }},
};

void Resolve(const char* name, int version) {
  void* function = nullptr;
  driver::CUdriverProcAddressQueryResult status;
  driver::cuGetProcAddress_v2(name, &function, version, 0, &status);
  printf("resolve %s\n", WhereIs(function));
}

// Calls a function that has the ABI of the null driver's future function.
void Call(const char* name, int version) {
  void* function = nullptr;
  driver::CUdriverProcAddressQueryResult status;
  driver::cuGetProcAddress_v2(name, &function, version, 0, &status);
  const auto future = reinterpret_cast<int (*)(
      long, long, long, long, long, long, long, double, double)>(function);
  printf("call %d\n", future(1, 2, 3, 4, 5, 6, 7, 0.25, 0.75));
}

void ResolveByFirstAbi(const char* name, int version) {
  void* function = nullptr;
  driver::cuGetProcAddress(name, &function, version, 0);
  printf("resolve %s\n", WhereIs(function));
}

void Lookup(void* handle, const char* name) {
  printf("lookup %s\n", WhereIs(dlsym(handle, name)));
}

void OpenDeepbind(const char* file) {
  using Where = void* (*)();
  void* library = dlopen(file, RTLD_NOW | RTLD_DEEPBIND);
  if (library == nullptr) {
    printf("deepbind %s\n", dlerror());
    return;
  }
  const auto alloc = reinterpret_cast<Where>(dlsym(library, "deepbind_alloc"));
  const auto lookup = reinterpret_cast<Where>(dlsym(library, "deepbind_dlsym"));
  printf("deepbind %s %s\n", WhereIs(alloc()), WhereIs(lookup()));
}

constexpr Command kLookupCommands[] = {
    {"resolve",
     [](char** words) {
       Resolve(words[0], atoi(words[1]));
       return 2;
     }},
    {"resolve1",
     [](char** words) {
       ResolveByFirstAbi(words[0], atoi(words[1]));
       return 2;
     }},
    {"call",
     [](char** words) {
       Call(words[0], atoi(words[1]));
       return 2;
     }},
    {"lookup", [](char** words) { return Lookup(RTLD_DEFAULT, words[0]), 1; }},
    {"byhandle",
     [](char** words) {
       Lookup(dlopen("libcuda.so.1", RTLD_NOW), words[0]);
       return 1;
     }},
    {"foreign",
     [](char**) {
       void* opened = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
       printf("foreign %s\n", opened != nullptr ? "yes" : "no");
       return 0;
     }},
    {"deepbind", [](char** words) { return OpenDeepbind(words[0]), 1; }},
};

void ForkHere() {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) return;
  int status = 0;
  waitpid(child, &status, 0);
  exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

// Forks repeatedly while a thread allocates: a child's calls must return,
// whatever that thread was doing at the fork.
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

const void* g_callers_end = nullptr;

void PrintScoreboard() {
  const void* mapped = MapScoreboardOf(getpid());
  const int scoreboards = CountScoreboards(getpid());
  if (mapped == nullptr) {
    printf("scoreboard none\n");
    return;
  }
  const auto p = CopyScoreboard(mapped);
  printf("scoreboard small %lu large %lu stacks %lu scoreboards %d\n",
         p.small_allocations, p.large_allocations, p.stacks_captured,
         scoreboards);
}

void PrintCallers() {
  const auto p = CopyScoreboard(MapScoreboardOf(getpid()));
  const auto& last = p.decisions.back();
  const uint64_t* const end = last.frames + last.frame_count;
  const bool whole =
      std::find(last.frames, end, reinterpret_cast<uint64_t>(g_callers_end)) !=
      end;
  printf("callers %s\n", whole ? "whole" : "cut");
}

void PrintUses(const std::string& symbol) {
  const auto p = CopyScoreboard(MapScoreboardOf(getpid()));
  printf("uses");
  for (uint32_t i = 0; i < abi::kHookCount; ++i) {
    if (symbol != abi::kHookSymbols[i]) continue;
    for (uint32_t n : p.uses[i]) printf(" %u", n);
  }
  printf("\n");
}

void PrintLoads() {
  const auto p = CopyScoreboard(MapScoreboardOf(getpid()));
  printf("deepbind %lu foreign %lu\n", p.deepbind_stripped,
         p.foreign_namespaces);
}

constexpr Command kScoreboardCommands[] = {
    {"scoreboard", [](char**) { return PrintScoreboard(), 0; }},
    {"callers", [](char**) { return PrintCallers(), 0; }},
    {"uses", [](char** words) { return PrintUses(words[0]), 1; }},
    {"loads", [](char**) { return PrintLoads(), 0; }},
};

// Records the state that `signals` compares with; to be called at the start.
void WatchSignals() {
  // Profilers and checkpoint tools use these two.
  signal(SIGUSR1, [](int) { g_heard = g_heard + 1; });
  signal(SIGUSR2, [](int) { g_heard = g_heard + 1; });
  for (int i = 1; i < NSIG; ++i) g_handlers[i] = HandlerOf(i);
}

// Finds a command. Null if it is in none of the lists.
const Command* Find(const char* name) {
  for (const std::span<const Command> commands :
       {std::span<const Command>(kAllocationCommands),
        std::span<const Command>(kLookupCommands),
        std::span<const Command>(kProcessCommands),
        std::span<const Command>(kScoreboardCommands)}) {
    for (const Command& c : commands) {
      if (strcmp(c.name, name) == 0) return &c;
    }
  }
  return nullptr;
}

// Runs the words from argv[i] on; returns the index of the next command.
int RunCommand(char** argv, int i) {
  const Command* command = Find(argv[i]);
  if (command == nullptr) {
    fprintf(stderr, "cuda_program: no command \"%s\"\n", argv[i]);
    exit(2);
  }
  return i + 1 + command->run(argv + i + 1);
}

}  // namespace
}  // namespace fineserve::shim

int main(int argc, char** argv) {
  using namespace fineserve::shim;  // NOLINT: main has no namespace
  WatchSignals();
  g_callers_end = __builtin_return_address(0);
  int i = 1;
  while (i < argc) i = RunCommand(argv, i);
  return 0;
}
