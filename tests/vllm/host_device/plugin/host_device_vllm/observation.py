"""What the tests want to know of an engine with a view."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

from host_device_vllm import host_function

# How often a drained slab had to wait for a step in flight.
fence_waits = 0
# How many of its layers' steps wrote KV into a slab that was no longer this engine's,
# or not yet. It is looked up in the daemon's table when the write happens, on
# the stream.
stray_writes = 0


def install() -> None:
    if not os.environ.get("FINESERVE_VIEW"):
        return
    from fineserve_vllm.fence import StepFence

    original = StepFence.passed

    def passed(self: Any, barrier: int) -> bool:
        global fence_waits
        answer = original(self, barrier)
        fence_waits += not answer
        return answer

    StepFence.passed = passed
    _watch_writes()


def _watch_writes() -> None:
    from host_device_vllm.attention import HostAttentionImpl

    original = HostAttentionImpl.do_kv_cache_update

    def do_kv_cache_update(
        self: Any, layer: Any, key: Any, value: Any, kv_cache: Any, slots: Any
    ) -> None:
        original(self, layer, key, value, kv_cache, slots)
        if _slab_of_block():
            host_function.enqueue(
                functools.partial(_check, slots, kv_cache.shape[2])
            )

    HostAttentionImpl.do_kv_cache_update = do_kv_cache_update


def _check(slots: Any, block_tokens: int) -> None:
    global stray_writes
    content = (ctypes.c_int64 * slots.shape[0]).from_address(slots.data_ptr())
    blocks = {slot // block_tokens for slot in content if slot >= 0}
    slabs = {_slab_of_block()[block] for block in blocks}
    try:
        _table().require_leased(slabs)
    except AssertionError as error:
        print(f"a stray write: {error}", flush=True)
        stray_writes += 1


def _slab_of_block() -> list[int]:
    """By block; 0, which no engine leases, for what lies in no slab. Empty until
    the engine has left the memory that it warms up on."""
    from fineserve_vllm import plugin

    for engine in plugin._engines:
        return _slabs_of(engine.pool)
    return []


@functools.cache
def _slabs_of(pool: Any) -> list[int]:
    slabs = [0] * len(pool.blocks)
    for slab in pool.grants.slabs():
        for block in slab.ids:
            slabs[block] = slab.index
    return slabs


@functools.cache
def _table() -> Any:
    from device_kv import SlabTable

    return SlabTable()
