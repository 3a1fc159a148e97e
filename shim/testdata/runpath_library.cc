// A library whose RUNPATH leads to another one: dlopen finds that only while
// it sees this library as its caller.

#include <dlfcn.h>

// Not a tail call: the caller is this library.
extern "C" void* runpath_open(const char* file) {
  void* volatile opened = dlopen(file, RTLD_NOW);
  return opened;
}
