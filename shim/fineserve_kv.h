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

#ifdef __cplusplus
}
#endif

#endif /* SHIM_FINESERVE_KV_H_ */
