"""What the tests want to know of a scheduler."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
from typing import Any


def install() -> None:
    from sglang.srt.managers.scheduler import Scheduler

    Scheduler.write_stats = _write_stats


def _write_stats(scheduler: Any, path: str) -> None:
    """Called by Engine.collective_rpc, which returns nothing."""
    pathlib.Path(path).write_text(json.dumps(_stats(scheduler)))


def _stats(scheduler: Any) -> dict[str, Any]:
    import torch

    driver = ctypes.CDLL("libcuda.so.1")
    driver.emucuda_skipped_launches.restype = ctypes.c_uint64
    host_device = torch.ops.host_device
    return {
        "pid": os.getpid(),
        "overlap": scheduler.enable_overlap,
        "allocator": type(scheduler.token_to_kv_pool_allocator).__name__,
        "skipped_kernels": driver.emucuda_skipped_launches(),
        "enqueued": host_device.enqueued(),
        "waited": dict(host_device.waited()),
    }
