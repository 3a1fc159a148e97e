"""Names the memory that holds a model's parameters alone, so that a replica may
drop its copy of them and read another one's (design note 0048).

While a model is loaded PyTorch allocates in a pool of its own (MemPool), as it
does for vLLM's sleep mode. The pool is closed when the model is there: no
thread allocates in it again, so what is free in its segments stays free. It is
filled with zeros, because equal replicas must have equal segments. A segment is
named if all that is allocated in it is parameters. A buffer may be written in a
step, and so may what a layer keeps beside its parameters (a workspace, a
measured scale): a segment with one of these is not named.

Of what vLLM calls by its executor only the methods below are known to write no
parameter. Ahead of every other one, and of every function of the user's, the
process gets its own copy and has the readers restore theirs; afterwards the
parameters are named again.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from fineserve_vllm import kv_abi, ranks, support
from fineserve_vllm.log import logger

_log = logger(__name__)

# Long enough for readers to copy 16 GiB over a slow link.
_THAW_MS = 60_000

_WARM = "compile_or_warm_up_model"  # the last of a start

# The name of a buffer that is computed once; the names of other layers' buffers
# end in it, too.
_CONSTANT = "cos_sin_cache"

_WRITE_NO_PARAMETERS = frozenset({
    "add_lora",
    "check_health",
    "compute_weight_checksums",
    "execute_dummy_batch",
    "execute_model",
    "get_encoder_timing_stats",
    "get_kv_cache_spec",
    "get_kv_connector_handshake_metadata",
    "get_supported_tasks",
    "list_loras",
    "pin_lora",
    "profile",
    "remove_lora",
    "reset_encoder_cache",
    "reset_mm_cache",
    "sample_tokens",
    "shutdown",
    "synchronize_device",
    "take_draft_token_ids",
})

Span = tuple[int, int]  # address, bytes
Segment = dict[str, Any]  # as torch.cuda.memory_snapshot() has it

_undo: Callable[[], None] | None = None


class Freezer(Protocol):
    """The part of kv_abi.Shim that this module uses."""

    def freeze(self, ranges: Sequence[Span]) -> None: ...

    def thaw(self, timeout_ms: int) -> None: ...


def install(shim: Freezer, pools: Pools | None = None) -> None:
    """Has every engine from now on name its parameters. A second call changes
    nothing.

    Raises:
        RuntimeError: this vLLM lacks a name that this relies on; nothing has
            been changed.
    """
    global _undo
    if _undo is not None:
        return
    loader = _class("vllm.model_executor.model_loader.base_loader", "BaseModelLoader")
    executor = _class("vllm.v1.executor.uniproc_executor", "UniProcExecutor")
    weights = Weights(shim, pools)
    load_model = _method(loader, "load_model")
    collective_rpc = _method(executor, "collective_rpc")

    @functools.wraps(load_model)
    def load(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        with weights.loading(why_not(vllm_config)):
            return load_model(self, vllm_config, *args, **kwargs)

    @functools.wraps(collective_rpc)
    def call(self: Any, method: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(method, str) and method in _WRITE_NO_PARAMETERS:
            return collective_rpc(self, method, *args, **kwargs)
        with weights.written(self.driver_worker.worker, method == _WARM):
            return collective_rpc(self, method, *args, **kwargs)

    loader.load_model = load
    executor.collective_rpc = call

    def undo() -> None:
        loader.load_model = load_model
        executor.collective_rpc = collective_rpc

    _undo = undo


def uninstall() -> None:
    """Restores vLLM for everything built from now on."""
    global _undo
    if _undo is not None:
        _undo()
        _undo = None


def _class(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (AttributeError, ImportError) as error:
        raise RuntimeError(
            f"FineServe: this vLLM version is not supported: {error}"
        ) from error


def _method(owner: Any, name: str) -> Callable[..., Any]:
    method: Callable[..., Any] | None = vars(owner).get(name)
    if method is None:
        raise RuntimeError(
            f"FineServe: this vLLM version is not supported: {owner.__name__} "
            f"defines no {name}"
        )
    return method


def why_not(vllm_config: Any) -> str | None:
    """Returns why an engine cannot name its parameters; None if it can.

    Raises:
        RuntimeError: the engine must not leave the GPU at all.
    """
    support.refuse_eviction(vllm_config)
    model, offload = vllm_config.model_config, vllm_config.offload_config
    if ranks.has_ranks(vllm_config):
        return "its workers are processes of their own"
    if model.enable_sleep_mode or model.enable_cumem_allocator:
        return "vLLM's own allocator holds them (--enable-sleep-mode)"
    if offload.uva.cpu_offload_gb > 0 or offload.prefetch.offload_group_size > 0:
        return "some are copied from the host while it serves"
    if vllm_config.parallel_config.enable_eplb:
        return "experts move while it serves (--enable-eplb)"
    return None


class Pools:
    """The pools of PyTorch's allocator that models were loaded into."""

    def __init__(self) -> None:
        self._ids: set[tuple[int, int]] = set()

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Places this thread's allocations within the context in separate
        segments."""
        import torch

        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            yield
        # When the pool is released, its empty segments are released, too.
        self._ids.add(tuple(pool.id))

    def segments(self) -> list[Segment]:
        """Returns the segments of the pools, and waits until none of them is
        being written."""
        if not self._ids:
            return []
        import torch

        torch.cuda.synchronize()
        return [
            segment
            for segment in torch.cuda.memory_snapshot()
            if tuple(segment["segment_pool_id"]) in self._ids
        ]

    def clear(self, free: Iterable[Span]) -> None:
        import torch

        for span in free:
            torch.as_tensor(_Bytes(span), device="cuda").zero_()
        torch.cuda.synchronize()


class Weights:
    """The parameters of this process's engine."""

    def __init__(self, shim: Freezer, pools: Pools | None = None) -> None:
        self._shim = shim
        self._pools = pools or Pools()
        self._cleared: set[Span] = set()
        self._serves = False
        self._named = False

    def loading(
        self, why: str | None
    ) -> contextlib.AbstractContextManager[None]:
        """Returns the context in which a model must be loaded. Its parameters
        are named, unless `why` says why they cannot be."""
        if why is None:
            return self._pools.open()
        _log.info("FineServe: no replica can read its parameters: %s", why)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def written(self, worker: Any, starts: bool) -> Iterator[None]:
        """Parameters may be written within.

        Args:
            starts: the engine serves from then on.

        Raises:
            KvError: another process reads them still, or this one has no room
                for its own copy: nothing has been written.
        """
        if self._named:
            self._shim.thaw(_THAW_MS)
            self._named = False
        try:
            yield
        finally:
            self._serves |= starts
            # Otherwise the next call belongs to the same update.
            if self._serves and not getattr(
                worker, "_weight_update_active", False
            ):
                self._name(worker)

    def _name(self, worker: Any) -> None:
        segments = self._pools.segments()
        if not segments:
            return
        found = named(segments, spans(constants(worker)))
        free = set(holes(found))
        # Memory that was already free is still zero, so an engine that has left
        # the GPU need not come back for it.
        if new := sorted(free - self._cleared):
            self._pools.clear(new)
        self._cleared = free
        try:
            self._shim.freeze([(s["address"], s["total_size"]) for s in found])
        except kv_abi.KvError as error:
            _log.warning("%s: no replica can read its parameters", error)
            return
        self._named = True
        _log.info(
            "FineServe: a replica may read %d of %d segments of parameters, "
            "%d of %d MiB",
            len(found),
            len(segments),
            sum(s["total_size"] for s in found) >> 20,
            sum(s["total_size"] for s in segments) >> 20,
        )


def constants(worker: Any) -> Iterator[tuple[str, Any]]:
    """Yields the tensors that no step writes, by their names."""
    models = {"": worker.get_model()}
    draft = getattr(worker, "get_draft_model", lambda: None)()
    if draft is not None:
        models["draft."] = draft
    for prefix, model in models.items():
        tensors = dict(model.named_parameters())
        tensors |= {
            name: buffer
            for name, buffer in model.named_buffers()
            if name.endswith(_CONSTANT)
        }
        for name in sorted(tensors):
            yield prefix + name, tensors[name]


def spans(tensors: Iterable[tuple[str, Any]]) -> list[Span]:
    """Returns the memory range of each tensor; leaves out tensors with gaps."""
    return [
        (tensor.data_ptr(), tensor.numel() * tensor.element_size())
        for _, tensor in tensors
        if tensor.is_cuda and _is_dense(tensor.shape, tensor.stride())
    ]


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Returns True for a permutation of a contiguous tensor."""
    step = 1
    for stride, size in sorted(zip(strides, shape)):
        if size == 1:
            continue
        if stride != step:
            return False
        step *= size
    return True


def named(
    segments: Iterable[Segment], constant: Sequence[Span]
) -> list[Segment]:
    """Returns the segments in which everything allocated is constant, in the
    order of the tensors, because addresses differ among replicas."""
    order = {address: i for i, (address, _) in reversed([*enumerate(constant)])}
    pieces = _merged(constant)
    found = []
    for segment in segments:
        live = [b for b in segment["blocks"] if b["state"] != "inactive"]
        # Skips expandable segments, because they are PyTorch's own mappings.
        if not live or segment.get("is_expandable", False):
            continue
        if all(_contains(pieces, b["address"], b["requested_size"]) for b in live):
            first = min(order.get(b["address"], len(order)) for b in live)
            found.append((first, segment["address"], segment))
    return [segment for _, _, segment in sorted(found, key=lambda one: one[:2])]


def holes(segments: Iterable[Segment]) -> Iterator[Span]:
    """Yields the ranges that are not allocated, and the unused ends of
    blocks."""
    for segment in segments:
        for block in segment["blocks"]:
            free = block["state"] == "inactive"
            used = 0 if free else block["requested_size"]
            if used < block["size"]:
                yield block["address"] + used, block["size"] - used


def _merged(constant: Sequence[Span]) -> list[tuple[int, int]]:
    """Returns (first, end) of each contiguous range."""
    merged: list[tuple[int, int]] = []
    for address, size in sorted(constant):
        if merged and address <= merged[-1][1]:
            first, end = merged[-1]
            merged[-1] = (first, max(end, address + size))
        else:
            merged.append((address, address + size))
    return merged


def _contains(
    pieces: Sequence[tuple[int, int]], address: int, size: int
) -> bool:
    i = bisect.bisect_right(pieces, (address, 1 << 64)) - 1
    return i >= 0 and address + size <= pieces[i][1]


class _Bytes:
    """Device memory, for torch.as_tensor()."""

    def __init__(self, span: Span) -> None:
        address, size = span
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
