#ifndef BENCH_MICRO_NULL_DRIVER_H_
#define BENCH_MICRO_NULL_DRIVER_H_

// The null driver: a libcuda.so.1 whose every entry point does next to nothing
// and succeeds. Against it a hook's own cost is all there is to see, and the
// shim can be run without a GPU or an emulated one. It holds no memory: its
// addresses are numbers.

extern "C" {

// The driver's own address of an exported symbol, which no preload can change;
// null if it has no such symbol.
void* nulldriver_entry_point(const char* symbol);

// How often "cuMemMap" or "cuMemUnmap" was called; -1 for other names.
long nulldriver_calls(const char* symbol);
}

#endif  // BENCH_MICRO_NULL_DRIVER_H_
