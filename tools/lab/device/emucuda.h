#ifndef TOOLS_LAB_DEVICE_EMUCUDA_H_
#define TOOLS_LAB_DEVICE_EMUCUDA_H_

// emucuda: an emulated CUDA driver. Programs that use the driver API run on its
// libcuda.so.1 without a GPU, and several processes really share device memory.
// A small libnvidia-ml.so.1, a libcudart.so.13 and a libnccl.so.2 belong to it.
//
// Environment variables, read at a process's first driver call. A malformed
// value is reported in one line on stderr, and cuInit then returns
// CUDA_ERROR_INVALID_VALUE.
//   EMUCUDA_DIR              the state folder of one emulated machine;
//                            created 0700; default /dev/shm/emucuda-<uid>.
//                            Device UUIDs derive from its real path and the
//                            device number.
//   EMUCUDA_DEVICES          1 … 8, default 1. CUDA_VISIBLE_DEVICES chooses
//                            among them, by number or UUID.
//   EMUCUDA_MEMORY           bytes per device (512MiB, 16GiB, …), default
//                            80GiB. The process that creates the device's
//                            file decides; later ones use the file as it is.
//   EMUCUDA_PROFILE          plain (the default), or hostile: poison, no
//                            persistence, aliases apart, strict captures, the
//                            order reversed, MPS's work survives, the machine's
//                            lock, unmapping waits, unequal contexts that grow
//                            by 32MiB; a variable of one of these goes before
//   EMUCUDA_DRIVER_VERSION   default 13000; newer entry points do not resolve
//   EMUCUDA_STREAM_DELAY_US  sleep before each copy, fill or host function
//   EMUCUDA_LINK_MB_S        10^6 bytes a second that each device's link to the
//                            host carries each way; the copies of all processes
//                            share it. Default: as fast as the machine copies
//   EMUCUDA_LINGER_MS        when a process dies, its queued writes happen that
//                            much later, or when emucuda-linger gets SIGUSR1;
//                            until then it keeps its memory and its place in
//                            NVML's list (linger.h). Default 0: they die with
//                            it. Needs emucuda-linger in the library's folder.
//   EMUCUDA_PEERS            on (the default: each device reaches the memory of
//                            all others, as over NVLink), or off
//   EMUCUDA_CAPTURE          documented (the default), or strict: calls that
//                            change mappings end captures of the modes that
//                            forbid unsafe calls, too
//   EMUCUDA_COMPUTE_MODE     default, or exclusive: one process has contexts on
//                            a device, others get CUDA error 46
//   EMUCUDA_MIG              off (the default), or instance: each device is a
//                            MIG instance, which NVML knows as MIG-UUID
//   EMUCUDA_CONFIDENTIAL     off (the default), or on: NVML says that
//                            confidential computing is on
//   EMUCUDA_ORDER            pci (the default), or reversed: the driver counts
//                            devices backwards unless CUDA_DEVICE_ORDER is
//                            PCI_BUS_ID, as "fastest first" may; NVML does not
//   EMUCUDA_ALIASES          together (the default), or apart: a call that sets
//                            access or unmaps refuses a range in which one
//                            handle is mapped twice
//   EMUCUDA_PERSISTENCE      on (the default) or off: a device that no process
//                            has open loses its memory, and descriptors that
//                            name it are dead, as without persistence mode
//   EMUCUDA_POISON           0 … 255: fresh device memory reads as this byte
//                            instead of zero, which touches all of it
//   EMUCUDA_CONTEXT_MEMORY   what a context takes of its device as long as it
//                            lives; default a 64th of the device, but at most
//                            500MiB
//   EMUCUDA_CONTEXTS         equal (the default), or unequal: unless
//                            EMUCUDA_CONTEXT_MEMORY is set, a context takes
//                            2MiB more for each process that has one (modulo
//                            16MiB)
//   EMUCUDA_CONTEXT_GROWTH   what it takes besides from its first kernel on
//                            (default 0)
//   EMUCUDA_MOST_CONTEXTS    so many processes can have contexts on a device;
//                            others get OUT_OF_MEMORY (default: any number)
//   EMUCUDA_VMM              on (the default), or off: cuMemCreate is not
//                            supported, as on a virtual GPU without unified
//                            memory
//   EMUCUDA_UNMAP            at-once (the default), or waits: cuMemUnmap and
//                            cuMemSetAccess wait for the current context's work
//   EMUCUDA_HOST_ACCESS      fault (the default: the host's touch of device
//                            memory that is not managed raises SIGSEGV) or
//                            allow, for programs whose "kernels" are host code
//   EMUCUDA_UNKNOWN_KERNELS  skip (the default: launches are counted and do
//                            nothing) or refuse (the launch fails with
//                            CUDA_ERROR_NOT_SUPPORTED)
//   EMUCUDA_COMPUTE_CAPABILITY  80 (the default) … 89
//   EMUCUDA_FILLS            work (the default) or lose: fills succeed and
//                            change nothing, for tests that must notice
//   EMUCUDA_SENDS            wait (the default): a send of the emulated NCCL
//                            ends when it has been received; or buffered: when
//                            the rest of it fits into a buffer of 4MiB
//   EMUCUDA_GPU_DIRECT_RDMA  0: memory cannot be created for network cards
//                            (default 1)
//   EMUCUDA_FAIL             cuMemCreate@3=2,cuMemMap@*=999: the 3rd call of
//                            that function returns error 2, and every call of
//                            the other one returns 999; these calls do nothing
//                            else
//   EMUCUDA_LATENCY_US       cuMemCreate=193,cuMemSetAccess=36; *=1000: every
//                            function. Calls take it one after the other, as
//                            under a driver's lock
//   EMUCUDA_NVML_LATENCY_US  of every NVML function, in the same way
//   EMUCUDA_LOCK             process (the default), or machine: calls that
//                            change memory and those of NVML hold one lock for
//                            all processes and devices, also for their latency
//   EMUCUDA_TEARDOWN_US_PER_GIB
//                            a dead process's memory is freed, and its place
//                            in NVML's list, after that much time for each GiB
//                            that it had allocated, or when emucuda-linger gets
//                            SIGUSR1; until then the machine's lock is held
//                            (default 0: at once, before its exit is reported)
//   EMUCUDA_NVML_PID_OFFSET  NVML adds this to every pid, as if it listed the
//                            processes of another pid namespace (default 0)
//   EMUCUDA_NVML_LIST_ERROR  NVML's lists of processes fail with this code: 3
//                            is NOT_SUPPORTED, 4 NO_PERMISSION (default 0:
//                            none)
//   EMUCUDA_NVML_MOST_LISTED they name so many processes at most, and do not
//                            say so
//   EMUCUDA_NVML_STRANGERS   they name so many processes that are none of ours,
//                            after the first one (default 0)
//   EMUCUDA_MPS_SERVER       the pid of an MPS server, of which this process is
//                            a client: NVML then lists the server instead of
//                            it, and the process in the list of MPS clients
//   EMUCUDA_NVML_MPS_LIST    answer (the default) or refuse: NVML cannot list
//                            the clients of MPS
//   EMUCUDA_MPS_WORK         ends (the default) or survives: NVML lists no dead
//                            client of MPS, though its work goes on
//                            (EMUCUDA_LINGER_MS) as its server's
//   EMUCUDA_LOG              a file, which gets one line per call: pid, ns,
//                            name, arguments, result
// While the state folder has a file "no-new-opens", device nodes cannot be
// opened, as in a container whose access was taken away: cuInit and exports
// fail, and what is open works on.
// NVML reports as many uncorrectable errors of device N's memory as a file
// gpuN.errors in the state folder has bytes; emucuda_spoil makes such errors.
// NVML lists processes by the pids that they have in its caller's pid
// namespace, and none that it cannot see from there.
// A function is named by its exported symbol (cuMemAlloc_v2), or by its name in
// cuGetProcAddress (cuMemAlloc), which means every version of it.
//
// Properties to know before relying on it:
//   - Memory of a dead process is free as soon as the kernel has closed the
//     process's descriptors, even after kill -9. A forked child that outlives
//     its parent shares those descriptors: it keeps the memory and the parent's
//     place in NVML's process list, as NVIDIA's deferred teardown would.
//   - The child itself cannot use the driver (CUDA_ERROR_NOT_INITIALIZED) and
//     does not see the parent's device mappings.
//   - Memory is a sparse file. Memory that is never touched costs nothing;
//     touching more than the file system holds raises SIGBUS.
//   - A call refuses an address that the driver never returned
//     (INVALID_VALUE). An address that is reserved but not mapped, or mapped
//     without access, kills the context when the work runs (ILLEGAL_ADDRESS,
//     which is sticky).
//   - Managed memory is device memory that the host maps: it counts as used,
//     and cannot exceed the device. Pools, legacy IPC and per-thread streams
//     are emulated; arrays, textures and dma-buf are not.
//   - Captures record fills, copies, kernels and host functions, but not
//     allocations.
//   - Code is loaded but not interpreted: every library has kernels of all
//     names. Kernels with a version for the host run; others are skipped.
//
// Programs find the control API below by dlsym in libcuda.so.1. Any thread may
// call these functions.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Sets how long the device sleeps before each copy, fill and host function.
void emucuda_set_stream_delay_us(unsigned microseconds);

// Changes EMUCUDA_LINGER_MS. Returns 0, or -1 before cuInit or if the helper
// cannot be started.
int emucuda_set_linger_ms(unsigned milliseconds);

// Replace all injected failures or latencies. The syntax is that of the
// environment variables; "" or NULL clears them. "@n" counts calls from this
// moment. Return 0, or -1, without changing anything, if the text is malformed.
int emucuda_set_failures(const char* rules);
int emucuda_set_latency_us(const char* rules);

// Returns how often this process has called an exported symbol so far,
// including calls that failed by injection; 0 for unknown symbols.
uint64_t emucuda_call_count(const char* symbol);

// Returns the driver's own function, whatever a preloaded library exports under
// this name; null for unknown symbols.
void* emucuda_entry_point(const char* symbol);

// Returns how many bytes of a device are referenced by any process; 0 before
// cuInit.
uint64_t emucuda_used_bytes(int device);

// Makes the 2 MiB around a device address a bad page. From now on, a copy that
// reads the page kills the context of the copying process (CUDA error 214),
// whichever process that is, and NVML counts one more error. Writes succeed but
// do not repair the page. Once no process references the page, it is never
// allocated again. Returns 0, or -1 if nothing is mapped there or the device
// already has eight bad pages.
int emucuda_spoil(uint64_t address);

// Makes a host function the kernel of a (mangled) name, in libraries and
// modules that have not looked the name up yet. The function runs on the
// stream, once per launch, and gets pointers to copies of the launch's first
// `arguments` arguments, of the given sizes. Device memory is at its device
// addresses; touching an unmapped address raises SIGSEGV. Returns 0, or -1 for
// bad arguments.
typedef void (*emucuda_kernel)(const void* const* arguments, void* user_data);
int emucuda_register_kernel(const char* name, emucuda_kernel run,
                            void* user_data, const size_t* argument_bytes,
                            size_t arguments);

// Returns how many launches in this process were of kernels that the device
// cannot run: such launches take their turn in the stream and do nothing.
// kernel_table.h lists the kernels that the device can run.
uint64_t emucuda_skipped_launches(void);

#ifdef __cplusplus
}
#endif

#endif  // TOOLS_LAB_DEVICE_EMUCUDA_H_
