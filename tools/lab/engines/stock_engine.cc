// An engine that knows nothing of FineServe: it allocates device memory as an
// LLM engine does, writes a pattern into all of it and reads it back. Tests
// preload the shim onto it; `--help` lists what it does.
//
// stdout, one line each, flushed:
//   kv zero: yes | no: what was found where
//   round 0 ok seed=1 bytes=33554432       once per --rounds
//   ready pid=4711 kv=33554432
//   ok … | error …                         one answer per command (--hold)

#include <dlfcn.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "tools/lab/engines/device_memory.h"
#include "tools/lab/engines/engine_memory.h"
#include "tools/lab/engines/engine_options.h"
#include "tools/lab/engines/shared_memory.h"
#include "tools/lab/engines/weak_kv.h"

namespace stock_engine {
namespace {

// The default stream, which tests can keep busy. One thread.
class HeldStream {
 public:
  // Queues work that does not end before Resume, and an event behind it.
  static void Stall();
  static void Resume();

  // Begins to capture a fill on a separate stream, in CUDA's default mode, and
  // waits for another stream during the capture.
  static void BeginCapture();
  static void EndCapture();

  // Waits only for "stream", "context" or "event" (the event of the last
  // Stall). If `ask`, instead queries whether "stream" or "event" is done.
  // False if `what` is anything else.
  static bool Wait(const std::string& what, bool ask);
};

using fineserve::driver::CUDA_ERROR_NOT_READY;

// Stored with release in Resume, loaded with acquire in HoldUp.
std::atomic<bool> g_held{false};
fineserve::driver::CUevent g_behind = nullptr;

void HoldUp(void*) {
  while (g_held.load(std::memory_order_acquire)) usleep(100);
}

// Also accepts a query's answer that the work is not done.
void Check(CUresult answer, const char* function) {
  if (answer != CUDA_ERROR_NOT_READY) CheckCuda(answer, function);
}

void HeldStream::Stall() {
  if (g_behind == nullptr) {
    STOCK_ENGINE_CALL(cuEventCreate, &g_behind,
                      fineserve::driver::CU_EVENT_DISABLE_TIMING);
  }
  g_held.store(true, std::memory_order_relaxed);
  STOCK_ENGINE_CALL(cuLaunchHostFunc, nullptr, HoldUp, nullptr);
  STOCK_ENGINE_CALL(cuEventRecord, g_behind, nullptr);
}

void HeldStream::Resume() { g_held.store(false, std::memory_order_release); }

CUstream g_captured = nullptr;

void HeldStream::BeginCapture() {
  using namespace fineserve::driver;  // NOLINT: this function calls CUDA
  CUstream other;
  CUdeviceptr memory;
  STOCK_ENGINE_CALL(cuStreamCreate, &g_captured, CU_STREAM_NON_BLOCKING);
  STOCK_ENGINE_CALL(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
  STOCK_ENGINE_CALL(cuMemAlloc_v2, &memory, 4096);
  STOCK_ENGINE_CALL(cuStreamBeginCapture_v2, g_captured,
                    CU_STREAM_CAPTURE_MODE_GLOBAL);
  STOCK_ENGINE_CALL(cuMemsetD8Async, memory, 1, 4096, g_captured);
  STOCK_ENGINE_CALL(cuStreamSynchronize, other);
}

void HeldStream::EndCapture() {
  CUgraph graph;
  STOCK_ENGINE_CALL(cuStreamEndCapture, g_captured, &graph);
  STOCK_ENGINE_CALL(cuGraphDestroy, graph);
}

bool HeldStream::Wait(const std::string& what, bool ask) {
  if (what == "stream" && ask) {
    Check(fineserve::driver::cuStreamQuery(nullptr), "cuStreamQuery");
  } else if (what == "stream") {
    STOCK_ENGINE_CALL(cuStreamSynchronize, nullptr);
  } else if (what == "event" && ask) {
    Check(fineserve::driver::cuEventQuery(g_behind), "cuEventQuery");
  } else if (what == "event") {
    STOCK_ENGINE_CALL(cuEventSynchronize, g_behind);
  } else if (what == "context" && !ask) {
    STOCK_ENGINE_CALL(cuCtxSynchronize);
  } else {
    return false;
  }
  return true;
}

// The primary context of one device, current on this thread.
class Context {
 public:
  explicit Context(int ordinal) {
    STOCK_ENGINE_CALL(cuInit, 0);
    STOCK_ENGINE_CALL(cuDeviceGet, &device_, ordinal);
    fineserve::driver::CUcontext context;
    STOCK_ENGINE_CALL(cuDevicePrimaryCtxRetain, &context, device_);
    STOCK_ENGINE_CALL(cuCtxSetCurrent, context);
  }
  ~Context() { STOCK_ENGINE_CALL(cuDevicePrimaryCtxRelease_v2, device_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

 private:
  fineserve::driver::CUdevice device_ = 0;
};

bool ReportMismatch(const Mismatch& mismatch) {
  if (!mismatch.found) return false;
  printf("error mismatch %s\n", mismatch.Text().c_str());
  return true;
}

// Allocates KV and says whether it came zeroed, before anything is written.
bool StartKv(EngineMemory& memory) {
  std::string where;
  if (!memory.AllocateKv(&where)) {
    printf("error cuMemAlloc_v2 CUDA_ERROR_OUT_OF_MEMORY %s\n", where.c_str());
    return false;
  }
  const Mismatch dirty = memory.FindNonZeroKv();
  if (dirty.found) {
    printf("kv zero: no: %s\n", dirty.Text().c_str());
  } else {
    printf("kv zero: yes\n");
  }
  return true;
}

bool RunRounds(EngineMemory& memory, const Options& options) {
  memory.WriteWeights();
  for (int round = 0; round < options.rounds; ++round) {
    EngineMemory::ChurnSmallAllocations(options.small_allocations,
                                        options.seed + round);
    memory.WriteKv(options.seed + round);
    if (ReportMismatch(memory.VerifyAll())) return false;
    printf("round %d ok seed=%" PRIu64 " bytes=%" PRIu64 "\n", round,
           memory.kv_seed(), memory.kv_bytes());
  }
  return true;
}

// Sleeps forever and keeps every inherited descriptor open. Makes only system
// calls, because other threads' locks may be held.
[[noreturn]] void SleepUntilKilled() {
  for (;;) pause();
}

// Forks a child that only a signal ends. The raw system call runs no fork
// handlers, as in language runtimes that call clone themselves.
void Fork(bool through_libc) {
  signal(SIGCHLD, SIG_IGN);  // a killed child leaves no zombie
  const long pid =
      through_libc ? fork() : syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (pid == 0) SleepUntilKilled();
  printf(pid > 0 ? "ok child=%ld\n" : "error fork %ld\n", pid);
}

// Ends the primary context, and everything that was allocated in it.
void EndContext(bool reset) {
  if (reset) {
    STOCK_ENGINE_CALL(cuDevicePrimaryCtxReset_v2, 0);
  } else {
    STOCK_ENGINE_CALL(cuDevicePrimaryCtxRelease_v2, 0);
  }
  puts("ok ended");
}

// Fills a layer from the next device, as a device with peer access may do.
void FillFromPeer(const Range& layer) {
  fineserve::driver::CUcontext own, peer;
  STOCK_ENGINE_CALL(cuCtxGetCurrent, &own);
  STOCK_ENGINE_CALL(cuDevicePrimaryCtxRetain, &peer, 1);
  STOCK_ENGINE_CALL(cuCtxPushCurrent_v2, peer);
  STOCK_ENGINE_CALL(cuCtxEnablePeerAccess, own, 0);
  STOCK_ENGINE_CALL(cuMemsetD8_v2, layer.address, 0, layer.bytes);
  const auto result = fineserve::driver::cuCtxSynchronize();
  STOCK_ENGINE_CALL(cuCtxPopCurrent_v2, &peer);
  printf("ok peer %u\n", result);
}

// Makes one page of a layer bad, on the emulated device.
void Spoil(const Range& layer) {
  const auto spoil =
      reinterpret_cast<int (*)(uint64_t)>(dlsym(RTLD_DEFAULT, "emucuda_spoil"));
  puts(spoil != nullptr && spoil(layer.address) == 0 ? "ok spoiled"
                                                     : "error spoil");
}

// Executes this program again in this process: directly if `at_once`, otherwise
// from a shell that first waits for a line.
void Exec(bool at_once) {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  if (!at_once) words = {"sh", "-c", "read go; exec \"$@\"", "sh"};
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(at_once ? "/proc/self/exe" : "/bin/sh", arguments.data());
  puts("error execv");
}

void Verify(EngineMemory& memory) {
  if (ReportMismatch(memory.VerifyAll())) return;
  printf("ok verified bytes=%" PRIu64 " seed=%" PRIu64 "\n", memory.kv_bytes(),
         memory.kv_seed());
}

void Write(EngineMemory& memory, const std::string& seed) {
  char* end;
  const uint64_t value = strtoull(seed.c_str(), &end, 10);
  if (seed.empty() || *end != '\0') {
    puts("error write needs a number");
    return;
  }
  memory.WriteKv(value);
  printf("ok wrote bytes=%" PRIu64 " seed=%" PRIu64 "\n", memory.kv_bytes(),
         value);
}

void CheckZero(EngineMemory& memory) {
  const Mismatch dirty = memory.FindNonZeroKv();
  if (dirty.found) {
    printf("error nonzero %s\n", dirty.Text().c_str());
  } else {
    printf("ok zero bytes=%" PRIu64 "\n", memory.kv_bytes());
  }
}

void CheckFree() {
  size_t free_bytes, total_bytes;
  STOCK_ENGINE_CALL(cuMemGetInfo_v2, &free_bytes, &total_bytes);
  printf("ok free=%zu total=%zu\n", free_bytes, total_bytes);
}

void Free(EngineMemory& memory) {
  const uint64_t bytes = memory.kv_bytes();
  memory.FreeKv();
  printf("ok freed bytes=%" PRIu64 "\n", bytes);
}

void Allocate(EngineMemory& memory) {
  std::string where;
  if (memory.has_kv()) {
    puts("error kv is allocated already");
  } else if (!memory.AllocateKv(&where)) {
    printf("error cuMemAlloc_v2 CUDA_ERROR_OUT_OF_MEMORY %s\n", where.c_str());
  } else {
    printf("ok allocated bytes=%" PRIu64 "\n", memory.kv_bytes());
  }
}

void QueueWrites(EngineMemory& memory) {
  memory.QueueWrites();
  printf("ok queued bytes=%" PRIu64 "\n", memory.kv_bytes());
}

void Wait(const std::string& argument, bool ask) {
  if (!HeldStream::Wait(argument, ask)) {
    puts("error wait for what?");
    return;
  }
  printf("ok %s %s\n", ask ? "asked" : "waited", argument.c_str());
}

void Stall() {
  HeldStream::Stall();
  puts("ok stalled");
}

void Resume() {
  HeldStream::Resume();
  puts("ok resumed");
}

// `part` is "begin" or "end" for only that part; anything else does both.
void Capture(const std::string& part) {
  if (part != "end") HeldStream::BeginCapture();
  if (part != "begin") HeldStream::EndCapture();
  puts("ok captured");
}

// A program's global objects may be destroyed after its atexit handlers have
// run, and may still call the driver.
struct LastCall {
  ~LastCall() {
    if (address == 0) return;
    char byte;
    const CUresult result =
        fineserve::driver::cuMemcpyDtoH_v2(&byte, address, 1);
    printf("last call: %d\n", static_cast<int>(result));
  }
  CUdeviceptr address = 0;
} g_last_call;

[[noreturn]] void ExitWithACall(const EngineMemory& memory) {
  g_last_call.address = memory.weights().back().address;
  exit(0);
}

// If `bytes` is not empty, replaces the workspace by one of that size.
void Workspace(EngineMemory& memory, const std::string& bytes) {
  if (!bytes.empty()) {
    memory.ResizeWorkspace(strtoull(bytes.c_str(), nullptr, 10));
  }
  printf("ok workspace=%" PRIu64 "\n",
         static_cast<uint64_t>(memory.workspace()));
}

int Move(bool leaves, int timeout_ms) {
  if (fs_leave_gpu == nullptr) return -1;
  return leaves ? fs_leave_gpu(timeout_ms) : fs_return_to_gpu(timeout_ms);
}

void PrintSaid(int result) {
  if (result == 0) {
    puts("ok");
  } else {
    printf("error %d: %s\n", result,
           fs_kv_error == nullptr ? "no FineServe" : fs_kv_error());
  }
}

void RewriteWeights(EngineMemory& memory, const std::string& seed) {
  memory.WriteWeights(strtoull(seed.c_str(), nullptr, 10));
  puts("ok wrote weights");
}

// Prints the address of a weight that has a separate allocation. `number`
// counts from the last weight.
void Weight(const EngineMemory& memory, const std::string& number) {
  const size_t i = strtoull(number.c_str(), nullptr, 10);
  const auto& weights = memory.weights();
  if (i >= weights.size()) {
    puts("error no such weight");
    return;
  }
  printf("ok weight=%" PRIu64 "\n",
         static_cast<uint64_t>(weights[weights.size() - 1 - i].address));
}

void Obey(EngineMemory& memory, const std::string& line) {
  const size_t space = line.find(' ');
  const std::string command = line.substr(0, space);
  const std::string argument =
      space == std::string::npos ? "" : line.substr(space + 1);
  if (command == "verify") return Verify(memory);
  if (command == "write") return Write(memory, argument);
  if (command == "queue") return QueueWrites(memory);
  if (command == "stall") return Stall();
  if (command == "resume") return Resume();
  if (command == "capture") return Capture(argument);
  if (command == "last") ExitWithACall(memory);
  if (command == "wait" || command == "ask") {
    return Wait(argument, command == "ask");
  }
  if (command == "checkzero") return CheckZero(memory);
  if (command == "checkfree") return CheckFree();
  if (command == "free") return Free(memory);
  if (command == "alloc") return Allocate(memory);
  if (command == "peer") return FillFromPeer(memory.first_kv());
  if (command == "spoil") return Spoil(memory.first_kv());
  if (command == "exec") return Exec(argument == "now");
  if (command == "end") return EndContext(argument == "reset");
  if (command == "fork") return Fork(argument == "libc");
  if (command == "workspace") return Workspace(memory, argument);
  if (command == "freeze") return PrintSaid(memory.FreezeWeights());
  if (command == "thaw") {
    return PrintSaid(EngineMemory::ThawWeights(atoi(argument.c_str())));
  }
  if (command == "leave" || command == "return") {
    return PrintSaid(Move(command == "leave", atoi(argument.c_str())));
  }
  if (command == "weights") return RewriteWeights(memory, argument);
  if (command == "weight") return Weight(memory, argument);
  if (ObeySharing(command, argument)) return;
  printf("error unknown command '%s'\n", line.c_str());
}

void Hold(EngineMemory& memory) {
  for (std::string line; std::getline(std::cin, line) && line != "exit";) {
    Obey(memory, line);
  }
  puts("ok exit");
}

int Run(const Options& options) {
  Context context(options.device);
  EngineMemory memory(options);
  if (!StartKv(memory)) return kExitNoKvMemory;
  if (!RunRounds(memory, options)) return kExitMismatch;
  if (options.freeze && memory.FreezeWeights() != 0) return kExitMismatch;
  printf("ready pid=%d kv=%" PRIu64 "\n", getpid(), memory.kv_bytes());
  if (options.hold) Hold(memory);
  return 0;
}

}  // namespace
}  // namespace stock_engine

int main(int argc, char** argv) {
  // Tests read stdout through a pipe and wait for whole lines.
  setvbuf(stdout, nullptr, _IOLBF, 0);
  return stock_engine::Run(stock_engine::ParseOptions(argc, argv));
}
