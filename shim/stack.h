#ifndef SHIM_STACK_H_
#define SHIM_STACK_H_

#include <cstdint>

#include "daemon/abi/engine_page.h"

namespace fineserve::shim {

// Captures the instruction pointers of the calling thread's native stack,
// innermost first, beginning with `caller`, the return address of the hooked
// call (our own frames above it are left out). Returns how many. No names are
// looked up, no Python lock is taken. Any thread. A frame of code that was made
// at run time (a JIT's) ends the stack.
uint16_t CaptureStack(const void* caller,
                      uint64_t (&frames)[abi::kFrameCapacity]);

}  // namespace fineserve::shim

#endif  // SHIM_STACK_H_
