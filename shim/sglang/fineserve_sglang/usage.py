"""Publishes how many pages of each slab requests use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fineserve_sglang.allocators import leased_part
from fineserve_sglang.demand import running

# The counts are hints. The daemon reads them when it asks for slabs back, and
# fsctl whenever it runs.
_PERIOD_S = 0.05
# The most of the scheduler's time that counting and sorting may take.
_SHARE = 0.01


class Usage:
    """Counts on the device and reads the counts a period later, so that the
    scheduler waits for nothing. A cached page that no request uses is not in
    use. A page that several requests share counts for each of them, up to its
    slab's number of pages.

    Confined to the scheduler's thread.
    """

    def __init__(self, scheduler: Any, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._allocator = leased_part(scheduler.token_to_kv_pool_allocator)
        self._leased = self._allocator.leased
        self._clock = clock
        self._due = 0.0
        self._counts: torch.Tensor | None = None  # on their way to the host
        self._arrived = torch.cuda.Event()
        self._published: dict[int, int] = {}

    @property
    def is_due(self) -> bool:
        return self._clock() >= self._due and bool(self._requests())

    def step_begins(self, counts: bool) -> None:
        """Publishes the counts of the last period and begins new ones.
        `counts`: `is_due` of the first rank."""
        requests = self._requests()
        if not requests:
            self._counts = None
            if self._published:
                self._publish({})
            return
        if not counts:
            return
        began = self._clock()
        if self._counts is not None and self._arrived.query():
            self._publish(dict(enumerate(self._counts.tolist())))
        self._allocator.fill_densest_first()
        self._count(requests)
        now = self._clock()
        self._due = now + max(_PERIOD_S, (now - began) / _SHARE)

    def returned(self, index: int) -> None:
        if self._published.pop(index, 0):
            self._leased.grants.publish(index, 0)

    def _requests(self) -> list[Any]:
        chunked = self._scheduler.chunked_req
        return [
            request
            for request in [*running(self._scheduler), chunked]
            if request is not None and request.kv.holds_kv
        ]

    def _count(self, requests: list[Any]) -> None:
        page = self._allocator.page_size
        pool = self._scheduler.req_to_token_pool
        lengths = [request.kv.kv_allocated_len for request in requests]
        device = self._allocator.device
        rows, ends = (
            torch.tensor(values, pin_memory=True).to(device, non_blocking=True)
            for values in ([r.kv.req_pool_idx for r in requests], lengths)
        )
        slots = pool.req_to_token[rows, : max(lengths) : page]
        first = torch.arange(0, max(lengths), page, device=device)
        used = torch.where(first < ends[:, None], slots, 0)
        slabs = self._leased.slab_of_page[used.flatten() // page]
        counts = torch.zeros(
            self._leased.count, dtype=torch.int64, device=device
        ).index_add_(0, slabs, torch.ones_like(slabs))
        self._counts = torch.empty_like(
            counts, device="cpu", pin_memory=True
        ).copy_(counts, non_blocking=True)
        self._arrived.record()

    def _publish(self, counts: dict[int, int]) -> None:
        for index, slab in self._leased.slabs.items():
            used = min(counts.get(index, 0), len(slab.ids))
            if used == self._published.get(index, 0):
                continue
            self._leased.grants.publish(index, used)
            if used:
                self._published[index] = used
            else:
                del self._published[index]
