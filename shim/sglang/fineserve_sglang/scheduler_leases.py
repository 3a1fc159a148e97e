"""The leases of one scheduler, driven by its event loop (plugin.py)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import torch
from fineserve_vllm.grants import has_left, try_to_come_back
from fineserve_vllm.kv_abi import KvError, Presence
from fineserve_vllm.log import logger

from fineserve_sglang.allocators import leased_part
from fineserve_sglang.demand import Demand, reopen_admission
from fineserve_sglang.ranks import Ranks, Turn
from fineserve_sglang.usage import Usage

_log = logger(__name__)

_RETRY_S = 1.0  # between tries to take the KV cache back
_LOOK_S = 0.005  # between looks at whether the daemon asks


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
        self,
        scheduler: Any,
        ranks: Ranks,
        tokens_ahead: int = 0,
        clock: Callable[[], float] = time.monotonic,
        finish_device: Callable[[], None] = torch.cuda.synchronize,
    ) -> None:
        self.counters = Counters()
        self._scheduler = scheduler
        self._allocator = leased_part(scheduler.token_to_kv_pool_allocator)
        self._leased = self._allocator.leased
        self._demand = Demand(scheduler, tokens_ahead)
        self._usage = Usage(scheduler, clock)
        self._ranks = ranks
        ranks.begin_with(self._look)
        if scheduler.is_hybrid_ssm:
            for book in scheduler.invariant_checker, scheduler.pool_stats_observer:
                pool = _RequestsForBooks(book.req_to_token_pool)
                object.__setattr__(book, "req_to_token_pool", pool)
        self._wanted = -1
        self._capacity = -1
        self._room = 0  # pages that requests may have, used ones among them
        self._clock = clock
        self._finish_device = finish_device
        self._asked = 0  # how often it has asked for its memory
        # True once release() has given up the KV cache, until it is back.
        self._released = False
        self._resumes = False  # resume() was called since
        self._resume_at = 0.0

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
            self._end_step_of_a_pause()
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
        self._tell_room()
        self._want()

    def _end_step_of_a_pause(self) -> None:
        """Ends the last step on the device if the engine is paused: SGLang takes
        in its result only when it goes on, and slabs would not drain until
        then."""
        fence = self._leased.fence
        if self._demand.is_paused and fence.in_flight:
            self._finish_device()
            fence.device_finished()

    def _look(self) -> Turn:
        return Turn(self._leased.grants.poll(), self._usage.is_due)

    def _is_here(self) -> bool:
        """Returns True if the engine takes part. Leaves the GPU if the daemon
        has asked it to and there is nothing to do; comes back when requests
        need it, or when the memory is back."""
        grants = self._leased.grants
        if self._released:
            self._resume_if_due()
        elif self._leased.away:
            # For a second only: the scheduler goes on reading messages.
            if self._is_needed():
                self._asked += 1
                back = try_to_come_back(grants, self._asked)
            else:
                back = grants.presence != Presence.AWAY and grants.came_back()
            if back:
                self._asked = 0
                self._is_back()
        elif (
            grants.presence == Presence.ASKED_TO_LEAVE
            and self._may_leave()
            and not self._is_needed()
        ):
            self._leave()
        return not self._leased.away

    def _is_needed(self) -> bool:
        """Returns True if there are requests, and the engine is not paused."""
        return self._demand.has_requests() and not self._demand.is_paused

    def release(self, leave: Callable[[], None] | None) -> bool:
        """Gives up the KV cache until resume(), or until a request of an engine
        that is not paused needs it. `leave` has the daemon move the rest of the
        memory to the host, too; if that fails, only the KV cache is given up.
        Returns False, with nothing changed, if a request has pages or the
        engine spans GPUs."""
        if self._ranks.are_several:
            _log.warning("FineServe: an engine that spans GPUs releases none")
            return False
        if not self._leased.away and not self._may_leave():
            _log.warning("FineServe: no memory is released: it has requests")
            return False
        if leave:
            self._leave_by(leave)
        if not self._leased.away:
            self._clear()
            self._leased.grants.suspend()
            self._released = True
            self._resumes = False
            self._is_gone()
        return True

    def _leave_by(self, leave: Callable[[], None]) -> None:
        """Calls `leave` in a thread of its own, since the daemon asks this one."""
        with ThreadPoolExecutor(1) as threads:
            left = threads.submit(leave)
            while not left.done():
                presence = self._leased.grants.presence
                if presence == Presence.ASKED_TO_LEAVE:
                    self._leave()
                wait([left], _LOOK_S)
        try:
            left.result()
        except KvError as error:
            _log.warning("%s: the weights stay on the GPU", error)

    def _leave(self) -> None:
        self._clear()
        if has_left(self._leased.grants.leave):
            self._is_gone()

    def resume(self) -> None:
        """Takes the KV cache back, in one of the next steps if others have been
        promised its room."""
        if self._released:
            self._resumes = True
            self._resume_if_due()

    def _resume_if_due(self) -> None:
        now = self._clock()
        if now < self._resume_at or not (self._resumes or self._is_needed()):
            return
        try:
            self._leased.grants.resume()
        except KvError as error:
            if error.is_for_good:
                raise
            self._resume_at = now + _RETRY_S
            _log.warning("%s: the KV cache is not back yet", error)
            return
        self._released = False
        self._is_back()

    def _is_gone(self) -> None:
        """The KV cache is gone: SGLang finds no page free, and so lets no
        request in, until slabs are leased again."""
        self._leased.away = True
        self._allocator.leases_ended()
        self._tell_capacity()

    def _is_back(self) -> None:
        self._leased.away = False
        self._wanted = -1

    def _may_leave(self) -> bool:
        """Returns True if no request has a page and no step is under way."""
        return not (self._leased.fence.in_flight or self._used_pages())

    def _clear(self) -> None:
        """Clears the radix cache, and returns the slabs that were asked
        back."""
        # Everything that needs the device comes first: such calls would block
        # once the engine has left.
        self._scheduler.tree_cache.reset()
        self._scheduler.req_to_token_pool.clear()  # states, too
        self._scheduler.token_to_kv_pool_allocator.clear()
        for index in self._allocator.give_back(0):
            self.counters.returned += 1
            self._usage.returned(index)
        self._usage.step_begins(counts=False)  # no page is in use

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

    def _tell_room(self) -> None:
        leased = self._leased
        room = leased.capacity - leased.withheld - leased.reserved
        if room > self._room:
            reopen_admission(self._scheduler)
        self._room = room

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
