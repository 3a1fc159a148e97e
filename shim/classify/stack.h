#ifndef SHIM_CLASSIFY_STACK_H_
#define SHIM_CLASSIFY_STACK_H_

#include <cstdint>

namespace fineserve::shim {

// Captures the instruction pointers of the calling thread's native stack,
// innermost first, beginning with `caller`, the return address of the hooked
// call (our own frames above it are left out). Returns how many, at most
// `capacity`, at least one. No names are looked up, no Python lock is taken.
// Any thread. A frame of code that was made at run time (a JIT's) ends the
// stack.
//
// On x86-64 the step from a frame to its caller is read from the unwind tables
// once per instruction pointer and kept; elsewhere this is UnwindStack. Takes
// the loader's (recursive) lock for some nanoseconds, to learn whether those
// steps still hold.
uint16_t CaptureStack(const void* caller, uint64_t* frames, uint16_t capacity);

// Captures the same stack with libgcc's unwinder: ten times slower, but without
// any lock.
uint16_t UnwindStack(const void* caller, uint64_t* frames, uint16_t capacity);

// Makes CaptureStack the same as UnwindStack from now on: another thread of the
// parent may have held the loader's lock at the fork, and glibc does not
// release it in the child.
void UnwindOnlyAfterFork();

}  // namespace fineserve::shim

#endif  // SHIM_CLASSIFY_STACK_H_
