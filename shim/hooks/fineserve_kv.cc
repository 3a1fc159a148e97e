// The C interface, except for PyTorch's allocator (torch_allocator.cc). Checks
// what the engine passed, then calls its view.

#include "shim/fineserve_kv.h"

#include <stdlib.h>

#include <atomic>

#include "daemon/contract/abi/move_messages.h"
#include "kernels/driver/export.h"
#include "shim/gate/presence.h"
#include "shim/hooks/gated_hooks.h"
#include "shim/hooks/process_state.h"
#include "shim/host/environment.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {
namespace {

// Calls `ask(redirector)`, except in a forked child. Every function that can
// fail goes through this.
template <typename Ask>
int Enter(Ask ask) {
  Redirector* const ours = Ours();
  if (ours == nullptr) {
    return KvError(FS_FORKED, "a forked child has no view");
  }
  return ask(*ours);
}

// The same with the view.
template <typename Ask>
int WithView(Ask ask) {
  return Enter([&](Redirector& ours) { return ask(ours.view()); });
}

// Like Enter, but calls with the object that runs this process's block pool:
// its view, or the ranks that it has joined.
template <typename AskGroup, typename AskView>
int WithPool(AskGroup ask_group, AskView ask_view) {
  return Enter([&](Redirector& ours) {
    return ours.group().in_use() ? ask_group(ours.group())
                                 : ask_view(ours.view());
  });
}

// True if this process runs the block pool of other processes.
bool JoinsRanks() {
  Redirector* const ours = Ours();
  return ours != nullptr && ours->group().in_use();
}

// Calls `suspend` if the process has begun to leave.
template <typename Suspend>
int Leave(bool has_begun, Suspend suspend) {
  if (!has_begun) {
    return KvError(FS_STATE, "this process is not asked to leave the GPU");
  }
  const int result = suspend();
  g_presence.Leave(result == FS_OK);
  return result;
}

bool IsLedRank(const EngineView& view) {
  return view.is_rank() && g_redirector.first_rank().is_known();
}

// Interval between two requests for memory that is away.
constexpr int kComeBackMs = 1000;

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

// Calls `ask(view, driver)` while the hooks pass our own driver calls through.
template <typename Ask>
int WithDriver(Ask ask) {
  return WithView([&](EngineView& view) -> int {
    if (Disabled()) return KvError(FS_STATE, "FINESERVE_DISABLE is set");
    const Driver* real = RealDriver();
    if (real == nullptr) return KvError(FS_STATE, "no CUDA driver is loaded");
    ReentryGuard guard;
    return ask(view, *real);
  });
}

int Move(abi::Place to, int timeout_ms) {
  if (timeout_ms < 0) return NegativeTimeout(timeout_ms);
  return WithDriver([&](EngineView&, const Driver&) {
    return g_redirector.resident() == nullptr
               ? KvError(FS_STATE,
                         "this process was not started with "
                         "FINESERVE_EVICT=auto")
               : g_mover.AskFor(to, timeout_ms);
  });
}

// Leaves a pool that this process cannot use: a rank may have come back to a
// pool that was lost before its block pool took it over, and no process can run
// that pool. The mover then resumes the rank's view in the present one.
int LeaveFormerPool() {
  return WithDriver([](EngineView& view, const Driver& real) {
    if (!IsLedRank(view) || !view.IsInFormerPool()) return +FS_OK;
    return Leave(g_presence.BeginLeavingAsRank(),
                 [&] { return view.Suspend(real); });
  });
}

// Starts the keeper, and stops it at exit: the driver ends when the program
// exits, after the handlers that were registered later than its own.
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
  if (stage < FS_KV_PLUGIN_LOADED || stage > FS_KV_POOL_CONSTRUCTED) {
    return KvError(FS_INVALID, "stage is %d, not %d to %d", stage,
                   FS_KV_PLUGIN_LOADED, FS_KV_POOL_CONSTRUCTED);
  }
  return Enter([&](Redirector& ours) {
    ours.scoreboard().RaisePluginStage(static_cast<uint32_t>(stage));
    return FS_OK;
  });
}

FINESERVE_EXPORT int fs_kv_read_pool(fs_kv_pool* pool) {
  if (const int bad = CheckBytes("pool", pool)) return bad;
  return WithDriver([&](EngineView& view, const Driver& real) {
    return view.ReadPool(real, pool);
  });
}

FINESERVE_EXPORT int fs_kv_register(const fs_kv_format* format,
                                    fs_kv_geometry* geometry) {
  if (format == nullptr) return NullArgument("format");
  if (const int bad = CheckBytes("geometry", geometry)) return bad;
  return WithDriver([&](EngineView& view, const Driver& real) {
    const int result = view.Register(real, *format, geometry);
    ResidentMemory* const memory = g_redirector.resident();
    if (result == FS_OK && view.is_registered() && memory != nullptr) {
      memory->PinAll();
      g_redirector.scoreboard().ShowResident(memory->sum());
    }
    return result;
  });
}

FINESERVE_EXPORT int fs_kv_activate(void) {
  return WithDriver([](EngineView& view, const Driver& real) {
    const int result = view.Activate(real);
    if (result == FS_OK) KeepView(real);
    return result;
  });
}

FINESERVE_EXPORT int fs_kv_suspend(void) {
  if (JoinsRanks()) {
    return Enter([](Redirector& ours) { return ours.group().Suspend(); });
  }
  return WithDriver(
      [](EngineView& view, const Driver& real) { return view.Suspend(real); });
}

FINESERVE_EXPORT int fs_kv_resume(void) {
  if (JoinsRanks()) {
    return Enter([](Redirector& ours) { return ours.group().Resume(); });
  }
  return WithDriver([](EngineView&, const Driver& real) {
    const int result = Ours()->ResumeView(real);
    // After any error except FS_STATE the view is still suspended, and the
    // daemon may have to learn that.
    if (result != FS_STATE) KeepView(real);
    return result;
  });
}

FINESERVE_EXPORT int fs_kv_presence(void) {
  const Presence::State state = g_presence.state();
  if (Presence::IsAway(state)) return FS_KV_AWAY;
  return state == Presence::State::kAsked ? FS_KV_ASKED_TO_LEAVE : FS_KV_HERE;
}

FINESERVE_EXPORT int fs_kv_leave(void) {
  if (JoinsRanks()) {
    return Enter([](Redirector& ours) {
      return Leave(g_presence.BeginLeaving(),
                   [&] { return ours.group().Suspend(); });
    });
  }
  return WithDriver([](EngineView& view, const Driver& real) {
    const bool is_rank = IsLedRank(view);
    if (is_rank && g_presence.state() == Presence::State::kAway) return +FS_OK;
    return Leave(
        is_rank ? g_presence.BeginLeavingAsRank() : g_presence.BeginLeaving(),
        [&] { return view.Suspend(real); });
  });
}

FINESERVE_EXPORT int fs_kv_come_back(int timeout_ms) {
  if (timeout_ms < 0) return -NegativeTimeout(timeout_ms);
  if (!JoinsRanks()) LeaveFormerPool();
  g_presence.Ring();
  return g_presence.WaitWhileAway(static_cast<uint64_t>(timeout_ms)) ? 1 : 0;
}

FINESERVE_EXPORT int fs_kv_close(void) {
  return WithDriver(
      [](EngineView& view, const Driver& real) { return view.Close(real); });
}

FINESERVE_EXPORT int fs_kv_slab_blocks(uint32_t view_index, uint64_t* first,
                                       uint64_t* end) {
  if (first == nullptr || end == nullptr) return NullArgument("first or end");
  const auto ask = [&](auto& pool) {
    return pool.SlabBlocks(view_index, first, end);
  };
  return WithPool(ask, ask);
}

FINESERVE_EXPORT int fs_kv_read_rank(fs_kv_rank* rank) {
  if (const int bad = CheckBytes("rank", rank)) return bad;
  return WithView([&](EngineView& view) { return view.ReadRank(rank); });
}

FINESERVE_EXPORT int fs_kv_join_ranks(const fs_kv_rank* ranks, uint32_t count,
                                      fs_kv_geometry* geometry) {
  if (const int bad = CheckBytes("geometry", geometry)) return bad;
  for (uint32_t r = 0; r < count; ++r) {
    if (const int bad =
            CheckBytes("ranks", ranks == nullptr ? ranks : ranks + r))
      return bad;
  }
  return Enter([&](Redirector& ours) {
    if (Disabled()) return KvError(FS_STATE, "FINESERVE_DISABLE is set");
    if (ours.view().in_use() && !ours.view().is_rank()) {
      return KvError(FS_STATE, "this process has a view of its own");
    }
    return ours.group().Join(ranks, count, geometry);
  });
}

FINESERVE_EXPORT int fs_kv_follow(const fs_kv_rank* first) {
  if (const int bad = CheckBytes("first", first)) return bad;
  return Enter([&](Redirector& ours) {
    if (!ours.group().in_use() && !ours.view().is_rank()) {
      return KvError(FS_STATE, "this process is no rank, and has joined none");
    }
    if (ours.group().in_use() && ours.view().is_rank()) {
      return KvError(FS_STATE,
                     "a rank that has joined the others cannot leave");
    }
    if (!IsEvictable()) return +FS_OK;
    if (!ours.first_rank().Set(first->gpu_uuid, first->engine_name)) {
      return KvError(FS_STATE, "another rank was named as the first before");
    }
    StartMover();
    g_presence.Ring();  // it has to find another daemon
    return +FS_OK;
  });
}

FINESERVE_EXPORT int fs_kv_poll(fs_kv_change* changes, uint32_t capacity) {
  if (changes == nullptr && capacity > 0) return -NullArgument("changes");
  return -WithPool(
      [&](GroupView& group) { return -group.Poll(changes, capacity); },
      [&](EngineView&) {
        return WithDriver([&](EngineView& view, const Driver& real) {
          return -view.Poll(real, changes, capacity);
        });
      });
}

FINESERVE_EXPORT int fs_kv_want(uint32_t slabs) {
  const auto ask = [&](auto& pool) { return pool.Want(slabs); };
  return WithPool(ask, ask);
}

FINESERVE_EXPORT int fs_kv_return_slab(uint32_t view_index) {
  const auto ask = [&](auto& pool) { return pool.ReturnSlab(view_index); };
  return WithPool(ask, ask);
}

FINESERVE_EXPORT int fs_kv_publish(uint32_t view_index, uint32_t used_blocks) {
  const auto ask = [&](auto& pool) {
    return pool.Publish(view_index, used_blocks);
  };
  return WithPool(ask, ask);
}

namespace {

int WaitForChange(int timeout_ms) {
  if (Presence::IsAway(g_presence.state()) && timeout_ms >= 0) {
    return g_presence.WaitWhileAway(static_cast<uint64_t>(timeout_ms)) ? 1 : 0;
  }
  if (g_presence.TakeAsk()) return 1;
  return -WithPool(
      [&](GroupView& group) { return -group.Wait(timeout_ms); },
      [&](EngineView&) {
        return WithDriver([&](EngineView& view, const Driver& real) {
          return -view.Wait(real, timeout_ms);
        });
      });
}

}  // namespace

// Looks again every kLookAgainMs, because an engine that is asked to leave just
// as this call falls asleep may not be woken.
FINESERVE_EXPORT int fs_kv_wait(int timeout_ms) {
  constexpr int kLookAgainMs = 1000;
  int woken = 0;
  while (woken == 0 && timeout_ms > kLookAgainMs) {
    woken = WaitForChange(kLookAgainMs);
    timeout_ms -= kLookAgainMs;
  }
  return woken != 0 ? woken : WaitForChange(timeout_ms);
}

FINESERVE_EXPORT uint64_t fs_kv_step_begin(void) {
  uint64_t step = 0;
  while (fs_kv_come_back(kComeBackMs) == 0) {
  }
  WithDriver([&](EngineView& view, const Driver& real) {
    step = view.BeginStep(real);
    return FS_OK;
  });
  return step;
}

FINESERVE_EXPORT int fs_kv_step_end(uint64_t step) {
  return WithView([&](EngineView& view) { return view.EndStep(step); });
}

FINESERVE_EXPORT int fs_kv_allocate(uint32_t count, uint32_t* ids) {
  if (ids == nullptr && count > 0) return NullArgument("ids");
  return WithView([&](EngineView& view) { return view.Allocate(count, ids); });
}

FINESERVE_EXPORT int fs_kv_free(uint32_t count, const uint32_t* ids) {
  if (ids == nullptr && count > 0) return NullArgument("ids");
  return WithView([&](EngineView& view) { return view.Free(count, ids); });
}

FINESERVE_EXPORT int fs_kv_set_watermark(uint64_t blocks) {
  return WithView([&](EngineView& view) { return view.SetWatermark(blocks); });
}

FINESERVE_EXPORT int fs_weights_freeze(const fs_weights_range* ranges,
                                       uint32_t count) {
  using Part = ResidentMemory::Part;
  static_assert(sizeof(Part) == sizeof(*ranges));
  if (ranges == nullptr && count > 0) return NullArgument("ranges");
  for (uint32_t i = 0; i < count; ++i) {
    if (ranges[i].bytes > UINT64_MAX - ranges[i].address) {
      return KvError(FS_INVALID, "range %u exceeds the address space", i);
    }
  }
  return WithDriver([&](EngineView&, const Driver& real) {
    ResidentMemory* const memory = g_redirector.resident();
    if (memory == nullptr) return +FS_OK;
    if (!g_sharer.Start(real)) {
      return KvError(FS_DRIVER, "cannot start a thread that listens");
    }
    if (!memory->Freeze(reinterpret_cast<const Part*>(ranges), count)) {
      return KvError(FS_STATE, "the parameters are shared: thaw them first");
    }
    g_redirector.scoreboard().ShowSocket(g_sharer.Address().socket);
    g_redirector.scoreboard().ShowResident(memory->sum());
    return +FS_OK;
  });
}

FINESERVE_EXPORT int fs_weights_thaw(int timeout_ms) {
  if (timeout_ms < 0) return NegativeTimeout(timeout_ms);
  return WithDriver([&](EngineView&, const Driver&) {
    if (g_redirector.resident() == nullptr) return +FS_OK;
    char why[80];
    return g_mover.Thaw(static_cast<uint64_t>(timeout_ms), why, sizeof(why))
               ? +FS_OK
               : KvError(FS_STATE, "%s", why);
  });
}

FINESERVE_EXPORT int fs_leave_gpu(int timeout_ms) {
  return Move(abi::Place::kHost, timeout_ms);
}

FINESERVE_EXPORT int fs_return_to_gpu(int timeout_ms) {
  return Move(abi::Place::kGpu, timeout_ms);
}

FINESERVE_EXPORT int fs_kv_read_stats(fs_kv_stats* stats) {
  if (const int bad = CheckBytes("stats", stats)) return bad;
  const auto ask = [&](auto& pool) { return pool.ReadStats(stats); };
  return WithPool(ask, ask);
}

}  // namespace fineserve::shim
