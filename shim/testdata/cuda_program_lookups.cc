// cuda_program's commands that look functions up.
// clang-format off
//
//   resolve NAME V    asks cuGetProcAddress_v2: "resolve shim|driver|..."
//   resolve1 NAME V   asks the first cuGetProcAddress
//   lookup NAME       asks dlsym(RTLD_DEFAULT): "lookup shim|driver|..."
//   byhandle NAME     the same with the driver's handle
//   foreign           opens the driver in a separate namespace
//   deepbind FILE     opens FILE with RTLD_DEEPBIND: "deepbind WHERE WHERE", of
//                     its cuMemAlloc_v2 and of its dlsym
//
// clang-format on

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "shim/testdata/cuda_program.h"
#include "shim/testdata/where.h"

namespace fineserve::shim {
namespace {

void Resolve(const char* name, int version) {
  void* function = nullptr;
  driver::CUdriverProcAddressQueryResult status;
  driver::cuGetProcAddress_v2(name, &function, version, 0, &status);
  printf("resolve %s\n", WhereIs(function));
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

}  // namespace

std::span<const Command> LookupCommands() { return kLookupCommands; }

}  // namespace fineserve::shim
