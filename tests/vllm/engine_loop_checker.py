"""Invariants while slabs come and go, checked from outside the plugin.

The checker takes nothing from the plugin's own books: leases are those of the
lessor, steps those the executor was given, block tables those of vLLM's
KVCacheManager.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from fineserve_vllm.grants import InMemoryGrants, Slab


class Violation(AssertionError):
    """A rule of leasing was broken."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One scheduled step: the block ids that it may write and read."""

    number: int
    writes: frozenset[int]
    reads: frozenset[int]


class Checker:
    """Confined to the scheduler's thread.

    Set once the engine is built: `tables` (the block tables of the live
    requests, by request id) and `blocks` (vLLM's, by id).
    """

    def __init__(
        self, slabs: Iterable[Slab], num_blocks: int, check_reads: bool = True
    ) -> None:
        self.check_reads = check_reads
        self.slab_of = [0] * num_blocks  # 0: the private index
        self.slabs = {slab.index: slab for slab in slabs}
        for slab in self.slabs.values():
            for block_id in slab.ids:
                self.slab_of[block_id] = slab.index
        self.held: set[int] = set()
        self.asked_back: dict[int, int] = {}  # view index -> step of asking
        self.in_flight: collections.deque[Step] = collections.deque()
        self.steps = 0
        self.returned = 0
        self.waits: list[int] = []  # steps from ask-back to return
        self.returned_with_steps_in_flight = 0
        self.tables: Callable[[], dict[str, list[int]]] = dict
        self.blocks: list[Any] = []

    # Called by the lessor.

    def leased(self, index: int) -> None:
        self.held.add(index)

    def asked(self, index: int) -> None:
        self.asked_back[index] = self.steps

    def returning(self, index: int) -> None:
        """Checks a slab at return_slab, before the return takes effect."""
        self._require(index in self.slabs, f"slab {index} is not leasable")
        self._require(index in self.held, f"slab {index} is not leased")
        self._require(
            index in self.asked_back, f"slab {index} was not asked back"
        )
        ids = self.slabs[index].ids
        self._require_untouched(index, "write", lambda step: step.writes)
        if self.check_reads:
            self._require_untouched(index, "read", lambda step: step.reads)
        for request_id, table in self.tables().items():
            stray = set(table).intersection(ids)
            self._require(
                not stray,
                f"slab {index} returned while request {request_id} holds its "
                f"blocks {sorted(stray)}",
            )
        for block_id in ids:
            block = self.blocks[block_id]
            self._require(
                block.ref_cnt == 0 and block.block_hash is None,
                f"slab {index} returned while block {block_id} is used or "
                f"cached",
            )
        self.held.remove(index)
        self.waits.append(self.steps - self.asked_back.pop(index))
        self.returned += 1
        self.returned_with_steps_in_flight += bool(self.in_flight)

    def _require_untouched(
        self, index: int, what: str, touched: Callable[[Step], frozenset[int]]
    ) -> None:
        for step in self.in_flight:
            stray = touched(step).intersection(self.slabs[index].ids)
            self._require(
                not stray,
                f"slab {index} returned while step {step.number} in flight may "
                f"{what} its blocks {sorted(stray)}",
            )

    # Called by the pool and the executor.

    def handed_out(self, block_ids: Iterable[int]) -> None:
        # The engine has seen every ask-back by now: it sees them on entry to
        # schedule(), and blocks are handed out only within schedule().
        for block_id in block_ids:
            index = self.slab_of[block_id]
            self._require(
                index in self.held and index not in self.asked_back,
                f"block {block_id} of slab {index} handed out: held "
                f"{sorted(self.held)}, asked back {sorted(self.asked_back)}",
            )

    def scheduled(self, writes: set[int], reads: set[int]) -> Step:
        self.steps += 1
        step = Step(self.steps, frozenset(writes), frozenset(reads))
        for block_id in step.writes | step.reads:
            self._require(
                self.slab_of[block_id] in self.held,
                f"step {step.number} uses block {block_id} of slab "
                f"{self.slab_of[block_id]}, which is not leased",
            )
        for request_id, table in self.tables().items():
            for block_id in table:
                self._require(
                    self.slab_of[block_id] in self.held,
                    f"request {request_id} holds block {block_id} of slab "
                    f"{self.slab_of[block_id]}, which is not leased",
                )
        self.in_flight.append(step)
        return step

    def completed(self, step: Step) -> None:
        self._require(
            self.in_flight and self.in_flight[0] is step,
            f"step {step.number} completed out of order",
        )
        self.in_flight.popleft()

    def check_waits(self, bound_steps: int) -> None:
        for index, asked in self.asked_back.items():
            self._require(
                self.steps - asked <= bound_steps,
                f"slab {index} was asked back {self.steps - asked} steps ago",
            )

    def check_idle(self) -> None:
        self._require(
            not self.asked_back,
            f"the engine is idle and keeps slabs {sorted(self.asked_back)}, "
            f"which were asked back",
        )

    def _require(self, holds: bool, message: str) -> None:
        if not holds:
            raise Violation(f"step {self.steps}: {message}")


class CheckedGrants(InMemoryGrants):
    """Leases that pass each change to the checker."""

    def __init__(
        self,
        slabs: Iterable[Slab],
        leased: Iterable[int],
        checker: Checker,
        on_return: Callable[[int], None],
    ) -> None:
        self._checker = checker
        self._on_return = on_return
        super().__init__(slabs, leased)

    def lease(self, index: int) -> None:
        super().lease(index)
        self._checker.leased(index)

    def ask_back(self, index: int) -> None:
        super().ask_back(index)
        self._checker.asked(index)

    def return_slab(self, index: int) -> None:
        self._checker.returning(index)
        super().return_slab(index)
        self._on_return(index)
