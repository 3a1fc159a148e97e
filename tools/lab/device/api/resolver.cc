// cuGetProcAddress, and the table of all functions, which turns a missing
// definition into a link error.

#include "tools/lab/device/api/resolver.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/machine/environment_settings.h"

namespace fineserve::emucuda {
namespace {

void* const kFunctions[kEntries] = {
#define EMUCUDA_FUNCTION(symbol, name, since, need, args) \
  reinterpret_cast<void*>(&driver::symbol),
    FINESERVE_DRIVER_ENTRY_POINTS(EMUCUDA_FUNCTION)
#undef EMUCUDA_FUNCTION
#define EMUCUDA_FUNCTION(plain, variant, name, since, args, call) \
  reinterpret_cast<void*>(&driver::plain##_##variant),
        FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(EMUCUDA_FUNCTION)
#undef EMUCUDA_FUNCTION
};

// Does what Resolve does, among per-thread or plain variants only.
Resolution ResolveAmong(bool per_thread, const char* name, int wanted_version,
                        int driver_version) {
  Resolution best = {.status = driver::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
                     .function = nullptr};
  int best_since = 0;
  for (size_t i = 0; i < kEntries; ++i) {
    const EntryRow& row = EntryRows()[i];
    if (row.per_thread != per_thread || row.since > driver_version) continue;
    if (strcmp(row.name, name) != 0) continue;
    if (best.function == nullptr) {
      best.status = driver::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    }
    if (row.since > wanted_version || row.since <= best_since) continue;
    best_since = row.since;
    best = {.status = driver::CU_GET_PROC_ADDRESS_SUCCESS,
            .function = kFunctions[i]};
  }
  return best;
}

}  // namespace

void* FunctionOf(Entry entry) { return kFunctions[static_cast<size_t>(entry)]; }

Resolution Resolve(const char* name, int wanted_version, int driver_version,
                   bool prefer_per_thread) {
  if (prefer_per_thread) {
    const Resolution variant =
        ResolveAmong(true, name, wanted_version, driver_version);
    if (variant.function != nullptr) return variant;
  }
  return ResolveAmong(false, name, wanted_version, driver_version);
}

}  // namespace fineserve::emucuda

namespace fineserve::driver {

using emucuda::Call;
using emucuda::Entry;
using emucuda::Logged;
using emucuda::Require;

namespace {

CUresult ResolveFor(const char* symbol, void** pfn, int cuda_version,
                    uint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || pfn == nullptr || flags > 2) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int driver_version = emucuda::DriverSettings().driver_version;
  if (cuda_version > driver_version) return CUDA_ERROR_INVALID_VALUE;
  const emucuda::Resolution found =
      emucuda::Resolve(symbol, cuda_version, driver_version,
                       flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  *pfn = found.function;
  if (status != nullptr) *status = found.status;
  return CUDA_SUCCESS;  // where there is none, too (driver 580.159)
}

void SayOnce() {
  static std::atomic<bool> said{false};
  if (said.exchange(true, std::memory_order_relaxed)) return;
  fprintf(stderr,
          "emucuda: pid %d has a statically linked CUDA runtime, which needs a "
          "real GPU; link the shared one (nvcc -cudart shared)\n",
          getpid());
}

}  // namespace

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cuda_version,
                          uint64_t flags) {
  return Call(
      Entry::cuGetProcAddress, Require::kNothing, Logged(cuda_version, flags),
      [&] { return ResolveFor(symbol, pfn, cuda_version, flags, nullptr); });
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cuda_version,
                             uint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  return Call(Entry::cuGetProcAddress_v2, Require::kNothing,
              Logged(cuda_version, flags), [&] {
                return ResolveFor(symbol, pfn, cuda_version, flags, status);
              });
}

// Refuses the private tables: they are NVIDIA's, and the emulator does not
// provide them. The caller is a CUDA runtime that is linked into a program or
// one of its libraries, whose own message ("operation not supported") would not
// explain the problem.
CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  return Call(Entry::cuGetExportTable, Require::kNothing, [&] {
    if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *table = nullptr;
    SayOnce();
    return CUDA_ERROR_NOT_SUPPORTED;
  });
}

}  // namespace fineserve::driver
