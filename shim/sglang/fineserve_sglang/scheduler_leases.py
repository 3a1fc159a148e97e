"""The leases of one scheduler, driven by its event loop (plugin.py)."""

from __future__ import annotations

import dataclasses
from typing import Any

from fineserve_vllm.grants import has_left, wait_until_back
from fineserve_vllm.kv_abi import Presence

from fineserve_sglang.allocators import leased_part
from fineserve_sglang.demand import Demand
from fineserve_sglang.ranks import Ranks, Turn
from fineserve_sglang.usage import Usage


@dataclasses.dataclass
class Counters:
    """Totals since the engine started, in slabs."""

    asked_back: int = 0
    returned: int = 0


class _RequestsForBooks:
    """SGLang's pool of requests and their states, for one of SGLang's books,
    which asks it how many tokens have room."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.tokens = 0

    def schedulable_token_capacity(self, size: int) -> int:
        return self.tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


class SchedulerLeases:
    """Confined to the scheduler's thread.

    An idle scheduler of SGLang goes on looking for requests, and so comes by
    here: at least once a second with --sleep-on-idle, else all the time.
    """

    def __init__(
        self, scheduler: Any, ranks: Ranks, tokens_ahead: int = 0
    ) -> None:
        self.counters = Counters()
        self._scheduler = scheduler
        self._allocator = leased_part(scheduler.token_to_kv_pool_allocator)
        self._leased = self._allocator.leased
        self._demand = Demand(scheduler, tokens_ahead)
        self._usage = Usage(scheduler)
        self._ranks = ranks
        ranks.begin_with(self._look)
        if scheduler.is_hybrid_ssm:
            for book in scheduler.invariant_checker, scheduler.pool_stats_observer:
                pool = _RequestsForBooks(book.req_to_token_pool)
                object.__setattr__(book, "req_to_token_pool", pool)
        self._wanted = -1
        self._capacity = -1

    @property
    def is_away(self) -> bool:
        """Returns True while the engine has left the GPU."""
        return bool(self._leased.away)

    def step_begins(self) -> None:
        """Updates the leases after requests have arrived and before a batch is
        chosen."""
        if not self._is_here():
            return
        turn = self._ranks.turn()
        changes = turn.changes
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
        page = self._allocator.page_size
        self._leased.reserved = -(-self._demand.tokens_of_others() // page)
        self._usage.step_begins(turn.sorts)
        self._tell_capacity()
        self._want()

    def _look(self) -> Turn:
        return Turn(self._leased.grants.poll(), self._usage.is_due)

    def _is_here(self) -> bool:
        """Returns True if the engine takes part. Leaves the GPU if the daemon
        has asked it to and there is nothing to do; comes back when there are
        requests, or when the memory is back."""
        grants = self._leased.grants
        if self._leased.away:
            if self._demand.has_requests():
                wait_until_back(grants)
            if grants.presence == Presence.AWAY:
                return False
            self._leased.away = False
            self._allocator.leases_ended()
            grants.came_back()  # at once: it has no ranks
            self._wanted = -1
        elif grants.presence == Presence.ASKED_TO_LEAVE and self._may_leave():
            self._leased.away = self._leave()
        return not self._leased.away

    def _may_leave(self) -> bool:
        """Returns True if no request has a page and no step is under way."""
        return not (
            self._demand.has_requests()
            or self._leased.fence.in_flight
            or self._used_pages()
        )

    def _leave(self) -> bool:
        """Clears the radix cache, and leaves; returns True if the engine has
        left. Until the engine is back, SGLang's books show all leased pages as
        free: no request asks for pages, and the books divide by their
        number."""
        # Everything that needs the device comes first: such calls would block
        # once the engine has left.
        self._scheduler.tree_cache.reset()
        self._scheduler.req_to_token_pool.clear()  # states, too
        self._scheduler.token_to_kv_pool_allocator.clear()
        for index in self._allocator.give_back(0):
            self.counters.returned += 1
            self._usage.returned(index)
        self._usage.step_begins(counts=False)  # no page is in use
        self._tell_capacity()
        return has_left(self._leased.grants.leave)

    def _used_pages(self) -> int:
        """Pages that requests have."""
        allocator = self._allocator
        free = allocator.available_size()
        cached = self._scheduler.tree_cache.evictable_size()
        return (allocator.capacity - free - cached) // allocator.page_size

    def launching(self) -> None:
        self._leased.fence.schedule_begins()

    def launched(self, batch: object, result: object) -> None:
        self._leased.fence.schedule_ends(self._step(batch, result))

    def processed(self, batch: object, result: object) -> None:
        self._leased.fence.step_processed(self._step(batch, result))

    def _step(self, batch: object, result: object) -> object:
        """Returns the batch or the result, whichever is the same object when a
        step is launched and when it is processed. A pipeline processes a result
        that has come from its last stage; other engines process a copy of the
        batch."""
        return batch if self._ranks.are_a_pipeline else result

    def _want(self) -> None:
        wanted = self._leased.wanted_slabs(
            self._used_pages(), self._demand.pages()
        )
        if wanted != self._wanted:
            self._wanted = wanted
            self._leased.grants.want(wanted)

    def _tell_capacity(self) -> None:
        """Updates SGLang's own books: its check that no page is lost, and its
        metrics. They hold copies of the capacity that was known when the
        scheduler was built."""
        capacity = self._allocator.capacity
        if capacity == self._capacity:
            return
        self._capacity = capacity
        for book, least in (
            (self._scheduler.invariant_checker, 0),
            (self._scheduler.pool_stats_observer, 1),  # divides by it
        ):
            # One of them is frozen.
            object.__setattr__(
                book, "max_total_num_tokens", max(least, capacity)
            )
            if self._scheduler.is_hybrid_ssm:
                book.req_to_token_pool.tokens = max(least, capacity)
