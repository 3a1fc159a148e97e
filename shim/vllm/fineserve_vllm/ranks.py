"""An engine that spans GPUs: its workers are processes of their own, each with
a view of its GPU's pool, and one scheduler hands out block ids that are the same
on all of them (shim/fineserve_kv.h, fs_kv_join_ranks).

The functions at the end run in the workers, called through vLLM's executor.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from fineserve_vllm import kv_abi
from fineserve_vllm.log import logger

_log = logger(__name__)

# vLLM's name of the executor that makes one process per worker.
_PROCESSES = "mp"


def has_ranks(vllm_config: Any) -> bool:
    """Returns True if the workers run in other processes than the scheduler."""
    backend = vllm_config.parallel_config.distributed_executor_backend
    return bool(backend == _PROCESSES)


class Ranks:
    """The workers of one engine, seen from its scheduler's process."""

    def __init__(self) -> None:
        self._executor: Any = None

    def install(self, core: Any) -> Callable[[], None]:
        """Finds the workers of every engine built from now on; `core` is the
        module vllm.v1.engine.core. The result undoes it.

        Raises:
            RuntimeError: this vLLM lacks a name that this relies on.
        """
        original = vars(core.EngineCore).get("_initialize_kv_caches")
        if original is None:
            raise RuntimeError(
                "FineServe: this vLLM version is not supported: EngineCore "
                "defines no _initialize_kv_caches"
            )

        @functools.wraps(original)
        def initialize(engine: Any, vllm_config: Any) -> Any:
            if not has_ranks(vllm_config):
                return original(engine, vllm_config)
            self._executor = engine.model_executor
            with _blocks_not_overridden(vllm_config.cache_config):
                return original(engine, vllm_config)

        core.EngineCore._initialize_kv_caches = initialize
        return lambda: setattr(
            core.EngineCore, "_initialize_kv_caches", original
        )

    @property
    def found(self) -> bool:
        return self._executor is not None

    def join(self, shim: kv_abi.Shim) -> kv_abi.Geometry:
        """Activates the views of all workers and takes over their blocks. From
        then on the scheduler's pool uses leased blocks only."""
        ranks: list[bytes] = self._executor.collective_rpc(activate)
        geometry = shim.join_ranks(ranks)
        shim.follow(ranks[0])
        self._executor.collective_rpc(follow, args=(ranks[0],))
        return geometry

    def finish(self) -> None:
        """Waits until all devices have finished the work that they were
        given."""
        self._executor.collective_rpc(synchronize)

    @property
    def executor(self) -> Any:
        """Returns vLLM's executor, which calls the workers."""
        return self._executor

    def suspend(self) -> None:
        """Suspends the views of all workers, once their blocks are let go.

        Raises:
            RuntimeError: one could not; others may be suspended.
        """
        _raise_first(self._executor.collective_rpc(suspend))

    def resume(self) -> None:
        """Takes up the views of all workers that are suspended, or of none.

        Raises:
            RuntimeError: one could not.
        """
        refused = self._executor.collective_rpc(resume)
        if any(refused):
            self._executor.collective_rpc(suspend)  # those that are back
        _raise_first(refused)

    def leave(self) -> None:
        """Suspends the views of all workers, so that their memory can leave. If
        a worker cannot, the daemon calls all of them back."""
        for why in self._executor.collective_rpc(leave):
            if why is not None:
                _log.warning("%s", why)

    def come_back(self, timeout_s: float) -> bool:
        """Asks for the memory of all workers; returns True once it is on the
        GPUs, with their views active."""
        return all(self._executor.collective_rpc(come_back, args=(timeout_s,)))


@contextlib.contextmanager
def _blocks_not_overridden(cache_config: Any) -> Iterator[None]:
    """Hides --num-gpu-blocks-override, which vLLM would apply here. With a view
    it is a cap, which each worker has sent to its daemon (start.py)."""
    asked = cache_config.num_gpu_blocks_override
    cache_config.num_gpu_blocks_override = None
    try:
        yield
    finally:
        cache_config.num_gpu_blocks_override = asked


def _raise_first(failures: list[str | None]) -> None:
    for failure in failures:
        if failure is not None:
            raise RuntimeError(failure)


def activate(worker: Any) -> bytes:
    """Puts the pool in place of the memory that this worker started on, and
    returns what identifies the worker."""
    shim = kv_abi.Shim()
    shim.progress(kv_abi.Stage.POOL_CONSTRUCTED)
    shim.activate()
    return shim.rank()


def suspend(worker: Any) -> str | None:
    """Returns why it cannot."""
    return _failure(kv_abi.Shim().suspend)


def resume(worker: Any) -> str | None:
    """Returns why the worker cannot resume; None if it could, or if it is not
    suspended."""
    try:
        kv_abi.Shim().resume()
    except kv_abi.KvError as error:
        return None if error.code == kv_abi.Error.STATE else str(error)
    return None


def follow(worker: Any, first: bytes) -> None:
    kv_abi.Shim().follow(first)


def leave(worker: Any) -> str | None:
    """Returns why it cannot."""
    return _failure(kv_abi.Shim().leave)


def _failure(call: Callable[[], None]) -> str | None:
    try:
        call()
    except kv_abi.KvError as error:
        return str(error)
    return None


def come_back(worker: Any, timeout_s: float) -> bool:
    return kv_abi.Shim().come_back(int(1000 * timeout_s))


def synchronize(worker: Any) -> None:
    import torch

    torch.cuda.synchronize()
