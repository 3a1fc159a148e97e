"""The step fence: knows which steps may still write KV blocks.

With async scheduling vLLM frees blocks while a step in flight still writes
them. A slab whose last block was freed is therefore idle only when every step
scheduled up to then has been processed (design note 0000, Memory, 9). The fence
counts by itself: vLLM's own (defer_block_free) runs only for KV-connector
consumers.

A step that drafts tokens with a model is processed when its own tokens are
there; its drafter, launched behind it, may still write KV. So may the copy that
moves the state of a hybrid model to the block of the last accepted token, with
any kind of drafts. Such work is over when a later step of the model, which
began behind it, has been processed, or when the device is idle.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any


class StepFence:
    """Steps of one scheduler, numbered from 1 in the order of schedule().

    Confined to the scheduler's thread. EngineCore hands every output of
    schedule() to update_from_output(), those of zero tokens included, oldest
    first; a result that came out of order would only hold the fence back.

    Args:
        finish: waits until the device has done all that it was given; None if a
            step that has been processed has written its last.
    """

    def __init__(self, finish: Callable[[], None] | None = None) -> None:
        self.scheduled = 0
        self._finish = finish
        # The last step that has ended together with everything launched behind
        # it.
        self._finished = 0
        self._scheduling = False
        # (step, its SchedulerOutput), oldest first.
        self._in_flight: collections.deque[tuple[int, object]] = (
            collections.deque()
        )

    @property
    def processed(self) -> int:
        """Returns the last step that has been processed together with all steps
        before it."""
        return self._in_flight[0][0] - 1 if self._in_flight else self.scheduled

    @property
    def in_flight(self) -> bool:
        return bool(self._in_flight)

    def schedule_begins(self) -> None:
        self._scheduling = True

    def schedule_ends(self, output: object) -> None:
        self._scheduling = False
        self.scheduled += 1
        self._in_flight.append((self.scheduled, output))

    def step_processed(self, output: object) -> None:
        """Records that the model has run this step to its end."""
        for position, (step, in_flight) in enumerate(self._in_flight):
            if in_flight is output:
                del self._in_flight[position]
                if self._finish is not None and _ran(output):
                    self._finished = max(self._finished, step - 1)
                return

    def device_finished(self) -> None:
        """Records that the device has finished all the work of the steps so
        far."""
        self._in_flight.clear()
        self._finished = self.scheduled

    def barrier(self) -> int:
        """Returns the step that must be processed before a block freed now is
        idle. Within schedule() this is the step being built, which may still
        copy from the block (copy-on-write)."""
        return self.scheduled + 1 if self._scheduling else self.scheduled

    def passed(self, barrier: int) -> bool:
        # Within schedule(), all steps in flight may be processed while the step
        # being built is not: barrier() then exceeds `scheduled`.
        if barrier > self.processed:
            return False
        return self._finish is None or self._has_finished(barrier)

    def _has_finished(self, barrier: int) -> bool:
        """Returns True if everything launched behind a processed step has
        ended, too."""
        if barrier > self._finished and not self._in_flight:
            assert self._finish is not None
            self._finish()  # no later step would tell
            self._finished = self.scheduled
        return barrier <= self._finished


def _ran(output: Any) -> bool:
    """Returns True if the model ran: a step of no tokens only looks at
    leases."""
    tokens: int = output.total_num_scheduled_tokens
    return tokens > 0
