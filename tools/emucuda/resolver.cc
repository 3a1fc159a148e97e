// cuGetProcAddress, and the table that makes a missing definition a link
// error.

#include "tools/emucuda/resolver.h"

#include <cstring>

#include "tools/emucuda/call.h"
#include "tools/emucuda/driver.h"
#include "tools/emucuda/prototypes.h"

namespace fineserve::emucuda {
namespace {

void* const kFunctions[kEntries] = {
#define EMUCUDA_FUNCTION(symbol, name, since, need, args) \
  reinterpret_cast<void*>(&driver::symbol),
    FINESERVE_DRIVER_ENTRY_POINTS(EMUCUDA_FUNCTION)
#undef EMUCUDA_FUNCTION
};

}  // namespace

void* FunctionOf(Entry entry) { return kFunctions[static_cast<size_t>(entry)]; }

Resolution Resolve(const char* name, int wanted_version, int driver_version) {
  Resolution best = {.status = driver::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
                     .function = nullptr};
  int best_since = 0;
  for (size_t i = 0; i < kEntries; ++i) {
    const EntryRow& row = EntryRows()[i];
    if (strcmp(row.name, name) != 0 || row.since > driver_version) continue;
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

}  // namespace fineserve::emucuda

namespace fineserve::driver {

using emucuda::Call;
using emucuda::Driver;
using emucuda::Entry;
using emucuda::Require;

namespace {

CUresult ResolveFor(const char* symbol, void** pfn, int cuda_version,
                    uint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || pfn == nullptr || flags > 2) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Per-thread variants (flags 2) do not exist here: plain ones stand in, as
  // on a driver without them.
  const emucuda::Resolution found = emucuda::Resolve(
      symbol, cuda_version, Driver::Get().settings().driver_version);
  *pfn = found.function;
  if (status != nullptr) *status = found.status;
  return *pfn != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cuda_version,
                          uint64_t flags) {
  return Call(
      Entry::cuGetProcAddress, Require::kNothing,
      [&] { return ResolveFor(symbol, pfn, cuda_version, flags, nullptr); },
      cuda_version, flags);
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cuda_version,
                             uint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  return Call(
      Entry::cuGetProcAddress_v2, Require::kNothing,
      [&] { return ResolveFor(symbol, pfn, cuda_version, flags, status); },
      cuda_version, flags);
}

// Private tables are NVIDIA's; the emulator ships no answer to them.
CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  return Call(Entry::cuGetExportTable, Require::kNothing, [&] {
    if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *table = nullptr;
    return CUDA_ERROR_NOT_SUPPORTED;
  });
}

}  // namespace fineserve::driver
