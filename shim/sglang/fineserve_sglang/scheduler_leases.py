"""One scheduler's leases, driven by its own event loop (plugin.py)."""

from __future__ import annotations

import dataclasses
from typing import Any

from fineserve_sglang.demand import Demand
from fineserve_sglang.usage import Usage


@dataclasses.dataclass
class Counters:
    """Totals since the engine started, in slabs."""

    asked_back: int = 0
    returned: int = 0


class SchedulerLeases:
    """Confined to the scheduler's thread.

    An idle scheduler of SGLang goes on looking for requests, and so comes by
    here: at least once a second with --sleep-on-idle, else all the time.
    """

    def __init__(self, scheduler: Any) -> None:
        self.counters = Counters()
        self._scheduler = scheduler
        self._allocator = scheduler.token_to_kv_pool_allocator
        self._leased = self._allocator.leased
        self._demand = Demand(scheduler)
        self._usage = Usage(scheduler)
        self._wanted = -1
        self._capacity = -1

    def step_begins(self) -> None:
        """Requests have arrived; no batch has been chosen yet."""
        changes = self._leased.grants.poll()
        if changes.leased or changes.asked_back:
            self._allocator.apply(changes)
            self.counters.asked_back += len(changes.asked_back)
        if self._leased.leaving:
            self._scheduler.tree_cache.evict_leaving(
                self._leased, bool(changes.asked_back)
            )
            cached = self._scheduler.tree_cache.evictable_size()
            needed = self._demand.tokens_begun() - cached
            for index in self._allocator.give_back(needed):
                self.counters.returned += 1
                self._usage.returned(index)
        self._usage.step_begins()
        self._tell_capacity()
        self._want()

    def launching(self) -> None:
        self._leased.fence.schedule_begins()

    def launched(self, result: object) -> None:
        self._leased.fence.schedule_ends(result)

    def processed(self, result: object) -> None:
        self._leased.fence.step_processed(result)

    def _want(self) -> None:
        allocator = self._allocator
        free = allocator.available_size()
        cached = self._scheduler.tree_cache.evictable_size()
        used = (allocator.capacity - free - cached) // allocator.page_size
        wanted = self._leased.wanted_slabs(used, self._demand.pages())
        if wanted != self._wanted:
            self._wanted = wanted
            self._leased.grants.want(wanted)

    def _tell_capacity(self) -> None:
        """To SGLang's own books: its check that no page is lost, and its
        metrics. They hold copies of what was known when the scheduler was
        built."""
        capacity = self._allocator.capacity
        if capacity == self._capacity:
            return
        self._capacity = capacity
        for book in (
            self._scheduler.invariant_checker,
            self._scheduler.pool_stats_observer,
        ):
            # One of them is frozen.
            object.__setattr__(book, "max_total_num_tokens", capacity)
