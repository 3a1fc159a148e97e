// All entry points of the null driver, as weak functions that succeed.
// null_driver_behaviour.cc overrides those that do more than return success.

#include "shim/testdata/null_driver.h"

#include <string.h>

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"

namespace fineserve::driver {

#define FINESERVE_SUCCEED(symbol, name, since, need, args)      \
  FINESERVE_EXPORT __attribute__((weak)) CUresult symbol args { \
    return CUDA_SUCCESS;                                        \
  }
FINESERVE_DRIVER_ENTRY_POINTS(FINESERVE_SUCCEED)
#undef FINESERVE_SUCCEED

namespace {

struct Row {
  const char* symbol;
  const char* name;
  int since;
  void* function;
};

// Addresses are bound inside this library (-Bsymbolic).
const Row kRows[] = {
#define FINESERVE_ROW(symbol, name, since, need, args) \
  {#symbol, #name, since, reinterpret_cast<void*>(&symbol)},
    FINESERVE_DRIVER_ENTRY_POINTS(FINESERVE_ROW)
#undef FINESERVE_ROW
};

// A CUDA version that does not exist yet, and a function to which some names
// resolve from that version on.
constexpr int kFutureCuda = 99000;
int FutureFunction(long a, long b, long c, long d, long e, long f, long g,
                   double x, double y) {
  return static_cast<int>(
      a + 10 * (b + 10 * (c + 10 * (d + 10 * (e + f + g)))) + 4 * x - y);
}

bool HasFutureAbi(const char* name) {
  return strcmp(name, "cuMemAlloc") == 0 || strcmp(name, "cuMemcpy") == 0 ||
         strcmp(name, "cuMemcpyNew") == 0 ||
         strcmp(name, "cuGetProcAddress") == 0;
}

}  // namespace

// Finds the newest ABI of a name up to the requested version, as a driver does.
CUresult Resolve(const char* name, int cuda_version, void** function) {
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  if (cuda_version >= kFutureCuda && HasFutureAbi(name)) {
    *function = reinterpret_cast<void*>(&FutureFunction);
    return CUDA_SUCCESS;
  }
  int best = -1;
  for (const Row& row : kRows) {
    if (strcmp(row.name, name) == 0 && row.since <= cuda_version &&
        row.since > best) {
      best = row.since;
      *function = row.function;
    }
  }
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace fineserve::driver

FINESERVE_EXPORT void* nulldriver_entry_point(const char* symbol) {
  for (const auto& row : fineserve::driver::kRows) {
    if (strcmp(row.symbol, symbol) == 0) return row.function;
  }
  return nullptr;
}

// Symbols of the future.
extern "C" {
FINESERVE_EXPORT int cuMemcpy_v9() { return 0; }
FINESERVE_EXPORT int cuMemcpyNew() { return 0; }
}
