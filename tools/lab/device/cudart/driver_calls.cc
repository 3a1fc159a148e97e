#include "tools/lab/device/cudart/driver_calls.h"

#include <dlfcn.h>

namespace fineserve::cudart {
namespace {

// LoadDriver writes this once, through Load; it is const from then on.
DriverCalls calls;

template <typename Function>
void Resolve(const char* name, int since, Function** out) {
  void* found = nullptr;
  driver::CUdriverProcAddressQueryResult status;
  if (calls.resolve(name, &found, since, driver::CU_GET_PROC_ADDRESS_DEFAULT,
                    &status) == driver::CUDA_SUCCESS) {
    *out = reinterpret_cast<Function*>(found);
  }
}

cudaError_t CheckVersion() {
  int version = 0;
  if (const cudaError_t error = Ask<&DriverCalls::cuDriverGetVersion>(&version))
    return error;
  return version >= kRuntimeMajorVersion ? cudaSuccess
                                         : cudaErrorInsufficientDriver;
}

cudaError_t Load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return cudaErrorInsufficientDriver;
  calls.resolve = reinterpret_cast<decltype(calls.resolve)>(
      dlsym(library, "cuGetProcAddress_v2"));
  if (calls.resolve == nullptr) return cudaErrorInsufficientDriver;
#define EMUCUDA_RESOLVE(name, since, args) Resolve(#name, since, &calls.name);
  EMUCUDA_RUNTIME_DRIVER_CALLS(EMUCUDA_RESOLVE)
#undef EMUCUDA_RESOLVE
  if (const cudaError_t error = CheckVersion()) return error;
  return Ask<&DriverCalls::cuInit>(0u);
}

}  // namespace

cudaError_t LoadDriver() {
  static const cudaError_t result = Load();
  return result;
}

const DriverCalls& Driver() { return calls; }

}  // namespace fineserve::cudart
