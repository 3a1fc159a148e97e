#include "tests/engines/tinyserve/view.h"

#include <cstdio>
#include <cstdlib>

#include "kernels/driver/rounding.h"
#include "tests/engines/weak_kv.h"

namespace tinyserve {
namespace {

[[noreturn]] void NoView(const char* function, const char* why) {
  printf("error %s %s\n", function, why);
  fprintf(stderr, "tinyserve: no view: %s: %s\n", function, why);
  exit(kExitNoView);
}

void Require(int result, const char* function) {
  if (result != FS_OK) NoView(function, fs_kv_error());
}

uint32_t ModeNumber(Mode mode) {
  switch (mode) {
    case Mode::kView:
      return FS_KV_VIEW;
    case Mode::kGuarded:
      return FS_KV_GUARDED;
    case Mode::kStrict:
      return FS_KV_STRICT;
  }
  return 0;
}

uint64_t Floor(const Options& options) {
  if (options.floor_blocks > 0) return options.floor_blocks;
  const Limits& limits = options.engine.limits;
  return fineserve::DivideUp(limits.model_tokens, limits.block_tokens);
}

}  // namespace

uint32_t RegisterView(const Options& options) {
  if (fs_kv_register == nullptr) {
    NoView("fs_kv_register",
           "no shim: start it under fsctl run, or set LD_PRELOAD");
  }
  Require(fs_kv_progress(FS_KV_PLUGIN_LOADED), "fs_kv_progress");
  Require(fs_kv_progress(FS_KV_POOL_REPLACED), "fs_kv_progress");
  fs_kv_format format = {};
  format.struct_bytes = sizeof(format);
  format.mode = ModeNumber(options.mode);
  format.planes = options.format.planes;
  format.planes_per_allocation = 1;
  format.page_bytes = options.format.page_bytes;
  format.blocks = options.blocks;
  format.block_tokens = options.format.block_tokens;
  format.floor_blocks = Floor(options);
  fs_kv_geometry geometry = {};
  geometry.struct_bytes = sizeof(geometry);
  Require(fs_kv_register(&format, &geometry), "fs_kv_register");
  return static_cast<uint32_t>(geometry.blocks);
}

void ActivateView() {
  Require(fs_kv_progress(FS_KV_POOL_CONSTRUCTED), "fs_kv_progress");
  Require(fs_kv_activate(), "fs_kv_activate");
}

}  // namespace tinyserve
