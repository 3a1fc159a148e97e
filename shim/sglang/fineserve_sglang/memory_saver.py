"""SGLang's release_memory_occupation and resume_memory_occupation on a view.

SGLang leaves both to torch_memory_saver (--enable-memory-saver), which would
allocate weights and KV cache itself, by a library that it preloads beside the
shim. Here it does nothing: the slabs return to the pool, and the rest of the
memory leaves the GPU as if evicted (design note 0039), with or without the
flag.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from fineserve_vllm import kv_abi
from fineserve_vllm.log import logger

_log = logger(__name__)

_ADAPTER = "sglang.srt.utils.torch_memory_saver_adapter"
_UPDATER = (
    "sglang.srt.managers.scheduler_components.weight_updater."
    "SchedulerWeightUpdaterManager"
)
_MOVE_MS = 300_000  # hundreds of gigabytes

Hook = tuple[str, Any]


def in_every_process() -> list[Hook]:
    """Returns the hooks for each of SGLang's processes: those that start
    schedulers preload the library."""
    adapter = importlib.import_module(_ADAPTER)
    nothing = adapter._TorchMemorySaverAdapterNoop
    return [(f"{_ADAPTER}._TorchMemorySaverAdapterReal", nothing)]


def hooks(shim: kv_abi.Shim, leases_of: Callable[[Any], Any]) -> list[Hook]:
    """Returns the hooks for a scheduler. `leases_of`: from a scheduler to its
    SchedulerLeases."""
    from sglang.srt.constants import (
        GPU_MEMORY_ALL_TYPES,
        GPU_MEMORY_TYPE_KV_CACHE,
        GPU_MEMORY_TYPE_WEIGHTS,
    )
    from sglang.srt.managers.io_struct import (
        ReleaseMemoryOccupationReqOutput,
        ResumeMemoryOccupationReqOutput,
    )

    def leave_gpu() -> None:
        shim.leave_gpu(_MOVE_MS)

    moved = {GPU_MEMORY_TYPE_KV_CACHE, GPU_MEMORY_TYPE_WEIGHTS}

    def release(original: Any, self: Any, request: Any) -> Any:
        tags = set(request.tags or GPU_MEMORY_ALL_TYPES) & moved
        leave = leave_gpu if GPU_MEMORY_TYPE_WEIGHTS in tags else None
        # Weights cannot leave without the KV cache.
        if tags and leases_of(self.scheduler).release(leave):
            self.offload_tags |= tags
        return ReleaseMemoryOccupationReqOutput()

    def resume(original: Any, self: Any, request: Any) -> Any:
        tags = set(request.tags or GPU_MEMORY_ALL_TYPES) & self.offload_tags
        self.offload_tags -= tags
        if GPU_MEMORY_TYPE_WEIGHTS in tags:
            try:
                shim.return_to_gpu(_MOVE_MS)
            except kv_abi.KvError as error:
                _log.warning("%s: the weights come when needed", error)
        if GPU_MEMORY_TYPE_KV_CACHE not in self.offload_tags:
            leases_of(self.scheduler).resume()
        return ResumeMemoryOccupationReqOutput()

    return [
        (f"{_UPDATER}.release_memory_occupation", release),
        (f"{_UPDATER}.resume_memory_occupation", resume),
    ]

