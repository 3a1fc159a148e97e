// A library whose RUNPATH leads to another one, which dlopen finds only if it
// sees this library as its caller.

#include <dlfcn.h>

// This must not be a tail call: this library must be the caller.
extern "C" void* runpath_open(const char* file) {
  void* volatile opened = dlopen(file, RTLD_NOW);
  return opened;
}
