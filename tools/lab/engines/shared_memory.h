#ifndef TOOLS_LAB_ENGINES_SHARED_MEMORY_H_
#define TOOLS_LAB_ENGINES_SHARED_MEMORY_H_

// Memory that engines share by CUDA's legacy IPC, on a test's command. Needs a
// current context. One thread.

#include <string>

#include "tools/lab/engines/device_memory.h"

namespace stock_engine {

// Obeys one of these lines and prints its answer; false if it is another one.
// Addresses and values are decimal.
//   share ADDRESS       ok handle=HEX        | error cuIpcGetMemHandle N
//   open HEX            ok opened=ADDRESS    | error cuIpcOpenMemHandle N
//   close ADDRESS       ok closed            | error cuIpcCloseMemHandle N
//   range ADDRESS       ok base=… bytes=…    | error cuMemGetAddressRange N
//   poke ADDRESS VALUE  ok poked             | error cuMemcpyHtoD N
//   peek ADDRESS        ok value=VALUE       | error cuMemcpyDtoH N
//   drop ADDRESS        ok dropped           | error cuMemFree N
//   device N            ok device=N: its primary context is current from now on
bool ObeySharing(const std::string& command, const std::string& argument);

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_SHARED_MEMORY_H_
