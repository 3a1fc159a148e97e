"""Hands out pages of an engine's KV cache: only those of its slabs.

SGLang's free list is a tensor of page numbers on the device, which the
scheduler never reads back, so that it need not wait for the device. It stays
so: the list holds pages of leased slabs only, and is read back only while a
slab is on its way back to the pool.

Life of a slab here: unleased -> linked -> leaving (asked back; pages left that
a request uses or the radix cache keeps) -> drained (waits for the fence) ->
unleased.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from fineserve_vllm.fence import StepFence
from fineserve_vllm.grants import Changes, Grants

# From the number of pages in the view to the engine's leases; None for a pool
# that is not a view.
GrantsFactory = Callable[[int], "Grants | None"]


@dataclasses.dataclass
class _Leaving:
    pages: int  # not yet free
    barrier: int = 0  # of the fence, when the last page seen was freed


class LeasedPages:
    """The slabs of one allocator. Confined to the scheduler's thread.

    Invariants: a slab is returned only when all its pages have been taken out
    of the free list and the fence has passed the step by which the last one was
    free. Page 0, SGLang's padding, is in no slab.
    """

    def __init__(self, grants: Grants, pages: int, device: str) -> None:
        self.grants = grants
        self.fence = StepFence()
        self.slabs = {slab.index: slab for slab in grants.slabs()}
        self.smallest_slab = max(
            1, min((len(s.ids) for s in self.slabs.values()), default=1)
        )
        self.linked: set[int] = set()
        self._leaving: dict[int, _Leaving] = {}
        # Number of free pages of leaving slabs: new requests must not take
        # them.
        self.withheld = 0
        # Number of pages that other micro-batches of a pipeline need, whichever
        # requests are let in.
        self.reserved = 0
        # True if the engine has left the GPU; all pages are then free.
        self.away = False
        self._device = device
        # Maps each page to its slab's view index; 0 for a page in no slab.
        by_page = torch.zeros(pages, dtype=torch.int64)
        for slab in self.slabs.values():
            by_page[slab.ids.start : slab.ids.stop] = slab.index
        self.slab_of_page = by_page.to(device)
        self.count = 1 + max(self.slabs, default=0)
        self.is_leaving = torch.zeros(
            self.count, dtype=torch.bool, device=device
        )

    @property
    def leaving(self) -> frozenset[int]:
        return frozenset(self._leaving)

    @property
    def pages_leaving(self) -> int:
        """Returns the number of pages that are not free yet in slabs that were
        asked back."""
        return sum(its.pages for its in self._leaving.values())

    @property
    def capacity(self) -> int:
        """Returns the number of pages that are free, used or cached."""
        linked = sum(len(self.slabs[index].ids) for index in self.linked)
        return linked + self.pages_leaving

    def apply(self, changes: Changes) -> list[torch.Tensor]:
        """Adds the new leases and marks the slabs that were asked back. Returns
        the pages that may be handed out from now on."""
        for index in changes.leased:
            if index in self.linked or index in self._leaving:
                raise ValueError(f"slab {index} was leased twice")
            self.linked.add(index)
        for index in changes.asked_back:
            if index in self.linked:
                self.linked.remove(index)
                self._leaving[index] = _Leaving(len(self.slabs[index].ids))
        if changes.asked_back:
            self._mark_leaving()
        return [self._pages_of(index) for index in changes.leased]

    def all_pages(self) -> torch.Tensor:
        """Returns the pages of all slabs that are held; all these pages must be
        free."""
        for index, its in self._leaving.items():
            its.pages = len(self.slabs[index].ids)
        held = sorted(self.linked | self._leaving.keys())
        none = torch.empty(0, dtype=torch.int64, device=self._device)
        return torch.cat([none, *map(self._pages_of, held)])

    def keep(self, free_pages: torch.Tensor, at_least: int) -> torch.Tensor:
        """Returns the free pages without those of leaving slabs, and counts the
        removed pages as gone. If fewer than `at_least` pages would remain,
        returns all of them and sets `withheld` to the number that should have
        gone. Waits for the device if a slab is leaving."""
        self.withheld = 0
        if not self.pages_leaving:
            return free_pages
        slabs = self.slab_of_page[free_pages]
        gone = self.is_leaving[slabs]
        taken = torch.bincount(slabs[gone].cpu(), minlength=self.count)
        count = int(taken.sum())
        if len(free_pages) - count < at_least:
            self.withheld = count
            return free_pages
        for index, its in self._leaving.items():
            if taken[index]:
                its.pages -= int(taken[index])
                its.barrier = self.fence.barrier()
        return free_pages[~gone] if count else free_pages

    def return_drained(self) -> list[int]:
        """Gives back the slabs that have drained and that the fence has passed,
        and returns them."""
        ready = [
            index
            for index, its in self._leaving.items()
            if not its.pages and self.fence.passed(its.barrier)
        ]
        for index in ready:
            del self._leaving[index]
            self.grants.return_slab(index)
        if ready:
            self._mark_leaving()
        return ready

    def wanted_slabs(self, used: int, room: int) -> int:
        """Returns the slabs wanted for `used` pages in use and `room` more.
        Leaving slabs are added, because their pages cannot be handed out
        again."""
        used_leaving = self.pages_leaving - self.withheld
        staying = max(0, used - used_leaving) + room
        wanted = len(self._leaving) + -(-staying // self.smallest_slab)
        return min(wanted, len(self.slabs))

    def _pages_of(self, index: int) -> torch.Tensor:
        ids = self.slabs[index].ids
        return torch.arange(
            ids.start, ids.stop, dtype=torch.int64, device=self._device
        )

    def _mark_leaving(self) -> None:
        marks = torch.zeros(self.count, dtype=torch.bool)
        marks[list(self._leaving)] = True
        self.is_leaving = marks.to(self._device)
