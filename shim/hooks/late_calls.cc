#include "shim/hooks/late_calls.h"

#include <stdint.h>

#include <cstddef>

#include "daemon/contract/abi/transport.h"
#include "kernels/driver/entry_points.h"
#include "shim/gate/gate.h"
#include "shim/host/plain_mutex.h"
#include "shim/host/warn.h"

namespace fineserve::shim {
namespace {

// As in late_stubs.S.
constexpr size_t kStubs = 64;
constexpr size_t kStubBytes = 32;

struct Late {
  void* function;
  char name[64];
};

constinit Mutex g_mutex;
Late g_late[kStubs] FINESERVE_GUARDED_BY(g_mutex);
size_t g_count FINESERVE_GUARDED_BY(g_mutex) = 0;

void LetPass(const char* name) {
  if (g_gate.kept_open_by() != nullptr) return;
  Warn(
      "this process is no longer evicted: it calls a form of %s that is later "
      "than CUDA %d.%d, the last one that this release knows; install a newer "
      "FineServe",
      name, driver::kListedCudaVersion / 1000,
      driver::kListedCudaVersion % 1000 / 10);
  g_gate.KeepOpen(name);
}

// True if the stub at `i` leads to that function, once it is given to it.
bool Takes(size_t i, void* function) FINESERVE_REQUIRES(g_mutex) {
  return i == g_count || g_late[i].function == function;
}

}  // namespace

// late_stubs.S
extern "C" {
extern char fineserve_late_stubs[];
extern void* fineserve_late_targets[kStubs];
// Called at a stub's first call. Returns the address at which the call goes on.
void* fineserve_late_first(uint32_t stub);
}

void* fineserve_late_first(uint32_t stub) {
  Late late;
  {
    const MutexLock lock(&g_mutex);
    late = g_late[stub];
  }
  LetPass(late.name);
  __atomic_store_n(&fineserve_late_targets[stub], late.function,
                   __ATOMIC_RELEASE);
  return late.function;
}

void* LateCall(const char* name, void* function) {
  {
    const MutexLock lock(&g_mutex);
    size_t i = 0;
    while (i < kStubs && !Takes(i, function)) ++i;
    if (i == g_count && i < kStubs) {
      g_late[i].function = function;
      abi::CopyText(g_late[i].name, name);
      ++g_count;
    }
    if (i < kStubs) return fineserve_late_stubs + i * kStubBytes;
  }
  LetPass(name);
  return function;
}

}  // namespace fineserve::shim
