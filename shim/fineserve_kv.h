#ifndef SHIM_FINESERVE_KV_H_
#define SHIM_FINESERVE_KV_H_

/* The C interface of libfineserve_shim.so, for an engine (or its plugin) that
 * can tell which of its allocations are KV cache. Look the functions up with
 * dlsym(RTLD_DEFAULT, ...) or declare them weak: a program that runs without
 * the preload must do without them. Usable from C, C++ and ctypes.
 *
 * 1. An engine whose blocks we cannot see gets whole slabs:
 *
 *   fs_kv_begin();
 *   cudaMalloc(&kv, bytes);    backed by slabs of the shared pool
 *   fs_kv_end();
 *
 * 2. An engine that lets us say which of its blocks it may use has a view of
 * the whole pool. It starts on private memory and lives on leases afterwards:
 *
 *   fs_kv_register(&format, &geometry);
 *   fs_kv_begin();
 *   cudaMalloc(...) of each KV tensor, geometry.blocks blocks long
 *   fs_kv_end();
 *   fill and warm up as usual: the tensors lie on scratch
 *   fs_kv_progress(FS_KV_POOL_CONSTRUCTED);   "only leased blocks are used"
 *   fs_kv_activate();
 *
 * then either with a block pool of its own
 *
 *   each step:  fs_kv_poll, fs_kv_want, fs_kv_return_slab
 *   when idle:  fs_kv_wait in a thread of its own
 *
 * or with ours
 *
 *   step = fs_kv_step_begin();  fs_kv_allocate / fs_kv_free
 *   fs_kv_step_end(step);       when the device has executed the step
 *
 * One view per process. Functions that return int return FS_OK or an FS_…
 * error, and fs_kv_error() says more. No function raises, aborts or blocks
 * longer than it says. In a forked child all of them fail with FS_FORKED.
 */

#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a scope: until the matching fs_kv_end(), every device allocation that
 * THIS thread makes is KV, whatever its size (a small one takes a whole slab).
 * Scopes nest. This cannot fail and needs neither daemon nor driver. Any
 * thread. */
void fs_kv_begin(void);

/* Closes the innermost scope of this thread. Without an open scope it does
 * nothing. */
void fs_kv_end(void);

/* These allocate and free device memory that is KV, for
 * torch.cuda.memory.CUDAPluggableAllocator (and a MemPool of it). They use the
 * current context, which PyTorch makes `device`'s.
 *
 *   allocator = torch.cuda.memory.CUDAPluggableAllocator(
 *       ".../libfineserve_shim.so", "fs_torch_malloc", "fs_torch_free")
 *
 * `stream` is PyTorch's (a cudaStream_t) and is not used. Returns null if there
 * is no memory, which PyTorch reports as out of memory. Any thread. */
void* fs_torch_malloc(ssize_t bytes, int device, void* stream);
void fs_torch_free(void* address, ssize_t bytes, int device, void* stream);

enum {
  FS_OK = 0,
  FS_INVALID = 1,   /* an argument; fs_kv_error() names it */
  FS_STATE = 2,     /* not now: see the order of calls above */
  FS_NO_DAEMON = 3, /* there is none, or it was lost; leases stay usable */
  FS_REFUSED = 4,   /* the daemon refused */
  FS_EXHAUSTED = 5, /* too few blocks now; more may be leased later */
  FS_DRIVER = 6,    /* a driver call failed */
  FS_FORKED = 7     /* a forked child has no view */
};

/* One line about this thread's last error, in English, with the fix where
 * there is one; "" if there was none. Valid until its next call. */
const char* fs_kv_error(void);

/* How far the code that replaces the engine's block pool has come. It only
 * grows. In a process that was started for a view ($FINESERVE_VIEW=required)
 * device allocations of 1 MiB and more fail until FS_KV_POOL_REPLACED, so that
 * an engine whose plugin is broken does not start. */
enum {
  FS_KV_PLUGIN_LOADED = 1,
  FS_KV_POOL_REPLACED = 2,   /* pools built from now on use leased blocks */
  FS_KV_POOL_CONSTRUCTED = 3 /* the engine's pool is one of those */
};
int fs_kv_progress(int stage);

/* What is mapped from activation on (scripts/design/0000-overview.md, Memory):
 * the whole pool; leased slabs, and scratch elsewhere; leased slabs, and
 * nothing elsewhere. */
enum { FS_KV_VIEW = 1, FS_KV_GUARDED = 2, FS_KV_STRICT = 3 };

/* What a slab is cut into. Block b is, in each of `planes` contiguous ranges,
 * the bytes [b × page_bytes, (b + 1) × page_bytes). */
struct fs_kv_format {
  uint32_t struct_bytes; /* sizeof(struct fs_kv_format) */
  uint32_t mode;         /* FS_KV_VIEW, ... */
  uint32_t planes;
  uint32_t planes_per_allocation; /* divides planes; > 1: one behind another */
  uint64_t page_bytes;
  /* Blocks that each plane has room for. 0: as many as geometry.blocks says.
   * With several planes per allocation blocks × page_bytes must be a multiple
   * of the driver's granularity (2 MiB). */
  uint64_t blocks;
  uint32_t block_tokens;
  uint32_t reserved;
  uint64_t floor_blocks; /* the longest request's; leased at all times */
  uint64_t cap_blocks;   /* never more; 0: no limit */
};

struct fs_kv_geometry {
  uint32_t struct_bytes; /* sizeof(struct fs_kv_geometry) */
  uint32_t slab_count;   /* view indices 1 … slab_count can be leased */
  uint64_t blocks;       /* ids of the view: 0 … blocks - 1 */
  uint64_t plane_bytes;  /* a slab's share of each plane */
  uint32_t floor_slabs;
  uint32_t cap_slabs;
};

/* Registers the format with the daemon, before the KV tensors are allocated.
 * Any thread with a current context. Waits for the daemon, at most seconds. */
int fs_kv_register(const struct fs_kv_format* format,
                   struct fs_kv_geometry* geometry);

/* Waits for the context's work, then puts the pool in place of the scratch, at
 * the same addresses. Until then no block may be used, and after it only those
 * of leased slabs; FS_STATE without FS_KV_POOL_CONSTRUCTED or if tensors are
 * missing. On an error the engine must not serve: half a view corrupts its
 * neighbours. Any thread. Takes seconds for a large pool. */
int fs_kv_activate(void);

/* Ends the view: waits for the context's work, unmaps the pool (to touch a KV
 * tensor is then a fault) and returns all leases. Freeing a KV tensor does the
 * same. */
int fs_kv_close(void);

/* The usable blocks [*first, *end) of a slab; a block that straddles a slab
 * boundary is in neither. View index 0 is the engine's own scratch, where its
 * null block lies. Any thread, after fs_kv_register. */
int fs_kv_slab_blocks(uint32_t view_index, uint64_t* first, uint64_t* end);

/* --- Leases, for an engine with a block pool of its own. One thread at a time;
 * none of these blocks or makes a system call unless it says so. --- */

enum { FS_KV_LEASED = 1, FS_KV_ASKED_BACK = 2 };
struct fs_kv_change {
  uint32_t view_index;
  uint32_t kind;
};

/* Writes up to `capacity` changes since the last call and returns their count.
 * FS_KV_LEASED: the slab's blocks may be handed out. FS_KV_ASKED_BACK: hand
 * out no more of them; when none is in use or cached and no step in flight may
 * write one, fs_kv_return_slab. In FS_KV_GUARDED this maps (driver calls) slabs
 * that are new to the process. Negative: minus an FS_… error. */
int fs_kv_poll(struct fs_kv_change* changes, uint32_t capacity);

/* Tells how many slabs the engine could use now, including those it has. Sends
 * a datagram if that differs from the last. */
int fs_kv_want(uint32_t slabs);

/* Ends a lease. The same must hold as for FS_KV_ASKED_BACK, but the slab need
 * not have been asked back. It is sent with the next fs_kv_poll, fs_kv_want or
 * fs_kv_wait. */
int fs_kv_return_slab(uint32_t view_index);

/* Tells how many of a slab's blocks are in use. The daemon chooses by it which
 * slabs to ask back, and fsctl shows it. Costs one store. */
int fs_kv_publish(uint32_t view_index, uint32_t used_blocks);

/* Sleeps until leases may have changed since the last fs_kv_poll, or for
 * `timeout_ms`. Any thread. Returns 1 if they may have, 0 at the timeout, or
 * minus an FS_… error. */
int fs_kv_wait(int timeout_ms);

/* --- Our block allocator, for an engine without. One thread at a time, also
 * for fs_kv_close and fs_kv_read_stats while it serves, and not together with
 * the calls of the section above but fs_kv_wait. --- */

/* Begins a step of the engine: looks at the leases, returns slabs that have
 * drained, and asks for more if needed. Steps are numbered from 1 and end in
 * the order in which they began, each when the device has executed it. Returns
 * the number, or 0 without an active view. */
uint64_t fs_kv_step_begin(void);
int fs_kv_step_end(uint64_t step);

/* Fills `ids` with `count` blocks; FS_EXHAUSTED leaves everything alone. */
int fs_kv_allocate(uint32_t count, uint32_t* ids);
/* FS_INVALID at the first id that is not allocated; those before it are free.
 */
int fs_kv_free(uint32_t count, const uint32_t* ids);

/* How many blocks the running steps may take before more are leased: the engine
 * wants the used blocks and this many. It should be at least steps per round
 * trip × blocks per step (scripts/design/0000-overview.md, Memory, 7). May be
 * set at any time; the default is 0. */
int fs_kv_set_watermark(uint64_t blocks);

struct fs_kv_stats {
  uint32_t struct_bytes; /* sizeof(struct fs_kv_stats) */
  uint32_t leased_slabs; /* including those that are being returned */
  uint32_t leaving_slabs;
  uint32_t wanted_slabs;
  uint64_t free_blocks; /* of our allocator */
  uint64_t used_blocks;
  uint64_t failed_allocations;
  uint64_t watermark_misses; /* with a slab free since the step began */
  uint64_t returned_slabs;
  uint64_t driver_calls_to_activate;
  uint64_t driver_calls_serving; /* since activation */
};
int fs_kv_read_stats(struct fs_kv_stats* stats);

#ifdef __cplusplus
}
#endif

#endif /* SHIM_FINESERVE_KV_H_ */
