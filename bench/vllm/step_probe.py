"""Records the steps of this process's scheduler, for the bench `vllm`.

install() does so where the bench can call it. If the scheduler is in another
process than the workers, register() does (vllm.general_plugins): after each
step it appends a line of two numbers to the file $STEP_PROBE_FILE.PID, the steps
so far and the ns that leases have taken of them.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

# Time (monotonic, s), number of tokens generated, number of waiting requests,
# number of slabs that blocks come from (0 without leases).
Step = tuple[float, int, int, int]

_steps: list[Step] = []
_plugin_ns = 0
_registered = False


def register() -> None:
    global _registered
    path = os.environ.get("STEP_PROBE_FILE")
    if path is None or _registered:
        return
    _registered = True
    install()
    from vllm.v1.core.sched.scheduler import Scheduler

    update = Scheduler.update_from_output
    path = f"{path}.{os.getpid()}"
    lines = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @functools.wraps(update)
    def written(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = update(self, *args, **kwargs)
        os.write(lines, b"%d %d\n" % (len(_steps), _plugin_ns))
        return result

    Scheduler.update_from_output = written


def install() -> None:
    """Records every step from now on."""
    from fineserve_vllm.engine_leases import EngineLeases
    from vllm.v1.core.sched.scheduler import Scheduler

    # This is the outermost wrapper, so it also covers what the plugin has
    # wrapped.
    schedule = Scheduler.schedule

    @functools.wraps(schedule)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = schedule(self, *args, **kwargs)
        if output.total_num_scheduled_tokens > 0:
            _record(self, output)
        return output

    Scheduler.schedule = recorded
    for name in ("schedule_begins", "schedule_ends", "step_processed"):
        setattr(EngineLeases, name, _timed(vars(EngineLeases)[name]))


def _record(scheduler: Any, output: Any) -> None:
    requests = scheduler.requests
    generated = sum(
        not requests[name].is_prefill_chunk
        for name in output.num_scheduled_tokens
    )
    pool = scheduler.kv_cache_manager.block_pool
    linked = len(getattr(pool, "linked", ()))
    _steps.append((time.monotonic(), generated, len(scheduler.waiting), linked))


def _timed(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def timed(self: Any, *args: Any) -> Any:
        global _plugin_ns
        began = time.perf_counter_ns()
        result = method(self, *args)
        _plugin_ns += time.perf_counter_ns() - began
        return result

    return timed


def take() -> dict[str, Any]:
    """Returns the steps since the last call, and the mean time in µs that
    leases took of each step."""
    global _plugin_ns
    steps = _steps.copy()
    taken = {
        "steps": steps,
        "plugin_us": _plugin_ns / 1000 / max(1, len(steps)),
    }
    _steps.clear()
    _plugin_ns = 0
    return taken
