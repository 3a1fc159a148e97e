"""Starts an engine on a view with what the view needs, so that nothing has to
be set by hand; what the user has set wins.

By itself vLLM sizes the KV cache by the memory that is free while it starts,
and does not start if --gpu-memory-utilization of the device is not free. On a
shared device neither is true for long: a view covers the whole pool, whatever
is free now, and how much of it the engine may lease at a time (its cap) is what
--gpu-memory-utilization leaves beside its weights and activations.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from fineserve_vllm import kv_abi, kv_groups, ranks
from fineserve_vllm.log import logger
from fineserve_vllm.view_format import GRANULARITY, ViewFormat

_log = logger(__name__)

# Share of the device that is small enough for vLLM's check of the free memory
# to pass.
_NEXT_TO_NOTHING = 1e-9

# PyTorch puts a smaller allocation into a part of a segment (kMinLargeAlloc),
# which is not a view.
_OWN_SEGMENT = 10 << 20  # bytes

_BLOCKS_OUTERMOST = "BL"  # layouts whose name begins so

# Returns (bytes of the device, bytes of this process without its KV cache).
Memory = Callable[[], tuple[int, int]]


class PoolReader(Protocol):
    """The part of kv_abi.Shim that this module uses."""

    def pool(self) -> kv_abi.Pool: ...


def device_memory() -> tuple[int, int]:
    """Returns the memory of PyTorch's current device, and the most that this
    process has reserved of it; other processes do not matter."""
    import torch

    _, total = torch.cuda.mem_get_info()
    return total, torch.cuda.max_memory_reserved()


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of the KV cache that the user has set, if any."""

    bytes: int | None
    blocks: int | None


@dataclasses.dataclass(frozen=True)
class Cap:
    """The most blocks that the engine may lease, and the flag that the number
    comes from."""

    blocks: int
    flag: str


class Start:
    """The start of one worker.

    Args:
        prepared: called with the worker once it has its device.
        go_without: gives up the view of an engine that may run without one.
    """

    def __init__(
        self,
        shim: PoolReader,
        memory: Memory = device_memory,
        prepared: Callable[[Any], None] = lambda worker: None,
        go_without: Callable[[], None] | None = None,
    ) -> None:
        self._shim = shim
        self._memory = memory
        self._prepared = prepared
        self._go_without = go_without
        self._asked: Size | None = None  # None before a worker starts

    def install(self) -> Callable[[], None]:
        """Prepares every worker from now on; the result undoes it.

        Raises:
            RuntimeError: this vLLM lacks a name that this relies on.
        """
        wrapper = importlib.import_module(
            "vllm.v1.worker.worker_base"
        ).WorkerWrapperBase
        original = vars(wrapper).get("init_device")
        if original is None:
            raise RuntimeError(
                f"FineServe: this vLLM version is not supported: "
                f"{wrapper.__name__} defines no init_device"
            )
        kv_groups.planner()

        @functools.wraps(original)
        def init_device(wrapped: Any) -> None:
            with _memory_check_off(wrapped.vllm_config.cache_config):
                original(wrapped)
            if self._has_no_pool(wrapped.vllm_config):
                return
            self.prepare(wrapped.worker, wrapped.vllm_config)
            self._prepared(wrapped.worker)

        wrapper.init_device = init_device
        return lambda: setattr(wrapper, "init_device", original)

    def _has_no_pool(self, vllm_config: Any) -> bool:
        """Returns True if the engine runs without a view, because there is no
        pool. Workers in separate processes could not agree on that."""
        if (
            self._go_without is None
            or kv_abi.view_is_required()
            or ranks.has_ranks(vllm_config)
        ):
            return False
        try:
            self._shim.pool()
        except kv_abi.KvError as error:
            if error.code != kv_abi.Error.NO_DAEMON:
                raise
            _log.warning(
                "%s: the engine runs without a view, on a KV cache of its own",
                error,
            )
            self._go_without()
            return True
        return False

    def prepare(self, worker: Any, vllm_config: Any) -> None:
        """Answers, in the worker's place, the questions that vLLM asks before
        it allocates the KV cache."""
        layouts = worker.get_supported_kv_cache_layouts
        profile = worker.determine_available_memory

        def determine_available_memory() -> int:
            size = self.view_bytes(worker, vllm_config)
            profile()  # warms up, too
            self._shorten(worker, vllm_config)
            return size

        worker.get_supported_kv_cache_layouts = lambda: offered(
            layouts(), vllm_config.kv_transfer_config is not None
        )
        worker.determine_available_memory = determine_available_memory

    def view_bytes(self, worker: Any, vllm_config: Any) -> int:
        """Returns the bytes that vLLM must allocate for a view of the whole
        pool. The user's setting of the size becomes the cap."""
        cache_config = vllm_config.cache_config
        self._asked = Size(
            cache_config.kv_cache_memory_bytes,
            cache_config.num_gpu_blocks_override,
        )
        cache_config.num_gpu_blocks_override = None
        pool = self._shim.pool()
        groups = kv_groups.planned(vllm_config, worker.get_kv_cache_spec())
        _require_room(pool, groups, vllm_config)
        if _blocks_in_one_piece(cache_config):
            size = (pool.slab_count + 1) * pool.slab_bytes
        else:
            size = _bytes_by_layer(pool, groups)
        _require_segment(size, pool)
        # Makes vLLM skip the measurement of free memory.
        cache_config.kv_cache_memory_bytes = size
        return size

    def cap(self, cache_config: Any, found: ViewFormat) -> Cap | None:
        """The cap of an engine with this format; None: the whole view.

        Raises:
            RuntimeError: the longest request does not fit under it.
        """
        if self._asked is None:
            return None
        cap = self._cap(self._asked, cache_config, found.block_bytes)
        if cap.blocks < found.floor_blocks:
            raise RuntimeError(
                f"FineServe: {cap.flag} leaves room for {cap.blocks} blocks of "
                f"KV cache, but the longest request takes "
                f"{found.floor_blocks}: raise it or lower --max-model-len"
            )
        return cap if cap.blocks < found.blocks else None

    def _shorten(self, worker: Any, vllm_config: Any) -> None:
        """Lowers a --max-model-len that vLLM shall choose (auto) to what the
        engine can always be leased. vLLM would fit it to the view's bytes: it
        knows neither the cap nor the scratch, and counts blocks that straddle
        two slabs.

        Raises:
            RuntimeError: not even a token fits, or the workers are other
                processes than the one where vLLM chooses.
        """
        model = vllm_config.model_config
        groups = kv_groups.planned(vllm_config, worker.get_kv_cache_spec())
        if model.original_max_model_len != -1 or not groups:
            return
        pool, cache_config = self._shim.pool(), vllm_config.cache_config
        assert self._asked is not None
        cap = self._cap(
            self._asked, cache_config, kv_groups.block_bytes(groups)
        )
        most = min(cap.blocks, _whole_blocks(pool, groups, cache_config))
        length = kv_groups.longest_length(groups, vllm_config, most)
        if length == model.max_model_len:
            return
        if length == 0:
            raise RuntimeError(
                f"FineServe: {cap.flag} and the pool leave room for {most} "
                f"blocks of KV cache, and a request of one token takes more: "
                f"raise it, or start fineserved with a larger --pool"
            )
        if ranks.has_ranks(vllm_config):
            raise RuntimeError(
                f"FineServe: vLLM cannot choose a shorter --max-model-len "
                f"where workers are processes of their own: set "
                f"--max-model-len {length}"
            )
        _log.info(
            "FineServe: --max-model-len is lowered from %d to %d, which is "
            "what %d blocks hold (the pool, and %s)",
            model.max_model_len,
            length,
            most,
            cap.flag,
        )
        worker.update_max_model_len(length)

    def _cap(self, asked: Size, cache_config: Any, block_bytes: int) -> Cap:
        if asked.blocks is not None:
            return Cap(
                asked.blocks, f"--num-gpu-blocks-override {asked.blocks}"
            )
        if asked.bytes is not None:
            return Cap(
                asked.bytes // block_bytes,
                f"--kv-cache-memory-bytes {asked.bytes}",
            )
        share = cache_config.gpu_memory_utilization
        total, others = self._memory()
        room = max(0, math.ceil(share * total) - others)
        return Cap(room // block_bytes, f"--gpu-memory-utilization {share}")


def offered(layouts: list[str], connector: bool) -> list[str]:
    """Returns a worker's answer when vLLM asks for its layouts. A connector
    prefers a plane per layer, which takes a granule of the slab for each layer,
    but it accepts blocks in one piece if no other layout is offered."""
    ours = in_our_order(layouts)
    if not connector or "VLLM_KV_CACHE_LAYOUT" in os.environ:
        return ours
    in_one_piece = [n for n in ours if n.startswith(_BLOCKS_OUTERMOST)]
    return in_one_piece or ours


def in_our_order(layouts: list[str]) -> list[str]:
    """Sorts the layouts that keep a block of all layers in one piece to the
    front, so that a slab of any size holds whole blocks. Within a block, keeps
    the order that the attention backend prefers. VLLM_KV_CACHE_LAYOUT wins."""
    within = layouts[0].replace("L", "").replace("B", "")
    return sorted(
        layouts,
        key=lambda name: (
            not name.startswith(_BLOCKS_OUTERMOST),
            not name.endswith(within),
        ),
    )


@contextlib.contextmanager
def _memory_check_off(cache_config: Any) -> Iterator[None]:
    asked = cache_config.gpu_memory_utilization
    cache_config.gpu_memory_utilization = _NEXT_TO_NOTHING
    try:
        yield
    finally:
        cache_config.gpu_memory_utilization = asked


def _require_room(
    pool: kv_abi.Pool, groups: Sequence[Any], vllm_config: Any
) -> None:
    """Raises RuntimeError if the pool cannot hold the longest request. vLLM's
    own error would advise raising --gpu-memory-utilization."""
    model = vllm_config.model_config
    # Without groups, view_format reports the error. If the length is -1, it is
    # shortened to what fits.
    if not groups or model.original_max_model_len == -1:
        return
    most = pool.slab_count * pool.slab_bytes
    needed = kv_groups.block_bytes(groups) * kv_groups.longest_request_blocks(
        groups, vllm_config
    )
    if needed > most:
        raise RuntimeError(
            f"FineServe: the longest request (--max-model-len "
            f"{model.max_model_len}) takes {-(-needed >> 20)} MiB of KV cache, "
            f"and the pool has {most >> 20} MiB: lower --max-model-len, or "
            f"start fineserved with a larger --pool"
        )


def _require_segment(size: int, pool: kv_abi.Pool) -> None:
    """Raises RuntimeError for a view that PyTorch would not allocate in its own
    segment."""
    if size < _OWN_SEGMENT:
        raise RuntimeError(
            f"FineServe: PyTorch allocates a KV cache of less than "
            f"{_OWN_SEGMENT >> 20} MiB together with other tensors, and the "
            f"pool has {(pool.slab_count * pool.slab_bytes) >> 20} MiB: start "
            f"fineserved with --pool {_OWN_SEGMENT >> 20}MiB or more"
        )


def _blocks_in_one_piece(cache_config: Any) -> bool:
    layout: str = cache_config.kv_cache_layout
    return layout.startswith(_BLOCKS_OUTERMOST)


def _whole_blocks(
    pool: kv_abi.Pool, groups: Sequence[Any], cache_config: Any
) -> int:
    """Returns the least number of whole blocks that a pool holds, wherever
    blocks straddle two slabs. The daemon counts a floor in the same way
    (SlabLayout::LeastBlocks)."""
    if _blocks_in_one_piece(cache_config):
        page, plane_bytes = kv_groups.block_bytes(groups), pool.slab_bytes
    else:
        page = max(page for group in groups for page in kv_groups.pages(group))
        plane_bytes = _plane_granules(pool, groups) * pool.granule_bytes
    before = page - math.gcd(page, plane_bytes)  # of the first whole block
    return pool.slab_count * max(0, (plane_bytes - before) // page)


def _planes(groups: Sequence[Any]) -> int:
    return max(len(group.layer_names) for group in groups)


def _plane_granules(pool: kv_abi.Pool, groups: Sequence[Any]) -> int:
    """Returns the number of granules that each plane has in a slab, with a
    plane per layer."""
    return pool.slab_bytes // pool.granule_bytes // _planes(groups)


def _bytes_by_layer(pool: kv_abi.Pool, groups: Sequence[Any]) -> int:
    """Returns the bytes of a view with a plane per layer; all groups use the
    same planes. Each plane begins on a granule, so it may be a little longer
    than its share of the pool."""
    pages = {page for group in groups for page in kv_groups.pages(group)}
    if len(pages) != 1:  # view_format says what is wrong, later
        return (pool.slab_count + 1) * pool.slab_bytes
    (page,) = pages
    planes = _planes(groups)
    granules = _plane_granules(pool, groups)
    if granules == 0:
        least = planes * GRANULARITY
        slab = pool.slab_bytes if pool.slab_bytes % least == 0 else least
        raise RuntimeError(
            f"FineServe: with a plane per layer, a slab needs a granule for "
            f"each of {planes} layers and has "
            f"{pool.slab_bytes // pool.granule_bytes}: unset "
            f"VLLM_KV_CACHE_LAYOUT, or start fineserved with --slab "
            f"{slab >> 20}MiB --planes {planes}"
        )
    share = (pool.slab_count + 1) * granules * pool.granule_bytes
    step = GRANULARITY // math.gcd(GRANULARITY, page)
    blocks = -(-share // (page * step)) * step
    return planes * blocks * page
