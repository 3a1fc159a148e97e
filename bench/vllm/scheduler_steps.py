"""Measures the plugin's part of a step of vLLM's scheduler, without a worker.

Two schedulers on the same requests, which generate, take turns: one on vLLM's
pool, one on leases. The second one's steps are timed twice, around the plugin's
wrapper and around the vLLM method in it; the difference is the plugin's.
Medians of single steps, which another process seldom interrupts; what the
plugin does only once in 50 ms, counting used blocks (some 60 µs), is not in
them.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import doubles

doubles.prepare()

from doubles import build  # noqa: E402
from fineserve_vllm import plugin  # noqa: E402
from fineserve_vllm.grants import InMemoryGrants  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402

SLABS, BLOCKS_PER_SLAB = 64, 256
PROMPT = 64  # tokens
METHODS = ("schedule", "update_from_output")


class _Timer:
    def __init__(self) -> None:
        self.ns = 0

    def around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter_ns()
            try:
                return method(*args, **kwargs)
            finally:
                self.ns += time.perf_counter_ns() - began

        return timed

    def take(self) -> float:
        taken, self.ns = self.ns / 1000, 0
        return taken


def measure(running: int, steps: int) -> dict[str, float]:
    """Returns the µs per step with `running` requests: vLLM's own part, the
    plugin's part, and the ratio of a step with the plugin to a step without."""
    inner, outer = _Timer(), _Timer()
    originals = {name: vars(Scheduler)[name] for name in METHODS}
    for name, method in originals.items():
        setattr(Scheduler, name, inner.around(method))
    try:
        stock = _scheduler(running)
        plugin.install(_grants)
        leased = _scheduler(running)
        for name in METHODS:
            setattr(leased, name, outer.around(getattr(leased, name)))
        gc.collect()
        gc.freeze()  # as EngineCore does
        return _alternate(stock, leased, inner, outer, steps)
    finally:
        plugin.uninstall()
        for name, method in originals.items():
            setattr(Scheduler, name, method)


def _alternate(
    stock: Any, leased: Any, inner: _Timer, outer: _Timer, steps: int
) -> dict[str, float]:
    own, added, ratios = [], [], []
    inner.take()
    outer.take()
    for number in range(steps):
        taken = {}
        for scheduler in (stock, leased) if number % 2 else (leased, stock):
            build.step(scheduler)
            taken[scheduler is leased] = inner.take()
        whole = outer.take()
        own.append(taken[False])
        added.append(whole - taken[True])
        ratios.append(whole / taken[False])
    return {
        "vllm": statistics.median(own),
        "plugin": statistics.median(added),
        "ratio": statistics.median(ratios),
    }


def _grants(_num_blocks: int) -> InMemoryGrants:
    return InMemoryGrants.uniform(SLABS, BLOCKS_PER_SLAB, range(1, SLABS + 1))


def _scheduler(running: int) -> Any:
    scheduler = build.scheduler(
        (SLABS + 1) * BLOCKS_PER_SLAB,
        vllm_config__scheduler_config__max_num_seqs=256,
        vllm_config__scheduler_config__max_num_batched_tokens=8192,
    )
    for i in range(running):
        build.add_request(scheduler, f"r{i}", PROMPT)
    while len(scheduler.running) < running or scheduler.waiting:
        build.step(scheduler)
    return scheduler
