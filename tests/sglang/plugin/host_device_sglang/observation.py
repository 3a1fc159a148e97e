"""Observes a scheduler for the tests."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import select
import time
from collections.abc import Callable, Iterator
from typing import Any

from host_device_vllm import host_function

# Number of times that a drained slab had to wait for a step in flight.
fence_waits = 0
# Number of writes of a layer's KV into a slab that this engine no longer held,
# or did not hold yet. The slab is looked up in the daemon's table when the
# write happens, on the stream.
stray_writes = 0
# Number of writes that were looked at.
writes = 0
# Number of parts of a slab (one layer's keys, or latents) that were not all
# zero at this engine's first write to them after it had leased the slab.
dirty_parts = 0
# Copies of KV to the host and back (--enable-hierarchical-cache), copies of a
# slab that this engine did not hold when they began or ended, and tokens that
# were loaded back.
copies = 0
stray_copies = 0
loaded_tokens = 0
# CPU time that leases took in the scheduler's thread, while $HOST_DEVICE_TIME
# is set.
plugin_ns = 0
# For each leased slab, the tensors (one per layer) whose part of the slab has
# been written to.
_written: dict[int, set[int]] = {}
# The scheduler's LeasedPages, once the view is active.
_leased: Any = None


def install() -> None:
    from sglang.srt.managers.scheduler import Scheduler

    Scheduler.write_stats = _write_stats
    if os.environ.get("FINESERVE_VIEW"):
        if os.environ.get("HOST_DEVICE_TIME"):
            _time_leases()
            return  # the watches would take more
        _watch_fence()
        _watch_leases()
        _watch_writes()
        _watch_copies()


def _watch_fence() -> None:
    from fineserve_vllm.fence import StepFence

    original = StepFence.passed

    def passed(self: Any, barrier: int) -> bool:
        global fence_waits
        answer = original(self, barrier)
        fence_waits += not answer
        return answer

    StepFence.passed = passed


def _time_leases() -> None:
    from fineserve_sglang.scheduler_leases import SchedulerLeases

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any) -> Any:
            global plugin_ns
            began = time.thread_time_ns()
            result = method(self, *args)
            plugin_ns += time.thread_time_ns() - began
            return result

        return call

    for name in ("step_begins", "launching", "launched", "processed"):
        setattr(SchedulerLeases, name, timed(vars(SchedulerLeases)[name]))


def _watch_leases() -> None:
    from fineserve_sglang.leased_pages import LeasedPages

    original = LeasedPages.apply

    def apply(self: Any, changes: Any) -> Any:
        global _leased
        _leased = self
        # This comes first, because pages of these slabs are handed out
        # afterwards.
        _written.update((slab, set()) for slab in changes.leased)
        return original(self, changes)

    LeasedPages.apply = apply


def _watch_writes() -> None:
    from sglang.srt.mem_cache.memory_pool import (
        MHATokenToKVPool,
        MLATokenToKVPool,
    )

    store_dense = MHATokenToKVPool._store_kv_layer
    store_latents = MLATokenToKVPool.set_kv_buffer

    def dense(self: Any, layer: int, slots: Any, k: Any, v: Any) -> None:
        if self.allocation_label == "SWA":  # not on the view
            store_dense(self, layer, slots, k, v)
            return
        with _watched(self, slots, self.k_buffer[layer]):
            store_dense(self, layer, slots, k, v)

    def latents(self: Any, layer: Any, where: Any, k: Any, v: Any) -> None:
        with _watched(self, where.loc, self.kv_buffer[layer.layer_id]):
            store_latents(self, layer, where, k, v)

    MHATokenToKVPool._store_kv_layer = dense
    MLATokenToKVPool.set_kv_buffer = latents


def _watch_copies() -> None:
    from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost

    # As if the host were far away.
    delay_s = int(os.environ.get("HOST_DEVICE_STORE_MS", "0")) / 1000
    store = MHATokenToKVPoolHost.backup_from_device_all_layer
    load = MHATokenToKVPoolHost.load_to_device_per_layer

    def stored(
        self: Any, pool: Any, to: Any, slots: Any, *more: Any, **named: Any
    ) -> None:
        check = functools.partial(_check_copy, slots, self.page_size)
        # Checks on the copy's stream, before and after the copy.
        host_function.enqueue(check)
        host_function.enqueue(functools.partial(time.sleep, delay_s))
        store(self, pool, to, slots, *more, **named)
        host_function.enqueue(check)

    def loaded(
        self: Any,
        pool: Any,
        source: Any,
        slots: Any,
        layer: int,
        *more: Any,
        **named: Any,
    ) -> None:
        tensor = self.device_k_buffers[layer].data_ptr()
        check = functools.partial(_check_copy, slots, self.page_size, tensor)
        host_function.enqueue(check)
        load(self, pool, source, slots, layer, *more, **named)
        host_function.enqueue(check)

    MHATokenToKVPoolHost.backup_from_device_all_layer = stored
    MHATokenToKVPoolHost.load_to_device_per_layer = loaded


def _check_copy(slots: Any, page: int, tensor: int | None = None) -> None:
    """Checks the slabs of a copy. `tensor`: a layer's keys that the copy writes
    to; None if the copy only reads."""
    global copies, stray_copies, loaded_tokens
    copies += 1
    slabs = _slabs_of(slots, page)
    if tensor is not None:
        loaded_tokens += len(slots)
        for slab in slabs:
            _written.get(slab, set()).add(tensor)
    try:
        _table().require_leased(slabs)
    except AssertionError as error:
        print(f"a stray copy: {error}", flush=True)
        stray_copies += 1


@contextlib.contextmanager
def _watched(pool: Any, slots: Any, tensor: Any) -> Iterator[None]:
    """Checks a layer's KV in `tensor` before and after its `slots` are written
    to, on the stream."""
    page = pool.page_size
    at = tensor.data_ptr()
    if any(at not in tensors for tensors in list(_written.values())):
        host_function.enqueue(
            functools.partial(_check_zero, slots, tensor, page)
        )
    yield
    if _leased is not None:
        host_function.enqueue(functools.partial(_check_leased, slots, page))


def _slabs_of(slots: Any, page: int) -> set[int]:
    content = (ctypes.c_int64 * slots.shape[0]).from_address(slots.data_ptr())
    return {_slab_of_page()[slot // page] for slot in content if slot >= page}


def _check_zero(slots: Any, tensor: Any, page: int) -> None:
    """Checks that the slabs which are about to be written to are zero."""
    global dirty_parts
    for slab in _slabs_of(slots, page):
        tensors = _written.get(slab)
        if tensors is None or tensor.data_ptr() in tensors:
            continue
        tensors.add(tensor.data_ptr())
        ids = _leased.slabs[slab].ids
        token = tensor[0].numel() * tensor.element_size()
        at = tensor.data_ptr() + ids.start * page * token
        content = ctypes.string_at(at, len(ids) * page * token)
        dirty_parts += bool(content.strip(b"\0"))


def _check_leased(slots: Any, page: int) -> None:
    global stray_writes, writes
    writes += 1
    try:
        _table().require_leased(_slabs_of(slots, page))
    except AssertionError as error:
        print(f"a stray write: {error}", flush=True)
        stray_writes += 1


@functools.cache
def _slab_of_page() -> list[int]:
    """Returns the slab of each page, or 0, which no engine leases, for a page
    in no slab."""
    slabs = [0] * (1 + max(s.ids.stop for s in _leased.slabs.values()))
    for slab in _leased.slabs.values():
        for page in slab.ids:
            slabs[page] = slab.index
    return slabs


@functools.cache
def _table() -> Any:
    from device_kv import SlabTable
    from fineserve_vllm import kv_abi

    # If there are several ranks, the first one has the tables of all GPUs.
    rank = kv_abi.Rank.from_buffer_copy(kv_abi.Shim().rank())
    return SlabTable(bytes(rank.gpu_uuid))


def _write_stats(scheduler: Any, path: str) -> None:
    """Writes a line of figures to a pipe, in each rank."""
    line = json.dumps(_stats(scheduler)) + "\n"
    assert len(line) <= select.PIPE_BUF  # in one piece
    with open(path, "w") as pipe:
        pipe.write(line)


def _stats(scheduler: Any) -> dict[str, Any]:
    import torch
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    driver = ctypes.CDLL("libcuda.so.1")
    driver.emucuda_skipped_launches.restype = ctypes.c_uint64
    host_device = torch.ops.host_device
    found = {
        "pid": os.getpid(),
        "rank": [parallel.dp_rank or 0, parallel.pp_rank, parallel.tp_rank],
        "device": torch.cuda.current_device(),
        "overlap": scheduler.enable_overlap,
        "steps": scheduler.forward_ct,
        "plugin_ns": plugin_ns,
        "cpu_s": time.process_time(),
        "allocator": type(scheduler.token_to_kv_pool_allocator).__name__,
        "skipped_kernels": driver.emucuda_skipped_launches(),
        "enqueued": host_device.enqueued(),
        "waited": dict(host_device.waited()),
        "fence_waits": fence_waits,
        "writes": writes,
        "stray_writes": stray_writes,
        "dirty_parts": dirty_parts,
        "copies": copies,
        "stray_copies": stray_copies,
        # Each token is counted twice in each layer.
        "loaded_tokens": loaded_tokens // (2 * scheduler.model_config.num_hidden_layers),
    }
    if os.environ.get("FINESERVE_VIEW"):
        found |= _lease_stats(scheduler)
    return found


def _lease_stats(scheduler: Any) -> dict[str, Any]:
    from fineserve_sglang import plugin
    from fineserve_vllm import kv_abi

    stats = kv_abi.Shim().stats()
    counters = plugin.leases_of(scheduler).counters
    return {name: getattr(stats, name) for name, _ in stats._fields_} | {
        "slabs_asked_back": counters.asked_back,
        "slabs_returned": counters.returned,
    }
