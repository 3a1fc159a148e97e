#ifndef TOOLS_EMUCUDA_EMUCUDA_H_
#define TOOLS_EMUCUDA_EMUCUDA_H_

// emucuda: an emulated CUDA driver. libcuda.so.1 (and a small
// libnvidia-ml.so.1 beside it) on which driver-API programs run without a GPU;
// several processes share device memory for real.
//
// Environment, read at a process's first driver call (a malformed value is
// reported in one line on stderr, and cuInit returns CUDA_ERROR_INVALID_VALUE):
//   EMUCUDA_DIR              state folder = one machine; created 0700; default
//                            /dev/shm/emucuda-<uid>. Device UUIDs derive from
//                            its real path and the ordinal.
//   EMUCUDA_DEVICES          1 … 8, default 1
//                            (CUDA_VISIBLE_DEVICES chooses among them, by
//                            number or UUID)
//   EMUCUDA_MEMORY           bytes per device (512MiB, 16GiB, …), default
//                            80GiB; the process that creates the device's
//                            file decides, later ones take what is there
//   EMUCUDA_DRIVER_VERSION   default 13000; newer entry points do not resolve
//   EMUCUDA_STREAM_DELAY_US  sleep before each copy, fill or host function
//   EMUCUDA_LINGER_MS        queued writes of a process that dies are done
//                            so much later (SIGUSR1 to emucuda-linger: now);
//                            until then it keeps its memory and its place in
//                            NVML's list (linger.h); default 0: they die with
//                            it. Needs emucuda-linger beside the library
//   EMUCUDA_POISON           0 … 255: fresh device memory reads as this byte
//                            instead of zero, which touches all of it
//   EMUCUDA_UNKNOWN_KERNELS  skip (the default: counted no-ops) or refuse (the
//                            launch fails with CUDA_ERROR_NOT_SUPPORTED)
//   EMUCUDA_GPU_DIRECT_RDMA  0: memory cannot be created for network cards
//                            (default 1)
//   EMUCUDA_FAIL             cuMemCreate@3=2,cuMemMap@*=999: the 3rd call of
//                            that function returns error 2, every call of the
//                            other returns 999; nothing else happens in them
//   EMUCUDA_LATENCY_US       cuMemCreate=193,cuMemSetAccess=36
//   EMUCUDA_LOG              file; one line per call: pid ns name args result
// Functions are named by exported symbol (cuMemAlloc_v2) or by the name known
// to cuGetProcAddress (cuMemAlloc: every version of it).
//
// What to know before relying on it:
//   - Memory that a dead process held is free as soon as the kernel has closed
//     its descriptors, also after kill -9. A forked child that outlives its
//     parent shares those descriptors: it keeps the memory and the parent's
//     place in NVML's process list, as NVIDIA's deferred teardown would.
//   - The child itself cannot use the driver (CUDA_ERROR_NOT_INITIALIZED) and
//     does not see the parent's device mappings.
//   - An allocation is physically contiguous, so that fragmentation can report
//     CUDA_ERROR_OUT_OF_MEMORY earlier than a real device would.
//   - Memory is a sparse file: what is never touched costs nothing; touching
//     more than the file system holds raises SIGBUS in the toucher.
//   - An address that the driver never gave out is refused at the call
//     (INVALID_VALUE); one that is reserved but not mapped, or mapped without
//     access, kills the context at execution (sticky ILLEGAL_ADDRESS).
//   - Managed memory is device memory that the host maps: it counts as used,
//   and
//     cannot exceed the device. Pools, legacy IPC and per-thread streams are
//     emulated; arrays, textures and dma-buf are not.
//   - Captured are fills, copies, kernels and host functions, not allocations.
//   - Code is loaded but not interpreted: any kernel name is found in any
//     library. Kernels with a version on the host run, others are skipped.
//
// The control API below is found by dlsym in libcuda.so.1. All functions may
// be called from any thread.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Sleep before each stream operation (copy, fill, host function).
void emucuda_set_stream_delay_us(unsigned microseconds);

// As EMUCUDA_LINGER_MS, from now on. Returns 0, or -1 before cuInit and if the
// helper cannot be started.
int emucuda_set_linger_ms(unsigned milliseconds);

// Replace all injected failures or latencies; syntax as in the environment,
// "" or NULL clears them. "@n" counts calls from this moment on. Returns 0, or
// -1 (nothing changed) if the text is malformed.
int emucuda_set_failures(const char* rules);
int emucuda_set_latency_us(const char* rules);

// Calls of an exported symbol in this process so far, injected failures
// included; 0 for unknown symbols.
uint64_t emucuda_call_count(const char* symbol);

// The driver's own function, whatever a preloaded library exports under this
// name; null for unknown symbols.
void* emucuda_entry_point(const char* symbol);

// Bytes of a device referenced by any process; 0 before cuInit.
uint64_t emucuda_used_bytes(int device);

// Makes a host function the kernel of a (mangled) name, in libraries and
// modules that were not asked for the name yet. It runs on the stream, once a
// launch, and gets pointers to copies of the launch's first `arguments`
// arguments, of the sizes given. Device memory is at its device addresses;
// touching what is not mapped is a SIGSEGV. Returns 0, or -1 for bad arguments.
typedef void (*emucuda_kernel)(const void* const* arguments, void* user_data);
int emucuda_register_kernel(const char* name, emucuda_kernel run,
                            void* user_data, const size_t* argument_bytes,
                            size_t arguments);

// Launches in this process of kernels that the device cannot run; they take
// their place in the stream and do nothing (kernel_table.h names the others).
uint64_t emucuda_skipped_launches(void);

#ifdef __cplusplus
}
#endif

#endif  // TOOLS_EMUCUDA_EMUCUDA_H_
