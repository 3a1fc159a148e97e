#ifndef TOOLS_LAB_DEVICE_NCCL_LAST_ERROR_H_
#define TOOLS_LAB_DEVICE_NCCL_LAST_ERROR_H_

#include <string>

#include "tools/lab/device/nccl/nccl_types.h"

namespace fineserve::nccl {

// Prints one line on stderr, remembers it for ncclGetLastError and returns
// `result`. Thread-safe.
ncclResult_t Refuse(ncclResult_t result, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// Returns the last line of this process, or an empty string if there was none.
std::string LastError();

const char* ResultText(ncclResult_t result);

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_LAST_ERROR_H_
