#include "tests/conformance/runtime.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

RuntimeFunctions FindRuntimeFunctions() {
  RuntimeFunctions functions;
#define FINESERVE_FIND(name, args) \
  functions.name =                 \
      reinterpret_cast<decltype(functions.name)>(FindInRuntime(#name));
  EMUCUDA_RUNTIME_API(FINESERVE_FIND)
#undef FINESERVE_FIND
  return functions;
}

}  // namespace

// The runtime loads "libcuda.so.1", so it gets the driver that is already
// loaded under that name.
void* RuntimeLibrary() {
  static void* const library = [] {
    EXPECT_NE(DriverLibrary(), nullptr);
    const char* named = getenv("FINESERVE_LIBCUDART");
    const std::string path =
        named != nullptr ? named : EmulatedLibrary("libcudart.so.13");
    void* loaded = dlopen(path.c_str(), RTLD_NOW);
    EXPECT_NE(loaded, nullptr) << dlerror();
    return loaded;
  }();
  return library;
}

void* FindInRuntime(const char* name) {
  void* const found = dlsym(RuntimeLibrary(), name);
  EXPECT_NE(found, nullptr) << name;
  return found;
}

const RuntimeFunctions& Runtime() {
  static const RuntimeFunctions functions = FindRuntimeFunctions();
  return functions;
}

}  // namespace fineserve::conformance
