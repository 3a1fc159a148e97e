#ifndef TESTS_CONFORMANCE_NVML_H_
#define TESTS_CONFORMANCE_NVML_H_

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/conformance/session.h"

namespace fineserve::conformance {

// nvmlProcessInfo_t.
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

// Finds an NVML function, as NVML's header declares it, by its exported name.
template <typename Signature>
Signature* Nvml(const char* symbol) {
  static void* const library =
      dlopen(EmulatedLibrary("libnvidia-ml.so.1").c_str(), RTLD_NOW);
  EXPECT_NE(library, nullptr) << dlerror();
  void* const found = dlsym(library, symbol);
  EXPECT_NE(found, nullptr) << symbol;
  return reinterpret_cast<Signature*>(found);
}

}  // namespace fineserve::conformance

#endif  // TESTS_CONFORMANCE_NVML_H_
