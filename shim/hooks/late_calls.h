#ifndef SHIM_HOOKS_LATE_CALLS_H_
#define SHIM_HOOKS_LATE_CALLS_H_

namespace fineserve::shim {

// Functions of the driver that are later than our list (kListedCudaVersion) and
// may touch memory beside the gate, or make addresses that are not pinned. A
// program that calls one cannot be evicted. CUDA's runtime asks at its start
// for each function that it knows, and calls few of them: so it gets a stub,
// whose first call says so and keeps the gate open (Gate::KeepOpen).

// The stub of `function`, the same one each time; `function` itself, with the
// gate kept open at once, if all stubs are in use. `name` is copied.
void* LateCall(const char* name, void* function);

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_LATE_CALLS_H_
