// ask_as_runtime: asks the driver for what NVIDIA's runtime asks it for, in the
// same way: one dlsym of cuGetProcAddress_v2, the rest through that. Prints,
// for each request, the library that contains the answer.
//
//   cuMemAlloc 3020 0 libfineserve_shim.so

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "kernels/driver/entry_points.h"
#include "tests/conformance/runtime_requests.h"

namespace {

using fineserve::driver::CUDA_SUCCESS;
using fineserve::driver::EntryPoints;
using Resolver = decltype(EntryPoints::cuGetProcAddress_v2);

const char* LibraryOf(void* function) {
  Dl_info where;
  if (function == nullptr || dladdr(function, &where) == 0) return "none";
  const char* slash = strrchr(where.dli_fname, '/');
  return slash == nullptr ? where.dli_fname : slash + 1;
}

}  // namespace

int main() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    fprintf(stderr, "ask_as_runtime: %s\n", dlerror());
    return 1;
  }
  const auto resolve =
      reinterpret_cast<Resolver>(dlsym(driver, "cuGetProcAddress_v2"));
  for (const auto& request : fineserve::conformance::kRuntimeMemoryRequests) {
    void* function = nullptr;
    const auto result = resolve(request.name, &function, request.version,
                                request.flags, nullptr);
    printf("%s %d %d %s\n", request.name, request.version,
           static_cast<int>(request.flags),
           result == CUDA_SUCCESS ? LibraryOf(function) : "refused");
  }
  return 0;
}
