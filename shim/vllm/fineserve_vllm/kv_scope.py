"""Marks vLLM's allocation of the KV cache for the shim.

A worker makes a context (tag "kv_cache") in which both model runners allocate
the KV cache and nothing else; the small cache that the first runner makes to
profile CUDA graphs is allocated without it. fs_kv_begin/end are called around
that context (shim/fineserve_kv.h).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

_TAG = "kv_cache"
_CONTEXT = "_maybe_get_memory_pool_context"
_INITIALIZE = "initialize_from_config"  # of WorkerWrapperBase

# Takes a worker's VllmConfig and KVCacheConfig.
BeforeAllocation = Callable[[Any, Any], None]


class Scope(Protocol):
    """The part of kv_abi.Shim that this module uses."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


# PyTorch's memory pools that KV segments came from, kept until the process
# ends.
_pools: list[Any] = []

_undo: Callable[[], None] | None = None


def install(shim: Scope, before: BeforeAllocation | None = None) -> None:
    """Puts the KV allocation of every worker into a scope of the shim. With a
    view, `before` is called ahead of each. A second call changes nothing.

    Raises:
        RuntimeError: this vLLM lacks a name that the scope relies on.
    """
    global _undo
    if _undo is not None:
        return
    wrapper = importlib.import_module(
        "vllm.v1.worker.worker_base"
    ).WorkerWrapperBase
    original = vars(wrapper).get(_INITIALIZE)
    if original is None:
        raise RuntimeError(
            f"FineServe: this vLLM version is not supported: "
            f"{wrapper.__name__} defines no {_INITIALIZE}"
        )

    @functools.wraps(original)
    def initialize(self: Any, kv_cache_configs: Any) -> Any:
        if before is not None:
            before(self.vllm_config, kv_cache_configs[self.global_rank])
        _mark(self.worker, shim, ours=before is not None)
        return original(self, kv_cache_configs)

    setattr(wrapper, _INITIALIZE, initialize)
    _undo = functools.partial(setattr, wrapper, _INITIALIZE, original)


def uninstall() -> None:
    """Restores vLLM for every worker built from now on."""
    global _undo
    if _undo is not None:
        _undo()
        _undo = None


def _mark(worker: Any, shim: Scope, ours: bool) -> None:
    """Puts the KV allocation of one worker into a scope. Leaves workers without
    such a context (the CPU's) alone. `ours`: the KV cache is a view, which
    vLLM's cumem allocator must not map."""
    original: Callable[..., Any] | None = getattr(worker, _CONTEXT, None)
    if original is None:
        return

    def context(tag: str) -> Any:
        if tag != _TAG:
            return original(tag)
        inner = contextlib.nullcontext() if ours else original(tag)
        return scope(inner, shim)

    setattr(worker, _CONTEXT, context)


@contextlib.contextmanager
def scope(inner: Any, shim: Scope) -> Iterator[None]:
    """Marks PyTorch's allocations within `inner` as KV, and gives them separate
    segments."""
    shim.begin()
    try:
        with inner, _fresh_segments(inner):
            yield
    finally:
        shim.end()


def _fresh_segments(inner: Any) -> Any:
    """Makes PyTorch's allocator use a new pool, because it would otherwise
    serve from cached segments that it allocated before the scope. A context
    that vLLM made (for its cumem allocator) already has a new pool."""
    if type(inner) is not contextlib.nullcontext:
        return contextlib.nullcontext()
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return contextlib.nullcontext()
    _pools.append(torch.cuda.MemPool())
    return torch.cuda.use_mem_pool(_pools[-1])
