// channel_engine CHANNEL BYTES [LIBRARY]: finds the driver's cuMemAlloc in one
// of the ways that programs use, allocates with it, prints "at ADDRESS" (0 if
// the allocation failed) and "ready", and runs until its standard input ends.
// LIBRARY has a function allocate_kv(BYTES) that allocates; it is for the
// channels that open a library.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

#include "kernels/driver/prototypes.h"

namespace {

using namespace fineserve::driver;  // NOLINT: this file calls CUDA

struct Request {
  size_t bytes;
  const char* library;
};

using MemAlloc = CUresult (*)(CUdeviceptr*, size_t);
using MemAllocAsync = CUresult (*)(CUdeviceptr*, size_t, CUstream);
using FirstResolver = CUresult (*)(const char*, void**, int, uint64_t);
using Resolver = CUresult (*)(const char*, void**, int, uint64_t,
                              CUdriverProcAddressQueryResult*);
using Dlsym = void* (*)(void*, const char*);

constexpr char kSymbol[] = "cuMemAlloc_v2";
constexpr char kName[] = "cuMemAlloc";
// The CUDA versions that introduced the functions that we look up.
constexpr int kMemAllocSince = 3020;
constexpr int kMemAllocAsyncSince = 11020;
constexpr int kFirstResolverSince = 11030;
constexpr int kResolverSince = 12000;

template <typename Function>
Function As(void* address) {
  return reinterpret_cast<Function>(address);
}

CUdeviceptr Allocate(void* function, size_t bytes) {
  CUdeviceptr address = 0;
  if (function == nullptr) return 0;
  return As<MemAlloc>(function)(&address, bytes) == CUDA_SUCCESS ? address : 0;
}

void* Driver() { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); }

void* Resolve(Resolver resolver, const char* name, int version,
              uint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status;
  return resolver(name, &function, version, flags, &status) == CUDA_SUCCESS
             ? function
             : nullptr;
}

// Returns the function that every copy of NVIDIA's runtime looks up first.
Resolver RuntimesResolver() {
  return As<Resolver>(dlsym(Driver(), "cuGetProcAddress_v2"));
}

CUdeviceptr BySymbol(const Request& r) {
  CUdeviceptr address = 0;
  return cuMemAlloc_v2(&address, r.bytes) == CUDA_SUCCESS ? address : 0;
}

CUdeviceptr ByDefault(const Request& r) {
  return Allocate(dlsym(RTLD_DEFAULT, kSymbol), r.bytes);
}

CUdeviceptr ByHandle(const Request& r) {
  return Allocate(dlsym(Driver(), kSymbol), r.bytes);
}

CUdeviceptr ByNext(const Request& r) {
  return Allocate(dlsym(RTLD_NEXT, kSymbol), r.bytes);
}

// Some programs look up dlsym itself, by version.
CUdeviceptr ByVersionedLookup(const Request& r) {
  for (const char* version : {"GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.17"}) {
    if (void* found = dlvsym(RTLD_DEFAULT, "dlsym", version)) {
      return Allocate(As<Dlsym>(found)(RTLD_DEFAULT, kSymbol), r.bytes);
    }
  }
  return 0;
}

CUdeviceptr ByFirstResolver(const Request& r) {
  const auto ask = As<FirstResolver>(dlsym(Driver(), "cuGetProcAddress"));
  void* function = nullptr;
  ask(kName, &function, kMemAllocSince, CU_GET_PROC_ADDRESS_DEFAULT);
  return Allocate(function, r.bytes);
}

CUdeviceptr ByResolver(const Request& r) {
  return Allocate(Resolve(RuntimesResolver(), kName, kMemAllocSince), r.bytes);
}

// Resolves the resolver by itself, in both of its versions.
CUdeviceptr ByItself(const Request& r) {
  void* first =
      Resolve(RuntimesResolver(), "cuGetProcAddress", kFirstResolverSince);
  void* second = nullptr;
  As<FirstResolver>(first)("cuGetProcAddress", &second, kResolverSince,
                           CU_GET_PROC_ADDRESS_DEFAULT);
  return Allocate(Resolve(As<Resolver>(second), kName, kMemAllocSince),
                  r.bytes);
}

CUdeviceptr ByPerThreadVariant(const Request& r) {
  const auto allocate = As<MemAllocAsync>(
      Resolve(RuntimesResolver(), "cuMemAllocAsync", kMemAllocAsyncSince,
              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
  CUdeviceptr address = 0;
  return allocate(&address, r.bytes, nullptr) == CUDA_SUCCESS ? address : 0;
}

CUdeviceptr By(void* library, const Request& r) {
  if (library == nullptr) {
    fprintf(stderr, "channel_engine: %s\n", dlerror());
    return 0;
  }
  return As<CUdeviceptr (*)(size_t)>(dlsym(library, "allocate_kv"))(r.bytes);
}

CUdeviceptr ByLibrary(const Request& r) {
  return By(dlopen(r.library, RTLD_NOW), r);
}

CUdeviceptr ByDeepbind(const Request& r) {
  return By(dlopen(r.library, RTLD_NOW | RTLD_DEEPBIND), r);
}

// Only opens the library: a test cannot require a real GPU to accept a second
// driver in one process.
CUdeviceptr InANamespaceOfItsOwn(const Request& r) {
  if (dlmopen(LM_ID_NEWLM, r.library, RTLD_NOW) == nullptr) {
    fprintf(stderr, "channel_engine: %s\n", dlerror());
  }
  return BySymbol(r);
}

constexpr struct {
  const char* name;
  CUdeviceptr (*allocate)(const Request&);
} kChannels[] = {
    {"symbol", BySymbol},
    {"default", ByDefault},
    {"handle", ByHandle},
    {"next", ByNext},
    {"versioned", ByVersionedLookup},
    {"first-resolver", ByFirstResolver},
    {"resolver", ByResolver},
    {"itself", ByItself},
    {"per-thread", ByPerThreadVariant},
    {"library", ByLibrary},
    {"deepbind", ByDeepbind},
    {"namespace", InANamespaceOfItsOwn},
};

bool Begin() {
  CUcontext context = nullptr;
  return cuInit(0) == CUDA_SUCCESS &&
         cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
         cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

int Run(const char* channel, const Request& request) {
  for (const auto& c : kChannels) {
    if (strcmp(c.name, channel) != 0) continue;
    printf("at %llx\nready\n",
           static_cast<unsigned long long>(c.allocate(request)));
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
  }
  fprintf(stderr, "channel_engine: no channel %s\n", channel);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fputs("channel_engine: usage: CHANNEL BYTES [LIBRARY]\n", stderr);
    return 2;
  }
  if (!Begin()) {
    fputs("channel_engine: no context\n", stderr);
    return 1;
  }
  return Run(argv[1],
             {strtoull(argv[2], nullptr, 10), argc > 3 ? argv[3] : ""});
}
