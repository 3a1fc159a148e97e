// named_engine LIBRARY FUNCTION BYTES...: makes a context, calls the library's
// function once for each number of bytes, prints "at ADDRESS" for each result,
// then "ready", and runs until its standard input ends.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/driver/prototypes.h"

namespace {

using fineserve::driver::CUcontext;
using fineserve::driver::CUDA_SUCCESS;
using fineserve::driver::CUdeviceptr;

int Complain(const char* what) {
  fprintf(stderr, "named_engine: %s\n", what);
  return 1;
}

bool Begin() {
  CUcontext context = nullptr;
  return fineserve::driver::cuInit(0) == CUDA_SUCCESS &&
         fineserve::driver::cuDevicePrimaryCtxRetain(&context, 0) ==
             CUDA_SUCCESS &&
         fineserve::driver::cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return Complain("usage: LIBRARY FUNCTION BYTES...");
  void* const library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) return Complain(dlerror());
  const auto allocate =
      reinterpret_cast<CUdeviceptr (*)(size_t)>(dlsym(library, argv[2]));
  if (allocate == nullptr) return Complain(dlerror());
  if (!Begin()) return Complain("no context");
  for (int i = 3; i < argc; ++i) {
    printf("at %llx\n", static_cast<unsigned long long>(
                            allocate(strtoull(argv[i], nullptr, 10))));
  }
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF) {
  }
  return 0;
}
