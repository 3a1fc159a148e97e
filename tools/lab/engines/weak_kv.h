#ifndef TOOLS_LAB_ENGINES_WEAK_KV_H_
#define TOOLS_LAB_ENGINES_WEAK_KV_H_

// Declares the shim's C interface for an engine that must also start without
// the preload: each function may be null.

#include "shim/fineserve_kv.h"

#pragma weak fs_kv_begin
#pragma weak fs_kv_end
#pragma weak fs_kv_error
#pragma weak fs_kv_progress
#pragma weak fs_kv_register
#pragma weak fs_kv_activate
#pragma weak fs_kv_close
#pragma weak fs_kv_presence
#pragma weak fs_kv_poll
#pragma weak fs_kv_wait
#pragma weak fs_kv_step_begin
#pragma weak fs_kv_step_end
#pragma weak fs_kv_allocate
#pragma weak fs_kv_free
#pragma weak fs_kv_set_watermark
#pragma weak fs_kv_read_stats
#pragma weak fs_leave_gpu
#pragma weak fs_return_to_gpu
#pragma weak fs_weights_freeze
#pragma weak fs_weights_thaw

#endif  // TOOLS_LAB_ENGINES_WEAK_KV_H_
