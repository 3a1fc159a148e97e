#ifndef SHIM_FINESERVE_KV_H_
#define SHIM_FINESERVE_KV_H_

/* The C interface of libfineserve_shim.so, for an engine (or its plugin) that
 * can tell which of its allocations are KV cache. Look the functions up with
 * dlsym(RTLD_DEFAULT, ...) or declare them weak: a program that runs without
 * the preload must do without them. Usable from C, C++ and ctypes.
 *
 * 1. An engine whose blocks FineServe cannot see gets whole slabs:
 *
 *   fs_kv_begin();
 *   cudaMalloc(&kv, bytes);    backed by slabs of the shared pool
 *   fs_kv_end();
 *
 * 2. An engine that can restrict itself to certain blocks gets a view of the
 * whole pool. It starts on private memory and uses leased slabs afterwards:
 *
 *   fs_kv_read_pool(&pool);                   if it may choose its size
 *   fs_kv_register(&format, &geometry);
 *   fs_kv_begin();
 *   cudaMalloc(...) of each KV tensor, geometry.blocks blocks long
 *   fs_kv_end();
 *   fill and warm up as usual: the tensors are on scratch
 *   fs_kv_progress(FS_KV_POOL_CONSTRUCTED);   "only leased blocks are used"
 *   fs_kv_activate();
 *
 * then either with its own block pool
 *
 *   each step:  fs_kv_poll, fs_kv_want, fs_kv_return_slab
 *   when idle:  fs_kv_wait in a separate thread
 *
 * or with FineServe's
 *
 *   step = fs_kv_step_begin();  fs_kv_allocate / fs_kv_free
 *   fs_kv_step_end(step);       when the device has executed the step
 *
 * and, while no block is in use, it may sleep: fs_kv_suspend, fs_kv_resume; or
 * leave the GPU when it is asked to: fs_kv_presence, fs_kv_leave,
 * fs_kv_come_back.
 *
 * A process has at most one view. Unless its comment says otherwise, a function
 * that returns int returns FS_OK or an FS_… error, and fs_kv_error() explains
 * it. Every function can fail with FS_INVALID for a null pointer, with FS_STATE
 * if it is called out of order, no CUDA driver is loaded or FINESERVE_DISABLE
 * is set, and with FS_FORKED in a child that was forked after its parent had
 * looked for a daemon; comments list the other errors. No function throws,
 * aborts, or blocks longer than its comment says.
 */

#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a scope: until the matching fs_kv_end(), every device allocation that
 * THIS thread makes is KV, whatever its size (a small one takes a whole slab).
 * Scopes nest. It cannot fail and needs neither a daemon nor a driver. Any
 * thread. */
void fs_kv_begin(void);

/* Closes the innermost scope of this thread. Does nothing if none is open. */
void fs_kv_end(void);

/* Allocate and free KV, for torch.cuda.memory.CUDAPluggableAllocator and its
 * MemPools. They use the current context, which PyTorch sets to `device`'s.
 *
 *   allocator = torch.cuda.memory.CUDAPluggableAllocator(
 *       ".../libfineserve_shim.so", "fs_torch_malloc", "fs_torch_free")
 *
 * `stream`, a cudaStream_t, is not used. fs_torch_malloc returns null if
 * `bytes` is not positive or the allocation failed, which PyTorch reports as
 * out of memory. Any thread. */
void* fs_torch_malloc(ssize_t bytes, int device, void* stream);
void fs_torch_free(void* address, ssize_t bytes, int device, void* stream);

enum {
  FS_OK = 0,
  FS_INVALID = 1,   /* an argument is invalid; fs_kv_error() names it */
  FS_STATE = 2,     /* the call is not allowed now: see the order above */
  FS_NO_DAEMON = 3, /* there is no daemon, or it was lost; leases stay usable */
  FS_REFUSED = 4,   /* the daemon refused the request */
  FS_EXHAUSTED = 5, /* too few blocks are free; more may be leased later */
  FS_DRIVER = 6,    /* a driver call failed */
  FS_FORKED = 7,    /* a forked child has no view */
  FS_NO_MEMORY = 8, /* host memory is short */
  FS_NO_ROOM = 9    /* the GPU's memory is short */
};

/* Returns one line about this thread's last error, with the fix where there is
 * one; "" if there was none. The text is valid until the thread's next error.
 * Any thread. */
const char* fs_kv_error(void);

/* Reports how far the code that replaces the engine's block pool has come. A
 * lower stage than before changes nothing. In a process that was started for a
 * view ($FINESERVE_VIEW=required), device allocations of 1 MiB and more fail
 * until FS_KV_POOL_REPLACED, so that an engine whose plugin is broken does not
 * start. Programs that such an engine starts are not held to that.
 * FS_INVALID for another stage. Any thread. */
enum {
  FS_KV_PLUGIN_LOADED = 1,
  FS_KV_POOL_REPLACED = 2,   /* pools built from now on use leased blocks */
  FS_KV_POOL_CONSTRUCTED = 3 /* the engine's pool uses leased blocks only */
};
int fs_kv_progress(int stage);

/* The pool of this GPU's daemon. The caller sets struct_bytes. */
struct fs_kv_pool {
  uint32_t struct_bytes; /* sizeof(struct fs_kv_pool) */
  uint32_t slab_count;   /* when the pool is at its largest */
  uint64_t slab_bytes;
  uint64_t granule_bytes; /* memory is mapped in pieces of this size */
};

/* Joins the daemon and fills `pool`, so that an engine can choose a format that
 * fits. Fails with FS_STATE (no current context), FS_NO_DAEMON, FS_REFUSED or
 * FS_DRIVER. Any thread with a current context. Waits for the daemon, at most
 * 2 s. */
int fs_kv_read_pool(struct fs_kv_pool* pool);

/* The slabs that are mapped after activation (scripts/design/0000-overview.md,
 * Memory). */
enum {
  FS_KV_VIEW = 1,    /* the whole pool */
  FS_KV_GUARDED = 2, /* the leased slabs, and scratch elsewhere */
  FS_KV_STRICT = 3   /* the leased slabs, and nothing elsewhere */
};

/* Flags of a format; at most one, and FS_KV_VIEW only.
 * FS_KV_RANK: the engine spans GPUs and this process is a rank. It maps the
 * view and activates it; another process runs the block pool
 * (fs_kv_join_ranks). FS_KV_REGISTERED: after activation other devices get the
 * addresses (RDMA). The memory behind them stays: the pool keeps all of its
 * slabs, and the engine does not leave the GPU. Refused while slabs are
 * missing. */
enum { FS_KV_RANK = 1, FS_KV_REGISTERED = 2 };

/* Groups of layers that keep KV alike. A request takes blocks of its own in
 * each of them. */
struct fs_kv_groups {
  uint32_t count;
  uint32_t block_tokens;
  uint32_t
      window_tokens; /* a token attends to so many, with itself; 0: to all */
};

/* The layout of the KV tensors. A plane is one contiguous range of addresses;
 * block b is the bytes [b × page_bytes, (b + 1) × page_bytes) of every plane.
 */
struct fs_kv_format {
  uint32_t struct_bytes; /* sizeof(struct fs_kv_format) */
  uint32_t mode;         /* FS_KV_VIEW, FS_KV_GUARDED or FS_KV_STRICT */
  uint32_t planes;       /* 1 … 4096 */
  /* Consecutive planes in each KV tensor; divides `planes`. */
  uint32_t planes_per_allocation;
  uint64_t page_bytes; /* of one block in one plane; at most 2^48 */
  /* How many blocks each plane has room for; 0 for as many as the pool fills.
   * With several planes per allocation, blocks × page_bytes must be a multiple
   * of the driver's granularity (2 MiB). */
  uint64_t blocks;
  uint32_t block_tokens; /* tokens per block */
  uint32_t flags;        /* 0, FS_KV_RANK or FS_KV_REGISTERED */
  uint64_t floor_blocks; /* of the longest request; leased at all times */
  uint64_t cap_blocks;   /* the most that may be leased; 0: no limit */
  /* By which the daemon counts the blocks of a request before it admits it. All
   * zero: one block for each block_tokens of its tokens. */
  struct fs_kv_groups groups[4];
  uint32_t states; /* blocks of a request that hold no tokens */
  /* Tokens of a request in flight at most, which keep what they attend to:
   * while its prompt is filled, and after that. */
  uint32_t filling_tokens;
  uint32_t answering_tokens;
  uint32_t reserved; /* 0 */
};

/* The view that a format gets. The caller sets struct_bytes. */
struct fs_kv_geometry {
  uint32_t struct_bytes; /* sizeof(struct fs_kv_geometry) */
  uint32_t slab_count;   /* view indices 1 … slab_count can be leased */
  uint64_t blocks;       /* block ids of the view: 0 … blocks - 1 */
  uint64_t plane_bytes;  /* a slab's share of each plane */
  uint32_t floor_slabs;  /* always leased: they hold floor_blocks */
  uint32_t cap_slabs;    /* the most that are leased at a time */
};

/* Registers the format with the daemon and fills `geometry`, before the KV
 * tensors are allocated. Fails with FS_INVALID (the format is impossible),
 * FS_STATE (there is a view already, or no current context), FS_NO_DAEMON,
 * FS_REFUSED, FS_NO_MEMORY or FS_DRIVER, and then there is no view. Any thread
 * with a current context. Waits for each of the daemon's answers, at most 10 s.
 */
int fs_kv_register(const struct fs_kv_format* format,
                   struct fs_kv_geometry* geometry);

/* Waits for the context's work, then puts the pool in place of the scratch, at
 * the same addresses. No request may be served before it, and only blocks of
 * leased slabs may be used after it. Fails with FS_STATE (before
 * FS_KV_POOL_CONSTRUCTED, or if tensors are missing), FS_NO_DAEMON, FS_REFUSED,
 * FS_NO_ROOM or FS_DRIVER. After an error the engine must not serve: half a
 * view corrupts its neighbours. Any thread. Takes seconds for a large pool. */
int fs_kv_activate(void);

/* Lets an engine sleep: waits for the context's work, unmaps the KV tensors (a
 * kernel that touches one then faults), returns all leases and gives up the
 * floor. The tensors keep their addresses. No block may be in use or cached,
 * and no step in flight. FS_STATE without an active view, or if blocks of
 * FineServe's allocator are in use; then nothing has changed. FS_DRIVER if the
 * wait failed, or an unmapping did: the view is then closed, and its leases are
 * kept. Until fs_kv_resume, functions that need an active view fail with
 * FS_STATE. Any thread. Of an engine that spans GPUs first the process that has
 * joined the ranks calls this, and lets go of their blocks, then each rank; on
 * the way back each rank calls fs_kv_resume before that process does. */
int fs_kv_suspend(void);

/* Takes a suspended view up again: maps the pool at the same addresses, and
 * claims the floor. No slab is leased yet, as after fs_kv_activate; what the
 * tensors held is lost, and scratch is zero. The daemon may be another one with
 * a pool of the same size. Fails with FS_STATE (no view is suspended),
 * FS_INVALID (the pool has another size: restart the engine), FS_NO_DAEMON,
 * FS_REFUSED (others have been promised what the floor needs: try again later),
 * FS_NO_MEMORY, FS_NO_ROOM or FS_DRIVER; the view is then still
 * suspended, unless an unmapping failed too. Any thread. Waits for each of the
 * daemon's answers, at most 10 s, and for room on a full GPU while some may
 * come, at most 2 min; takes as long as fs_kv_activate. In a process that
 * has joined ranks: takes their blocks over again, all of whose views are
 * active; FS_REFUSED if one is not. */
int fs_kv_resume(void);

/* Eviction (design note 0039): the memory of a process that was started with
 * FINESERVE_EVICT=auto may be asked to leave the GPU. One that uses FineServe's
 * block allocator leaves by itself while no block is in use, and its next
 * fs_kv_step_begin waits until it is back. One with a block pool of its own
 * answers: fs_kv_wait returns when it is asked, fs_kv_leave suspends the view
 * and lets the memory go, and before it hands out a block again it calls
 * fs_kv_come_back. The memory may come back earlier, which ends fs_kv_wait.
 *
 * An engine that spans GPUs leaves with all of its ranks, if they and the
 * process that runs their block pool have called fs_kv_follow. That process is
 * asked, calls fs_kv_leave, and then has each rank do so; on the way back it
 * calls fs_kv_come_back, has each rank do so until all are back, and then calls
 * fs_kv_resume. */
enum {
  FS_KV_HERE = 0,
  FS_KV_ASKED_TO_LEAVE = 1, /* for some seconds */
  FS_KV_AWAY = 2
};

/* Returns one of these. Any thread. Costs one load. */
int fs_kv_presence(void);

/* Leaves; for the rest as fs_kv_suspend. FS_STATE, too, if the process is not
 * asked, or the request has expired; a rank need not be asked, and FS_OK if it
 * is away. After an error the process is here. */
int fs_kv_leave(void);

/* Asks for the process's memory and waits until it is back, with its view
 * active: returns 1, at once if it is not away; 0 after the timeout: call it
 * again. A rank whose pool was lost since it came back takes its view up in the
 * present one, so it may be called only while its block pool is away.
 * FS_INVALID for a negative timeout (returned as minus). Any thread. */
int fs_kv_come_back(int timeout_ms);

/* Has the daemon move the memory of this process's engine to the host, or back
 * to the GPU, as fsctl evict and fsctl activate do, and waits until it is
 * there. A view that is active is asked to leave, too, so the thread that runs
 * its block pool must go on during the call; one that is suspended stays so. A
 * call to the driver that needs the memory brings it back as well. FS_OK if it
 * is there already; FS_INVALID for a negative timeout; FS_STATE without
 * FINESERVE_EVICT=auto, or if it takes longer, and then goes on; FS_NO_DAEMON
 * if there is none, and none comes within 10 s; FS_REFUSED if the daemon or the
 * engine cannot, or, on several GPUs, if this is not the first rank. Any
 * thread. */
int fs_leave_gpu(int timeout_ms);
int fs_return_to_gpu(int timeout_ms);

/* Ends the view: waits for the context's work, unmaps the KV tensors (a kernel
 * that touches one then faults) and returns all leases. Freeing a KV tensor of
 * an active view does the same. FS_DRIVER if the wait or an unmapping failed;
 * the leases are then kept. Any thread. */
int fs_kv_close(void);

/* Sets [*first, *end) to the ids of the blocks that are wholly in a slab; a
 * block that straddles two slabs is never used. View index 0 is the engine's
 * own scratch, which has its null block. FS_INVALID for an index beyond
 * geometry.slab_count. Any thread, after fs_kv_register. */
int fs_kv_slab_blocks(uint32_t view_index, uint64_t* first, uint64_t* end);

/* --- An engine that spans GPUs: each rank registers and activates a view as
 * above, with FS_KV_RANK. The process that hands out the blocks, which are the
 * same on all GPUs, joins them, and then uses the functions of the next section
 * (and fs_kv_slab_blocks, fs_kv_read_stats); the ranks must not. It may be one
 * of the ranks; these then stay on their GPUs. A block may be handed out while
 * its slab is leased on all GPUs. --- */

/* A rank's facts, which it passes to that process. */
struct fs_kv_rank {
  uint32_t struct_bytes; /* sizeof(struct fs_kv_rank) */
  uint32_t pid;
  uint8_t gpu_uuid[16];
  char engine_name[64]; /* as the GPU's daemon knows this engine */
};

/* Fills `rank`, in a rank. FS_STATE before fs_kv_register. Any thread. */
int fs_kv_read_rank(struct fs_kv_rank* rank);

/* Joins the ranks of this engine, all of which have activated their views, and
 * fills `geometry` (blocks is 0). Fails with FS_INVALID, FS_STATE (this process
 * has joined before), FS_NO_DAEMON, FS_NO_MEMORY, or FS_REFUSED (a rank has no
 * such view, another process runs its blocks, or the slabs of two GPUs hold
 * different blocks). FS_STATE, too, with a view of its own that is no rank's.
 * Needs no context. Any thread. Waits for each daemon's answers, at most 10 s.
 */
int fs_kv_join_ranks(const struct fs_kv_rank* ranks, uint32_t count,
                     struct fs_kv_geometry* geometry);

/* Names the first of the engine's ranks, in each of them and in the process
 * that has joined them: the daemon of its GPU moves the memory of all. Does
 * nothing without FINESERVE_EVICT=auto. FS_STATE in another process, in a rank
 * that has joined the others, or if another rank was named before. Any thread.
 */
int fs_kv_follow(const struct fs_kv_rank* first);

/* --- Leases, for an engine with its own block pool. One thread at a time;
 * none of these blocks or makes a system call unless its comment says so. They
 * fail with FS_STATE without an active view. --- */

enum {
  FS_KV_LEASED = 1,    /* the slab's blocks may be handed out */
  FS_KV_ASKED_BACK = 2 /* its blocks must not be handed out */
};
struct fs_kv_change {
  uint32_t view_index;
  uint32_t kind; /* FS_KV_LEASED or FS_KV_ASKED_BACK */
};

/* Writes up to `capacity` changes that were not reported before. Returns how
 * many, or minus an FS_… error. Return a slab that was asked back with
 * fs_kv_return_slab when none of its blocks is in use or cached and no step in
 * flight may write one. Sends what fs_kv_return_slab and fs_kv_want left
 * unsent. Where slabs must be mapped or unmapped (in FS_KV_VIEW only if the
 * pool has grown or shrunk), it waits for the context's work and the daemon,
 * and makes driver calls. */
int fs_kv_poll(struct fs_kv_change* changes, uint32_t capacity);

/* Sets how many slabs the engine could use now, including those it has. A slab
 * that was asked back counts until it is returned, besides those that the
 * engine needs in its place. Sends a message to the daemon, without waiting, if
 * the number has changed. */
int fs_kv_want(uint32_t slabs);

/* Ends a lease, whether or not the slab was asked back. None of its blocks may
 * be in use or cached, and no step in flight may write one. The daemon learns
 * of it by the next fs_kv_poll, fs_kv_want or fs_kv_wait. FS_INVALID if the
 * slab is not leased. */
int fs_kv_return_slab(uint32_t view_index);

/* Publishes how many of a slab's blocks are in use: the daemon chooses by it
 * which slabs to ask back, and fsctl shows it. An index out of range is
 * ignored. Costs one store. */
int fs_kv_publish(uint32_t view_index, uint32_t used_blocks);

/* Sleeps until leases may have changed since the last fs_kv_poll, or for
 * `timeout_ms`. Returns 1 if they may have changed, 0 after the timeout, or
 * minus an FS_… error: FS_INVALID for a negative timeout, FS_NO_DAEMON after
 * the timeout if the daemon has gone. Maps and unmaps slabs as fs_kv_poll does,
 * unless fs_kv_step_begin is used. Any thread. */
int fs_kv_wait(int timeout_ms);

/* --- FineServe's block allocator, for an engine that has none. Any thread; a
 * thread of our own answers ask-backs while no step is begun. fs_kv_wait is the
 * only function of the section above that may be used with it. --- */

/* Begins a step of the engine: looks at the leases, returns slabs that have
 * drained, and asks for more if needed. Returns the step's number, counted from
 * 1, or 0 on an error. May map or unmap slabs as fs_kv_poll does. */
uint64_t fs_kv_step_begin(void);
/* Ends a step, once the device has executed it, and all steps before it.
 * Returns slabs that have drained. FS_INVALID if the step is not in flight. */
int fs_kv_step_end(uint64_t step);

/* Fills `ids` with `count` block ids. FS_EXHAUSTED if fewer blocks are free: it
 * then allocates none, leaves `ids` alone, and asks the daemon for more. */
int fs_kv_allocate(uint32_t count, uint32_t* ids);
/* Frees `count` blocks, and between steps returns slabs that have drained. It
 * does not wait for the daemon. FS_INVALID at the first id that is not
 * allocated: the blocks before it have been freed, it and those after it have
 * not. */
int fs_kv_free(uint32_t count, const uint32_t* ids);

/* Sets how many blocks the running steps may take before more are leased: the
 * engine then wants its used blocks and this many more, besides the slabs that
 * are leaving. An engine that has begun no step for 100 ms, has none in flight
 * and did not lack blocks wants only those. The number should be at
 * least steps per round trip × blocks per step
 * (scripts/design/0000-overview.md, Memory, 7). It may be set at any time, and
 * is 0 at first. */
int fs_kv_set_watermark(uint64_t blocks);

/* The state of the view, and counts since fs_kv_register or, of failed
 * allocations, since fs_kv_resume. The caller sets struct_bytes. */
struct fs_kv_stats {
  uint32_t struct_bytes;  /* sizeof(struct fs_kv_stats) */
  uint32_t leased_slabs;  /* including those that are being returned */
  uint32_t leaving_slabs; /* of them, asked back or about to be returned */
  uint32_t wanted_slabs;
  uint64_t free_blocks;        /* of FineServe's allocator */
  uint64_t used_blocks;        /* of either allocator, as published */
  uint64_t failed_allocations; /* by FS_EXHAUSTED */
  /* Those of them during which the pool had a slab that had been free since the
   * step began, and the cap allowed one more. */
  uint64_t watermark_misses;
  uint64_t returned_slabs;
  uint64_t driver_calls_to_activate;
  uint64_t driver_calls_serving; /* since activation */
};
/* FS_INVALID if struct_bytes is wrong; FS_STATE without a view. */
int fs_kv_read_stats(struct fs_kv_stats* stats);

/* --- Parameters, in an engine that may leave the GPU (FINESERVE_EVICT=auto): a
 * replica may drop its own copy of them, and read another one's, so that KV has
 * the memory (fsctl drop). Without that variable these do nothing. --- */

struct fs_weights_range {
  uint64_t address;
  uint64_t bytes;
};

/* Says that these parts of device memory hold parameters, in the same order in
 * all replicas, and that this process writes none of them before it has called
 * fs_weights_thaw. An allocation counts if the ranges cover all of it. Ends
 * what was said before. FS_INVALID for a range that exceeds the address space;
 * FS_STATE while the parameters are shared with another process; FS_DRIVER if a
 * thread or a socket cannot be made. Any thread. */
int fs_weights_freeze(const struct fs_weights_range* ranges, uint32_t count);

/* To be called before parameters are written: waits until this process has its
 * own copy and no other one reads it. After an error they must not be written:
 * FS_INVALID for a negative timeout, FS_STATE if it takes longer. Any thread,
 * with no work on the device that writes them. */
int fs_weights_thaw(int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif /* SHIM_FINESERVE_KV_H_ */
