"""Observations of an engine with a view, for the tests."""

from __future__ import annotations

import ctypes
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from host_device_vllm import host_function

# Number of times that a drained slab had to wait for a step in flight.
fence_waits = 0
# Number of steps of a layer that wrote KV into a slab that this engine had not
# leased yet, or no longer had. The slab is looked up in the daemon's table when
# the write happens, on the stream.
stray_writes = 0
watched_writes = 0  # all that were looked up so
# Number of parts of a slab (one layer's) that were not all zero when this
# engine first wrote to them after it had leased the slab.
dirty_parts = 0
# Number of copies to or from the host (each is one of a connector's jobs) that
# used a slab that this engine no longer had when they ran, or that read an
# all-zero block, whose slab has therefore been returned and leased again.
stray_copies = 0
copies = 0
# Number of parts of reads by the stand-in for NIXL that wrote into a slab that
# this engine no longer had.
stray_transfers = 0
# Number of batches without a request, which a data-parallel rank runs because
# other ranks' steps need its experts.
idle_batches = 0
# For each leased slab, the layers whose part of the slab has been written.
_written: dict[int, set[int]] = {}
_rank_is_active = False
_original_activate: Callable[[Any], bytes]


def install() -> None:
    if not os.environ.get("FINESERVE_VIEW"):
        return
    if os.environ.get("HOST_DEVICE_TIME"):
        return  # a bench: the watches take more than what it measures
    from fineserve_vllm.fence import StepFence

    original = StepFence.passed

    def passed(self: Any, barrier: int) -> bool:
        global fence_waits
        answer = original(self, barrier)
        fence_waits += not answer
        return answer

    StepFence.passed = passed
    _watch_activation()
    _watch_leases()
    _watch_writes()
    _watch_copies()
    _watch_idle_batches()
    if "NIXL_STAND_IN" in os.environ:
        _watch_transfers()


def _watch_leases() -> None:
    from fineserve_vllm.pool import LeasedBlockPool

    original = LeasedBlockPool.apply

    def apply(self: Any, changes: Any) -> None:
        # Before the original, which lets blocks of these slabs be handed out.
        _written.update((slab, set()) for slab in changes.leased)
        original(self, changes)

    LeasedBlockPool.apply = apply


def _watch_writes() -> None:
    from host_device_vllm.attention import HostAttentionImpl
    from host_device_vllm.latent_attention import HostLatentImpl

    # The KV cache follows the arguments (layer, key, value) or (latents, keys).
    _watch(HostAttentionImpl, 3, lambda kv_cache: kv_cache)
    _watch(HostLatentImpl, 2, lambda kv_cache: kv_cache.unsqueeze(1))


def _watch(
    implementation: Any, place: int, with_heads: Callable[[Any], Any]
) -> None:
    """Checks each update of the KV cache. `place`: position of the KV cache
    among the arguments, which the slots follow; with_heads makes the KV cache
    [blocks, heads, tokens, content]."""
    original = implementation.do_kv_cache_update

    def do_kv_cache_update(self: Any, *arguments: Any) -> None:
        kv_cache = with_heads(arguments[place])
        slots = arguments[place + 1]
        layer_at = kv_cache.data_ptr()
        # Copies the values, because another thread also changes the leases.
        written = list(_written.values()) if _slab_of_block() else []
        if any(layer_at not in layers for layers in written):
            host_function.enqueue(
                functools.partial(_check_zero, slots, kv_cache)
            )
        original(self, *arguments)
        if _slab_of_block():
            host_function.enqueue(
                functools.partial(_check_leased, slots, kv_cache.shape[2])
            )

    implementation.do_kv_cache_update = do_kv_cache_update


def _watch_copies() -> None:
    from vllm.v1.kv_offload.base import GPULoadStoreSpec
    from vllm.v1.kv_offload.cpu import gpu_worker

    # As if the host were far away.
    delay_s = int(os.environ.get("HOST_DEVICE_STORE_MS", "0")) / 1000
    handler = gpu_worker.SingleDirectionOffloadingHandler
    original = handler.transfer_async

    def transfer_async(self: Any, job: int, source: Any, target: Any) -> bool:
        writes = isinstance(target, GPULoadStoreSpec)
        its = target if writes else source
        blocks = [int(block) for block in its.block_ids]
        pages = [
            tensor.data_ptr() + block * tensor.stride(0)
            for tensor in ([] if writes else self.src_tensors)
            for block in blocks
        ]
        swap = self._swap_blocks_batch

        def observed(*arguments: Any, **named: Any) -> None:
            # The check runs in the copy's stream, before and after the copy.
            check = functools.partial(_check_copy, blocks, writes, pages)
            host_function.enqueue(check)
            if not writes and delay_s:
                host_function.enqueue(functools.partial(time.sleep, delay_s))
            swap(*arguments, **named)
            host_function.enqueue(check)

        self._swap_blocks_batch = observed
        try:
            return original(self, job, source, target)
        finally:
            self._swap_blocks_batch = swap

    handler.transfer_async = transfer_async


def _watch_idle_batches() -> None:
    from vllm.v1.worker.gpu_worker import Worker

    original = Worker.execute_dummy_batch

    def execute_dummy_batch(self: Any) -> None:
        global idle_batches
        idle_batches += 1
        original(self)

    Worker.execute_dummy_batch = execute_dummy_batch


def _check_copy(blocks: list[int], writes: bool, pages: list[int]) -> None:
    global copies, stray_copies
    copies += 1
    slabs = {_slab_of_block()[block] for block in blocks}
    for slab in slabs if writes else ():
        _written.pop(slab, None)  # the layers are not the first to write it
    try:
        _table().require_leased(slabs)
        # No layer's keys are zero.
        assert all(ctypes.string_at(page, 4096).strip(b"\0") for page in pages), (
            "a block that is copied to the host is zero"
        )
    except AssertionError as error:
        print(f"a stray copy: {error}", flush=True)
        stray_copies += 1


def _watch_transfers() -> None:
    from nixl import _api

    _api.observer = _check_transfer


def _check_transfer(ranges: Sequence[tuple[int, int]]) -> None:
    """Checks the leases of what a read writes. Called on the thread of the
    read, before and after the write."""
    global stray_transfers
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    worker = get_kv_transfer_group().connector_worker
    # A block is in one piece.
    base = min(worker.kv_caches_base_addr[worker.engine_id][0])
    stride = worker.block_stride_per_layer[0]
    blocks = {(address - base) // stride for address, _ in ranges}
    slabs = {_slab_of_block()[block] for block in blocks}
    for slab in slabs:
        _written.pop(slab, None)  # the layers are not the first to write it
    try:
        _table().require_leased(slabs)
    except AssertionError as error:
        print(f"a stray transfer: {error}", flush=True)
        stray_transfers += 1


def transfers() -> dict[str, int]:
    """Returns the counts of this worker's reads by the stand-in for NIXL."""
    if "NIXL_STAND_IN" not in os.environ:
        return {}
    from nixl import _api

    return {
        "transfers": _api.begun,
        "transfers_ended": _api.ended,
        "transfers_failed": _api.failed,
        "stale_transfers": _api.stale,
        "stray_transfers": stray_transfers,
    }


def _slabs_of_slots(slots: Any, block_tokens: int) -> set[int]:
    content = (ctypes.c_int64 * slots.shape[0]).from_address(slots.data_ptr())
    blocks = {slot // block_tokens for slot in content if slot >= 0}
    return {_slab_of_block()[block] for block in blocks}


def _check_zero(slots: Any, kv_cache: Any) -> None:
    """Checks that a layer's part of each slab is zero before its first
    write."""
    global dirty_parts
    for slab in _slabs_of_slots(slots, kv_cache.shape[2]):
        layers = _written.get(slab)
        if layers is not None and kv_cache.data_ptr() not in layers:
            layers.add(kv_cache.data_ptr())
            dirty_parts += not _is_zero(slab, kv_cache)


def _check_leased(slots: Any, block_tokens: int) -> None:
    global stray_writes, watched_writes
    watched_writes += 1
    slabs = _slabs_of_slots(slots, block_tokens)
    try:
        _table().require_leased(slabs)
    except AssertionError as error:
        print(f"a stray write: {error}", flush=True)
        stray_writes += 1


def _is_zero(slab: int, kv_cache: Any) -> bool:
    """Returns True if all of a layer's pages in a slab are zero."""
    item = kv_cache.element_size()
    page = kv_cache[0].numel() * item
    return not any(
        ctypes.string_at(
            kv_cache.data_ptr() + block * kv_cache.stride(0) * item, page
        ).strip(b"\0")
        for block, its in enumerate(_slab_of_block())
        if its == slab
    )


def _slab_of_block() -> list[int]:
    """Returns the slab of each block; 0, which no engine leases, for a block in
    no slab. The list is empty until the engine has left the memory on which it
    warms up."""
    from fineserve_vllm import plugin

    for engine in plugin._engines:
        return _slabs_of(engine.pool)
    return _slabs_of_rank() if _rank_is_active else []


def _watch_activation() -> None:
    """Notes when the view is activated in a worker whose scheduler is another
    process."""
    global _original_activate
    from fineserve_vllm import ranks

    _original_activate = ranks.activate
    ranks.activate = activate_rank


def activate_rank(worker: Any) -> bytes:
    """Activates a worker and notes it. The scheduler's process sends workers
    only the name of this function: a nested function would be sent whole, and
    would set its own copy of the variable there."""
    global _rank_is_active
    rank = _original_activate(worker)
    _rank_is_active = True
    return rank


@functools.cache
def _slabs_of_rank() -> list[int]:
    from fineserve_vllm import kv_abi

    shim = kv_abi.Shim()
    slabs: list[int] = []
    for index in range(1, _table().count + 1):
        try:
            ids = shim.slab_blocks(index)
        except kv_abi.KvError:  # its tensors are shorter than the pool
            break
        slabs += [0] * (ids.stop - len(slabs))
        for block in ids:
            slabs[block] = index
    return slabs


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
