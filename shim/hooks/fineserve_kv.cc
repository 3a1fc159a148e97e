// The C interface except for PyTorch's allocator (torch_allocator.cc): checks
// what the engine passed, then calls its view.

#include "shim/fineserve_kv.h"

#include <stdlib.h>

#include <atomic>

#include "kernels/driver/export.h"
#include "shim/hooks/process_state.h"
#include "shim/host/environment.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {
namespace {

EngineView& View() { return g_redirector.view(); }

// The functions that can fail begin with this, or with WithDriver.
int Enter() {
  if (g_redirector.forked()) {
    return KvError(FS_FORKED, "a forked child has no view");
  }
  return FS_OK;
}

int NullArgument(const char* name) {
  return KvError(FS_INVALID, "%s is null", name);
}

template <typename Struct>
int CheckBytes(const char* name, const Struct* s) {
  if (s == nullptr) return NullArgument(name);
  if (s->struct_bytes == sizeof(*s)) return FS_OK;
  return KvError(FS_INVALID, "%s.struct_bytes is %u, not %zu", name,
                 s->struct_bytes, sizeof(*s));
}

// Calls `ask(driver)` while the hooks pass our own driver calls through.
template <typename Ask>
int WithDriver(Ask ask) {
  if (const int early = Enter()) return early;
  if (Disabled()) return KvError(FS_STATE, "FINESERVE_DISABLE is set");
  const Driver* real = RealDriver();
  if (real == nullptr) return KvError(FS_STATE, "no CUDA driver is loaded");
  ReentryGuard guard;
  return ask(*real);
}

// The driver ends when the program exits, after the handlers that were
// registered later than its own.
void KeepView(const Driver& real) {
  static constinit std::atomic<bool> registered{false};
  if (!registered.exchange(true)) {
    atexit([] { g_view_keeper.Stop(); });
  }
  g_view_keeper.Start(real);
}

}  // namespace

FINESERVE_EXPORT void fs_kv_begin(void) { ChangeScope(+1); }

FINESERVE_EXPORT void fs_kv_end(void) { ChangeScope(-1); }

FINESERVE_EXPORT const char* fs_kv_error(void) { return KvErrorText(); }

FINESERVE_EXPORT int fs_kv_progress(int stage) {
  if (const int early = Enter()) return early;
  if (stage < FS_KV_PLUGIN_LOADED || stage > FS_KV_POOL_CONSTRUCTED) {
    return KvError(FS_INVALID, "stage is %d, not %d to %d", stage,
                   FS_KV_PLUGIN_LOADED, FS_KV_POOL_CONSTRUCTED);
  }
  g_redirector.scoreboard().RaisePluginStage(static_cast<uint32_t>(stage));
  return FS_OK;
}

FINESERVE_EXPORT int fs_kv_register(const fs_kv_format* format,
                                    fs_kv_geometry* geometry) {
  if (format == nullptr) return NullArgument("format");
  if (const int bad = CheckBytes("geometry", geometry)) return bad;
  return WithDriver([&](const Driver& real) {
    return View().Register(real, *format, geometry);
  });
}

FINESERVE_EXPORT int fs_kv_activate(void) {
  return WithDriver([](const Driver& real) {
    const int result = View().Activate(real);
    if (result == FS_OK) KeepView(real);
    return result;
  });
}

FINESERVE_EXPORT int fs_kv_close(void) {
  return WithDriver([](const Driver& real) { return View().Close(real); });
}

FINESERVE_EXPORT int fs_kv_slab_blocks(uint32_t view_index, uint64_t* first,
                                       uint64_t* end) {
  if (const int early = Enter()) return early;
  if (first == nullptr || end == nullptr) return NullArgument("first or end");
  return View().SlabBlocks(view_index, first, end);
}

FINESERVE_EXPORT int fs_kv_poll(fs_kv_change* changes, uint32_t capacity) {
  if (changes == nullptr && capacity > 0) return -NullArgument("changes");
  return -WithDriver([&](const Driver& real) {
    return -View().Poll(real, changes, capacity);
  });
}

FINESERVE_EXPORT int fs_kv_want(uint32_t slabs) {
  if (const int early = Enter()) return early;
  return View().Want(slabs);
}

FINESERVE_EXPORT int fs_kv_return_slab(uint32_t view_index) {
  if (const int early = Enter()) return early;
  return View().ReturnSlab(view_index);
}

FINESERVE_EXPORT int fs_kv_publish(uint32_t view_index, uint32_t used_blocks) {
  if (const int early = Enter()) return early;
  return View().Publish(view_index, used_blocks);
}

FINESERVE_EXPORT int fs_kv_wait(int timeout_ms) {
  return -WithDriver(
      [&](const Driver& real) { return -View().Wait(real, timeout_ms); });
}

FINESERVE_EXPORT uint64_t fs_kv_step_begin(void) {
  uint64_t step = 0;
  WithDriver([&](const Driver& real) {
    step = View().BeginStep(real);
    return FS_OK;
  });
  return step;
}

FINESERVE_EXPORT int fs_kv_step_end(uint64_t step) {
  if (const int early = Enter()) return early;
  return View().EndStep(step);
}

FINESERVE_EXPORT int fs_kv_allocate(uint32_t count, uint32_t* ids) {
  if (const int early = Enter()) return early;
  if (ids == nullptr && count > 0) return NullArgument("ids");
  return View().Allocate(count, ids);
}

FINESERVE_EXPORT int fs_kv_free(uint32_t count, const uint32_t* ids) {
  if (const int early = Enter()) return early;
  if (ids == nullptr && count > 0) return NullArgument("ids");
  return View().Free(count, ids);
}

FINESERVE_EXPORT int fs_kv_set_watermark(uint64_t blocks) {
  if (const int early = Enter()) return early;
  return View().SetWatermark(blocks);
}

FINESERVE_EXPORT int fs_kv_read_stats(fs_kv_stats* stats) {
  if (const int bad = CheckBytes("stats", stats)) return bad;
  if (const int early = Enter()) return early;
  return View().ReadStats(stats);
}

}  // namespace fineserve::shim
