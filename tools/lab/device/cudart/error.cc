#include "tools/lab/device/cudart/error.h"

namespace fineserve::cudart {
namespace {

constexpr char kUnrecognized[] = "unrecognized error code";

// True for errors that no call can repair, because the context is lost.
bool IsSticky(cudaError_t error) {
  return error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure;
}

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

const char* ErrorName(cudaError_t error) {
  switch (error) {
#define EMUCUDA_ERROR_NAME(name, value, text) \
  case name:                                  \
    return #name;
    EMUCUDA_RUNTIME_ERRORS(EMUCUDA_ERROR_NAME)
#undef EMUCUDA_ERROR_NAME
  }
  return kUnrecognized;
}

const char* ErrorText(cudaError_t error) {
  switch (error) {
#define EMUCUDA_ERROR_TEXT(name, value, text) \
  case name:                                  \
    return text;
    EMUCUDA_RUNTIME_ERRORS(EMUCUDA_ERROR_TEXT)
#undef EMUCUDA_ERROR_TEXT
  }
  return kUnrecognized;
}

cudaError_t Record(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t LastError() { return last_error; }

cudaError_t TakeLastError() {
  const cudaError_t error = last_error;
  if (!IsSticky(error)) last_error = cudaSuccess;
  return error;
}

}  // namespace fineserve::cudart
