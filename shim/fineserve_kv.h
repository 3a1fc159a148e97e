#ifndef SHIM_FINESERVE_KV_H_
#define SHIM_FINESERVE_KV_H_

/* The C interface of libfineserve_shim.so, for an engine (or its plugin) that
 * can say which of its allocations are KV cache. Look the functions up with
 * dlsym(RTLD_DEFAULT, ...) or declare them weak: a program that runs without
 * the preload must do without them.
 *
 *   fs_kv_begin();
 *   cudaMalloc(&kv, bytes);    backed by slabs of the shared pool
 *   fs_kv_end();
 */

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a scope: until the matching fs_kv_end(), every device allocation that
 * THIS thread makes is KV, whatever its size (a small one takes a whole slab).
 * Scopes nest. Cannot fail, needs neither daemon nor driver, any thread. */
void fs_kv_begin(void);

/* Closes the innermost scope of this thread. Without an open scope it does
 * nothing. */
void fs_kv_end(void);

/* For torch.cuda.memory.CUDAPluggableAllocator (and a MemPool of it): device
 * memory that is KV, in the current context, which PyTorch makes `device`'s.
 *
 *   allocator = torch.cuda.memory.CUDAPluggableAllocator(
 *       ".../libfineserve_shim.so", "fs_torch_malloc", "fs_torch_free")
 *
 * `stream` is PyTorch's (a cudaStream_t) and not used. Returns null if there is
 * no memory, which PyTorch reports as out of memory. Any thread. */
void* fs_torch_malloc(ssize_t bytes, int device, void* stream);
void fs_torch_free(void* address, ssize_t bytes, int device, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* SHIM_FINESERVE_KV_H_ */
