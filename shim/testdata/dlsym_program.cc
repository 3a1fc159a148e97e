// A program that is not linked to the driver. Its command line lists look-ups:
//
//   default NAME    dlsym(RTLD_DEFAULT, NAME)       prints where the answer is
//   next NAME       dlsym(RTLD_NEXT, NAME)
//   self NAME       dlsym(dlopen(NULL), NAME)
//   driver NAME     dlsym(the driver's handle, NAME)
//   libc NAME       dlsym(libc's handle, NAME)
//   load, loadlocal loads the driver with RTLD_GLOBAL, RTLD_LOCAL
//   error           prints whether dlerror returns a message
//   early NAME      what a preloaded library's constructor got for NAME
//   malloc          prints how many allocations an interposer saw
//   probe NAME      RTLD_NEXT asked by a preloaded library
//   versioned V     dlvsym(RTLD_DEFAULT, "dlsym", V)
//   runpath NAME    what a preloaded library with a RUNPATH may open
//   probedlsym      the same for dlsym, asked of dlvsym

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <string>

#include "shim/testdata/where.h"

extern "C" {
__attribute__((weak)) const char* probe_early(const char* name);
__attribute__((weak)) void* probe_next(const char* name);
__attribute__((weak)) void* probe_next_dlsym();
__attribute__((weak)) long interposed_mallocs();
__attribute__((weak)) void* runpath_open(const char* file);
}

namespace {

void* g_driver = nullptr;

void Load(int scope) {
  g_driver = dlopen("libcuda.so.1", RTLD_NOW | scope);
  printf("loaded %s\n", g_driver != nullptr ? "yes" : "no");
}

void Print(const void* function) { printf("%s\n", WhereIs(function)); }

bool RunWordless(const std::string& command) {
  if (command == "load") {
    Load(RTLD_GLOBAL);
  } else if (command == "loadlocal") {
    Load(RTLD_LOCAL);
  } else if (command == "probedlsym") {
    Print(probe_next_dlsym());
  } else if (command == "error") {
    printf("error %s\n", dlerror() != nullptr ? "yes" : "no");
  } else if (command == "malloc") {
    free(malloc(12345));
    printf("malloc %s\n", interposed_mallocs && interposed_mallocs() > 0
                              ? "interposed"
                              : "plain");
  } else {
    return false;
  }
  return true;
}

void RunNamed(const std::string& command, const char* name) {
  if (command == "default") Print(dlsym(RTLD_DEFAULT, name));
  if (command == "next") Print(dlsym(RTLD_NEXT, name));
  if (command == "self") Print(dlsym(dlopen(nullptr, RTLD_NOW), name));
  if (command == "driver") Print(dlsym(g_driver, name));
  if (command == "libc") Print(dlsym(dlopen("libc.so.6", RTLD_NOW), name));
  if (command == "early") printf("%s\n", probe_early(name));
  if (command == "versioned") Print(dlvsym(RTLD_DEFAULT, "dlsym", name));
  if (command == "runpath") {
    printf("opened %s\n", runpath_open(name) != nullptr ? "yes" : "no");
  }
  if (command == "probe") Print(probe_next(name));
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (RunWordless(argv[i])) continue;
    RunNamed(argv[i], argv[i + 1]);
    ++i;
  }
  return 0;
}
