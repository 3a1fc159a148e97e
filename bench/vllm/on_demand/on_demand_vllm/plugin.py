"""Puts pages that are mapped on demand under vLLM's KV cache.

register() is the entry point (group vllm.general_plugins). The KV cache comes
from a pool of PyTorch's whose allocator reserves addresses. While vLLM starts
all of them are one page of memory; that is unmapped when the scheduler is
built. The KV cache must be in one piece (VLLM_KV_CACHE_LAYOUT=BLNHC).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import Any

from fineserve_vllm import plugin
from fineserve_vllm.view_format import view_format
from on_demand_vllm import driver
from on_demand_vllm.pages import Pages

_ALLOCATE = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
)
_FREE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
)


class Kv:
    """The KV cache of this process's engine."""

    def __init__(self) -> None:
        self.address = 0  # once it is allocated
        self.size = 0
        self.page_bytes = 0  # of a block
        self._allocate = _ALLOCATE(self._reserve)
        self._free = _FREE(lambda *_: None)  # it lives as long as the process
        self._pool: Any = None

    def memory_pool(self) -> Any:
        """Returns a context in which PyTorch allocates the KV cache."""
        import torch

        allocator = torch._C._cuda_customAllocator(
            *(
                ctypes.cast(function, ctypes.c_void_p).value
                for function in (self._allocate, self._free)
            )
        )
        self._pool = torch.cuda.MemPool(allocator)
        return torch.cuda.use_mem_pool(self._pool)

    def _reserve(self, size: int, _device: int, _stream: int) -> int:
        whole = -(-size // driver.PAGE) * driver.PAGE
        address = driver.reserve(whole)
        # PyTorch also allocates something small in this pool, besides the KV
        # cache.
        is_kv = size >= self.size
        scratch = driver.create() if is_kv else None
        for page in range(0, whole, driver.PAGE):
            driver.map_page(
                address + page, scratch or driver.create()
            )
        if is_kv:
            assert self.address == 0, "the KV cache is not in one piece"
            self.address, self.size = address, whole
        return address

    def grants_for(self, _num_blocks: int) -> Pages:
        import torch

        torch.cuda.synchronize()
        for page in range(driver.PAGE, self.size, driver.PAGE):
            driver.unmap_page(self.address + page)
        return Pages(self.address, self.size, self.page_bytes)


def register() -> None:
    kv = _kv()
    plugin.install(kv.grants_for)
    _allocate_from(kv)


@functools.cache
def _kv() -> Kv:
    return Kv()


@functools.cache
def _allocate_from(kv: Kv) -> None:
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    original = WorkerWrapperBase.initialize_from_config

    def initialize(self: Any, kv_cache_configs: Any) -> Any:
        found = view_format(
            kv_cache_configs[self.global_rank],
            self.vllm_config,
        )
        assert found.planes == 1, "set VLLM_KV_CACHE_LAYOUT=BLNHC"
        kv.page_bytes, kv.size = found.page_bytes, found.allocation_bytes
        # With other tags, vLLM allocates other things, which stay in PyTorch's
        # usual memory.
        self.worker._maybe_get_memory_pool_context = lambda tag: (
            kv.memory_pool() if tag == "kv_cache" else contextlib.nullcontext()
        )
        return original(self, kv_cache_configs)

    WorkerWrapperBase.initialize_from_config = initialize
