"""Blocks that vLLM's NixlConnector fills with what another engine has computed.

The decoding engine reads: its own worker posts each read of a request's blocks,
sees its end, and reports it. The request has the blocks until then, also if it
is aborted. Two things may free a block earlier. With a window, vLLM frees what
has left it when a request is aborted, and that is up to a block less than is
being read. A read of several parts counts as failed when one of them has
failed; vLLM then lets go of it, but the library cannot stop the others. So the
plugin keeps books of its own: which blocks each read fills, from the step that
orders it until it is reported, and for a while longer if it has failed.

What other engines read of this one needs no books: vLLM keeps the blocks until
they have been read, or its time for that is over; then the reader gets other
bytes, as it does where vLLM is alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# After a failed read, until nothing can arrive any longer. Heuristic, far above
# what a transport takes to give a peer up: UCX sends 7 times in 7 s over
# InfiniBand, and finds a dead peer within 60 s over TCP.
AFTER_FAILURE_S = 180.0


class Receives:
    """The reads of one scheduler's worker. Confined to its thread, with the
    pool's lock held."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        after_failure_s: float = AFTER_FAILURE_S,
    ) -> None:
        self.after_failure_s = after_failure_s
        self._clock = clock
        self._reads: dict[str, set[int]] = {}  # blocks by request
        self._failed: list[tuple[float, set[int]]] = []  # until when

    def step_built(self, output: Any) -> None:
        """Called with each output of schedule()."""
        for request, read in output.kv_connector_metadata.reqs_to_recv.items():
            blocks = {
                block for group in read.local_block_ids for block in group
            }
            if blocks:  # else the other engine is only notified
                self._reads.setdefault(request, set()).update(blocks)

    def step_processed(self, result: Any) -> bool:
        """Called with what the worker reports of each step. Returns True if a
        read has failed: its blocks are held for `after_failure_s`."""
        if result is None:
            return False
        failed = set(result.failed_recving or ())
        some_failed = False
        for request in result.finished_recving or ():
            blocks = self._reads.pop(request, set())
            # Without names of failed requests, there are those of blocks.
            if blocks and (
                request in failed
                or not blocks.isdisjoint(result.invalid_block_ids)
            ):
                until = self._clock() + self.after_failure_s
                self._failed.append((until, blocks))
                some_failed = True
        return some_failed

    def blocks(self) -> set[int]:
        """Those that may still be written."""
        if self._failed:
            now = self._clock()
            self._failed = [one for one in self._failed if one[0] > now]
        return set().union(
            *self._reads.values(), *(blocks for _, blocks in self._failed)
        )
