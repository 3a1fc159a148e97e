/* An engine in C with its own block pool: it takes every slab that it can get,
 * checks that all blocks are zero, writes a pattern and reads it back, returns
 * all slabs but one, and ends. Needs the preload.
 *
 * stdout: "ok slabs=15 blocks=2048 returned=14". Exit: 0 ok, 1 wrong bytes,
 * 3 CUDA error, 5 no view.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/fineserve_kv.h"

#pragma weak fs_kv_begin
#pragma weak fs_kv_end
#pragma weak fs_kv_error
#pragma weak fs_kv_progress
#pragma weak fs_kv_register
#pragma weak fs_kv_activate
#pragma weak fs_kv_close
#pragma weak fs_kv_slab_blocks
#pragma weak fs_kv_poll
#pragma weak fs_kv_want
#pragma weak fs_kv_return_slab
#pragma weak fs_kv_publish
#pragma weak fs_kv_wait

/* Declared as in cuda.h. */
typedef uint64_t CUdeviceptr;
int cuInit(unsigned flags);
int cuDeviceGet(int* device, int ordinal);
int cuCtxCreate_v2(void** context, unsigned flags, int device);
int cuMemAlloc_v2(CUdeviceptr* address, size_t bytes);
int cuMemFree_v2(CUdeviceptr address);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes);
int cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes);

enum { kPageBytes = 64 << 10, kMostSlabs = 64, kQuietWaits = 50 };

static unsigned char page[kPageBytes];
static CUdeviceptr kv;
static char leased[kMostSlabs];

static void Cuda(int result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "%s: %d\n", what, result);
  exit(3);
}

static void View(int result, const char* what) {
  if (result == FS_OK) return;
  fprintf(stderr, "%s: %d %s\n", what, result, fs_kv_error());
  exit(5);
}

static CUdeviceptr AddressOf(uint64_t block) { return kv + block * kPageBytes; }

static void ExpectBytes(uint64_t block, int byte) {
  Cuda(cuMemcpyDtoH_v2(page, AddressOf(block), kPageBytes), "cuMemcpyDtoH");
  for (size_t i = 0; i < kPageBytes; ++i) {
    if (page[i] == byte) continue;
    fprintf(stderr, "block %u holds %d, not %d\n", (unsigned)block, page[i],
            byte);
    exit(1);
  }
}

static void Write(uint64_t block, int byte) {
  memset(page, byte, kPageBytes);
  Cuda(cuMemcpyHtoD_v2(AddressOf(block), page, kPageBytes), "cuMemcpyHtoD");
}

static int PatternOf(uint64_t block) { return 1 + (int)(block % 255); }

/* Records what is leased now; returns the number of slabs. */
static unsigned Poll(void) {
  struct fs_kv_change changes[8];
  int count;
  unsigned slabs = 0;
  while ((count = fs_kv_poll(changes, 8)) > 0) {
    for (int i = 0; i < count; ++i) {
      if (changes[i].kind == FS_KV_LEASED) leased[changes[i].view_index] = 1;
    }
  }
  View(-count, "fs_kv_poll");
  for (int v = 0; v < kMostSlabs; ++v) slabs += leased[v];
  return slabs;
}

/* Runs `what` for each block of each slab; returns their number. */
static unsigned ForEachBlock(void (*what)(uint64_t block)) {
  unsigned count = 0;
  for (uint32_t v = 1; v < kMostSlabs; ++v) {
    uint64_t block, end;
    if (!leased[v]) continue;
    View(fs_kv_slab_blocks(v, &block, &end), "fs_kv_slab_blocks");
    View(fs_kv_publish(v, (uint32_t)(end - block)), "fs_kv_publish");
    for (; block < end; ++block, ++count) what(block);
  }
  return count;
}

static void FindZeroAndWrite(uint64_t block) {
  ExpectBytes(block, 0);
  Write(block, PatternOf(block));
}
static void Verify(uint64_t block) { ExpectBytes(block, PatternOf(block)); }

static void Start(struct fs_kv_geometry* geometry) {
  const struct fs_kv_format format = {.struct_bytes = sizeof(format),
                                      .mode = FS_KV_VIEW,
                                      .planes = 1,
                                      .planes_per_allocation = 1,
                                      .page_bytes = kPageBytes,
                                      .block_tokens = 16,
                                      .floor_blocks = 1};
  memset(geometry, 0, sizeof(*geometry));
  geometry->struct_bytes = sizeof(*geometry);
  View(fs_kv_progress(FS_KV_PLUGIN_LOADED), "fs_kv_progress");
  View(fs_kv_progress(FS_KV_POOL_REPLACED), "fs_kv_progress");
  View(fs_kv_register(&format, geometry), "fs_kv_register");
  fs_kv_begin();
  Cuda(cuMemAlloc_v2(&kv, geometry->blocks * kPageBytes), "cuMemAlloc");
  fs_kv_end();
  View(fs_kv_progress(FS_KV_POOL_CONSTRUCTED), "fs_kv_progress");
  View(fs_kv_activate(), "fs_kv_activate");
}

/* Waits until it has all that it may have, or nothing more has come for a
 * while.
 */
static unsigned TakeAll(uint32_t most) {
  unsigned slabs = Poll();
  View(fs_kv_want(most), "fs_kv_want");
  for (int quiet = 0; slabs < most && quiet < kQuietWaits; ++quiet) {
    const unsigned before = slabs;
    if (fs_kv_wait(10) < 0) View(FS_NO_DAEMON, "fs_kv_wait");
    slabs = Poll();
    if (slabs > before) quiet = 0;
  }
  return slabs;
}

static unsigned ReturnAllButOne(void) {
  unsigned given = 0;
  int kept = 0;
  for (uint32_t v = 1; v < kMostSlabs; ++v) {
    if (!leased[v] || !kept++) continue;
    View(fs_kv_publish(v, 0), "fs_kv_publish");
    View(fs_kv_return_slab(v), "fs_kv_return_slab");
    leased[v] = 0;
    ++given;
  }
  View(fs_kv_want(1), "fs_kv_want"); /* sends them too */
  return given;
}

int main(void) {
  struct fs_kv_geometry geometry;
  void* context;
  int device;
  if (fs_kv_register == NULL) {
    fprintf(stderr, "plain_engine needs libfineserve_shim.so preloaded\n");
    return 5;
  }
  Cuda(cuInit(0), "cuInit");
  Cuda(cuDeviceGet(&device, 0), "cuDeviceGet");
  Cuda(cuCtxCreate_v2(&context, 0, device), "cuCtxCreate");
  Start(&geometry);
  if (geometry.slab_count >= kMostSlabs) return 5;
  const unsigned slabs = TakeAll(geometry.cap_slabs);
  const unsigned blocks = ForEachBlock(FindZeroAndWrite);
  ForEachBlock(Verify);
  const unsigned returned = ReturnAllButOne();
  ForEachBlock(Verify);
  View(fs_kv_close(), "fs_kv_close");
  Cuda(cuMemFree_v2(kv), "cuMemFree");
  printf("ok slabs=%u blocks=%u returned=%u\n", slabs, blocks, returned);
  return 0;
}
