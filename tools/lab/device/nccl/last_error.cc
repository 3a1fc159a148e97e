#include "tools/lab/device/nccl/last_error.h"

#include <cstdarg>
#include <cstdio>

#include "tools/lab/device/machine/annotated_mutex.h"

namespace fineserve::nccl {
namespace {

using emucuda::Mutex;
using emucuda::MutexLock;

struct Line {
  Mutex mutex;
  std::string text EMUCUDA_GUARDED_BY(mutex);
};

// Never destroyed: streams report errors while the process ends.
Line& Last() {
  static Line* const line = new Line;
  return *line;
}

}  // namespace

ncclResult_t Refuse(ncclResult_t result, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  fprintf(stderr, "emucuda: libnccl: %s\n", text);
  Line& last = Last();
  const MutexLock lock(last.mutex);
  last.text = text;
  return result;
}

std::string LastError() {
  Line& last = Last();
  const MutexLock lock(last.mutex);
  return last.text;
}

const char* ResultText(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "operation in progress";
  }
  return "unknown result code";
}

}  // namespace fineserve::nccl
