"""Installs the breakage that a test must notice: $HOST_DEVICE_BREAK."""

from __future__ import annotations

import os
from typing import Any


def install() -> None:
    what = os.environ.get("HOST_DEVICE_BREAK")
    if what:
        {
            "fence": _leave_out_the_fence,
            "undrained": _return_undrained_slabs,
            "all-reduce": _leave_out_sums,
            "copied": _forget_copies,
        }[what]()


def _leave_out_the_fence() -> None:
    """Makes a slab go when its last page is free, without a fence."""
    from fineserve_sglang.leased_pages import LeasedPages

    original = LeasedPages.return_drained

    def return_drained(self: LeasedPages) -> list[int]:
        for leaving in self._leaving.values():
            leaving.barrier = 0
        return original(self)

    LeasedPages.return_drained = return_drained


def _return_undrained_slabs() -> None:
    """Makes slabs go as soon as they are asked back, with pages that requests
    still use."""
    from fineserve_sglang.leased_pages import LeasedPages

    original = LeasedPages.return_drained

    def return_drained(self: LeasedPages) -> list[int]:
        for leaving in self._leaving.values():
            leaving.pages = leaving.barrier = 0
        return original(self)

    LeasedPages.return_drained = return_drained


def _leave_out_sums() -> None:
    """Makes each rank go on with only its own part of a sum over ranks."""
    from sglang.srt.distributed.parallel_state import GroupCoordinator

    GroupCoordinator.all_reduce = lambda self, input_: input_.clone()


def _forget_copies() -> None:
    """Makes entries in leaving slabs be evicted although they are being copied
    to the host."""
    from fineserve_sglang.radix_cache import LeasedRadixCache

    original = LeasedRadixCache.evict_leaving

    def evict_leaving(self: Any, *args: Any) -> None:
        for ack, copy in self.ongoing_write_through.items():
            if copy.lock_params is not None:
                self.dec_lock_ref(copy.node_id, copy.lock_params)
                self.ongoing_write_through[ack] = copy._replace(
                    lock_params=None
                )
        original(self, *args)

    LeasedRadixCache.evict_leaving = evict_leaving
