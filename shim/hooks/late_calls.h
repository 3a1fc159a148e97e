#ifndef SHIM_HOOKS_LATE_CALLS_H_
#define SHIM_HOOKS_LATE_CALLS_H_

namespace fineserve::shim {

// Stubs for functions of the driver that are later than our list
// (kListedCudaVersion) and may touch memory without passing the gate, or make
// addresses that are not pinned. A program that calls one cannot be evicted.
// CUDA's runtime looks up every function that it knows when it starts, but
// calls few of them. So it gets a stub, whose first call reports this and keeps
// the gate open (Gate::KeepOpen).

// Returns the stub of `function`, the same one each time. If all stubs are in
// use, returns `function` itself and keeps the gate open at once. `name` is
// copied.
void* LateCall(const char* name, void* function);

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_LATE_CALLS_H_
