"""What a test breaks to see that it would notice: $HOST_DEVICE_BREAK."""

from __future__ import annotations

import os
from typing import Any


def install() -> None:
    what = os.environ.get("HOST_DEVICE_BREAK")
    if what:
        {
            "stale block": _read_a_stale_block,
            "fence": _leave_out_the_fence,
            "connector": _forget_the_connector,
            "drafter": _forget_the_drafter,
            "undrained": _return_undrained_slabs,
        }[what]()


def _read_a_stale_block() -> None:
    """The first request's first block is taken to be the last one's."""
    from host_device_vllm.attention import HostAttentionImpl

    original = HostAttentionImpl.forward

    def forward(
        self: Any,
        layer: Any,
        query: Any,
        key: Any,
        value: Any,
        kv_cache: Any,
        attn_metadata: Any,
        *rest: Any,
        **named: Any,
    ) -> Any:
        if attn_metadata is not None:
            table = attn_metadata.block_table.clone()
            table[0, 0] = table[-1, 0]
            attn_metadata.block_table = table
        return original(
            self, layer, query, key, value, kv_cache, attn_metadata, *rest,
            **named,
        )

    HostAttentionImpl.forward = forward


def _leave_out_the_fence() -> None:
    """A slab goes when its last block is free."""
    from fineserve_vllm.pool import LeasedBlockPool

    original = LeasedBlockPool.return_drained

    def return_drained(self: LeasedBlockPool) -> list[int]:
        for leaving in self._leaving.values():
            leaving.barrier = 0
        return original(self)

    LeasedBlockPool.return_drained = return_drained


def _forget_the_connector() -> None:
    """A slab goes though the connector still copies blocks of it."""
    from fineserve_vllm import transfers

    transfers.held_blocks = lambda scheduler: None


def _forget_the_drafter() -> None:
    """A slab goes when its last step has been processed, drafter or not."""
    from fineserve_vllm.fence import StepFence

    StepFence.passed = lambda self, barrier: barrier <= self.processed


def _return_undrained_slabs() -> None:
    """Slabs go when they are asked back, with blocks that requests use."""
    from fineserve_vllm.pool import LeasedBlockPool

    gone: set[int] = set()

    def return_drained(self: LeasedBlockPool) -> list[int]:
        returned = [i for i in self._leaving if i not in gone]
        for index in returned:
            self.grants.return_slab(index)
        gone.update(returned)
        for index in [i for i, it in self._leaving.items() if not it.used]:
            del self._leaving[index]
            gone.discard(index)
        return returned

    LeasedBlockPool.return_drained = return_drained
