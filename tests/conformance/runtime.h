#ifndef TESTS_CONFORMANCE_RUNTIME_H_
#define TESTS_CONFORMANCE_RUNTIME_H_

#include "tools/lab/device/cudart/api_list.h"
#include "tools/lab/device/cudart/error.h"

namespace fineserve::conformance {

using namespace cudart;  // NOLINT: the tests use CUDA's names

// A CUDA runtime's functions, found by dlsym.
struct RuntimeFunctions {
#define FINESERVE_RUNTIME_MEMBER(name, args) cudaError_t(*name) args = nullptr;
  EMUCUDA_RUNTIME_API(FINESERVE_RUNTIME_MEMBER)
#undef FINESERVE_RUNTIME_MEMBER
};

// Returns the runtime under test: $FINESERVE_LIBCUDART, or else the emulated
// one, on the driver of session.h. A missing function fails the test.
const RuntimeFunctions& Runtime();
void* RuntimeLibrary();

// Finds by name a function that is not in the list.
void* FindInRuntime(const char* name);
template <typename Signature>
Signature* RuntimeFunction(const char* name) {
  return reinterpret_cast<Signature*>(FindInRuntime(name));
}

}  // namespace fineserve::conformance

#endif  // TESTS_CONFORMANCE_RUNTIME_H_
