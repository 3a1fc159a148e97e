#ifndef SHIM_TESTDATA_NULL_DRIVER_H_
#define SHIM_TESTDATA_NULL_DRIVER_H_

// The null driver: a libcuda.so.1 in which every entry point does next to
// nothing and succeeds. With it, a bench measures only a hook's own cost, and
// the shim runs without a real or an emulated GPU. It holds no memory: its
// addresses are only numbers.

extern "C" {

// Returns the driver's own address of an exported symbol, which no preload can
// change; null if it has no such symbol.
void* nulldriver_entry_point(const char* symbol);

// Returns how often "cuMemMap" or "cuMemUnmap" was called; -1 for other names.
long nulldriver_calls(const char* symbol);
}

#endif  // SHIM_TESTDATA_NULL_DRIVER_H_
