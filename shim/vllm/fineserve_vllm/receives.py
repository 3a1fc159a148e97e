"""Blocks that vLLM's NixlConnector fills with what another engine has computed.

The decoding engine reads: its own worker posts each read of a request's blocks,
sees its end, and reports it. The request has the blocks until then, also if it
is aborted. Two things may free a block earlier. With a window, vLLM frees what
has left it when a request is aborted, and that is up to a block less than is
being read. A read of several parts counts as failed when one of them has
failed; vLLM then lets go of it, but the library cannot stop the others. So the
plugin keeps books of its own: which blocks each read fills, from the step that
orders it until it is reported. Those of a failed read are kept until the engine
ends: nothing says when the last part of it can no longer arrive.

Reads by other engines need no books: vLLM keeps the blocks until
they have been read, or its time for that is over; then the reader gets other
bytes, as it does where vLLM is alone.
"""

from __future__ import annotations

from typing import Any

from fineserve_vllm.log import logger

_log = logger(__name__)


class Receives:
    """The reads of one scheduler's worker. Confined to the scheduler's thread,
    with the pool's lock held."""

    def __init__(self) -> None:
        self._reads: dict[str, set[int]] = {}  # blocks by request
        self._failed: set[int] = set()  # blocks

    def step_built(self, output: Any) -> None:
        """Called with each output of schedule()."""
        for request, read in output.kv_connector_metadata.reqs_to_recv.items():
            blocks = {
                block for group in read.local_block_ids for block in group
            }
            if blocks:  # else the other engine is only notified
                self._reads.setdefault(request, set()).update(blocks)

    def step_processed(self, result: Any) -> None:
        """Called with what the worker reports of each step."""
        if result is None:
            return
        failed = set(result.failed_recving or ())
        for request in result.finished_recving or ():
            blocks = self._reads.pop(request, set())
            # If the names of failed requests are missing, the failed blocks are
            # named.
            if blocks and (
                request in failed
                or not blocks.isdisjoint(result.invalid_block_ids)
            ):
                self._keep(blocks)

    def _keep(self, blocks: set[int]) -> None:
        self._failed |= blocks
        _log.warning(
            "FineServe: a read of another engine's KV has failed, and the "
            "library may still write what it read: the slabs of %d blocks stay "
            "with this engine until it ends",
            len(self._failed),
        )

    def blocks(self) -> set[int]:
        """Returns the blocks that reads may still write."""
        return self._failed.union(*self._reads.values())
