"""Publishes how many blocks of each slab are in use, at little cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# Heuristic: the daemon reads the counts when it asks slabs back, and fsctl when
# it runs.
_PERIOD_S = 0.05
# Heuristic: counting this many blocks takes some 60 µs, about a thousandth of
# the period.
_BLOCKS_PER_PERIOD = 1024


class UsageReport:
    """Counts a part of the pool's slabs per period, in turn; an idle pool is
    reported at once. A cached block that no request uses is not in use.

    Confined to the scheduler's thread.
    """

    def __init__(
        self, pool: Any, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._due = 0.0
        self._next = 0
        self._ids = [(slab.index, slab.ids) for slab in pool.grants.slabs()]
        # The published counts of slabs with used blocks, by view index.
        self._published: dict[int, int] = {}

    def step_ended(self) -> None:
        if self._pool.used_blocks == 0:
            for index in self._published:
                self._pool.grants.publish(index, 0)
            self._published.clear()
            return
        now = self._clock()
        if now >= self._due:
            self._due = now + _PERIOD_S
            self._count()

    def returned(self, index: int) -> None:
        self._publish(index, 0)

    def forget(self) -> None:
        """Forgets everything that was published."""
        self._published.clear()

    def _count(self) -> None:
        pool, blocks = self._pool, self._pool.blocks
        budget = _BLOCKS_PER_PERIOD
        for _ in self._ids:
            index, ids = self._ids[self._next]
            self._next = (self._next + 1) % len(self._ids)
            used = 0
            if pool.holds(index):
                for block in blocks[ids.start : ids.stop]:
                    used += block.ref_cnt > 0
                budget -= len(ids)
            self._publish(index, used)
            if budget <= 0:
                return

    def _publish(self, index: int, used: int) -> None:
        if used != self._published.get(index, 0):
            self._pool.grants.publish(index, used)
            if used:
                self._published[index] = used
            else:
                del self._published[index]
