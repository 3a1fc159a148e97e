#ifndef SHIM_STACK_H_
#define SHIM_STACK_H_

#include <cstdint>

namespace fineserve::shim {

// Captures the instruction pointers of the calling thread's native stack,
// innermost first, beginning with `caller`, the return address of the hooked
// call (our own frames above it are left out). Returns how many, at most
// `capacity`. No names are looked up, no Python lock is taken. Any thread. A
// frame of code that was made at run time (a JIT's) ends the stack.
uint16_t CaptureStack(const void* caller, uint64_t* frames, uint16_t capacity);

}  // namespace fineserve::shim

#endif  // SHIM_STACK_H_
