"""Blocks that a KV connector still reads although no request uses them.

vLLM's OffloadingConnector copies the blocks of a request to host memory. It
does not hold them during the copy: a request that ends frees them, the copies
of its last blocks are planned in the step after that, begin in the one after,
and end later. vLLM relies on a free block keeping its content until it is
handed out again, and then waits for the copy. A slab that goes back to the pool
is zeroed without asking, so it must wait for these copies by itself. Copies
into the KV cache go to blocks of a request that waits for them; those are in
use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

# The vLLM connectors whose transfers are known, by class name.
OFFLOADING = "OffloadingConnector"
NIXL = "NixlPullConnector"
NIXL_NAMES = (NIXL, "NixlConnector")  # in a configuration

_PREEMPTED = "PREEMPTED"  # of vLLM's RequestStatus


def loads_requests(scheduler: Any) -> bool:
    """Returns True if the requests of a scheduler may get their KV from one of
    these connectors."""
    return type(scheduler.connector).__name__ in (OFFLOADING, NIXL)


def receives(vllm_config: Any) -> bool:
    """Returns True if an engine's connector fills blocks with what another
    engine has computed (receives.py)."""
    transfer = vllm_config.kv_transfer_config
    return transfer is not None and transfer.kv_connector in NIXL_NAMES


def held_blocks(scheduler: Any) -> Callable[[], set[int]] | None:
    """Returns a function that looks up the blocks that the OffloadingConnector
    of a scheduler may still read; None if the scheduler has no such connector.
    The looked-up blocks include used ones."""
    if type(scheduler.connector).__name__ != OFFLOADING:
        return None
    books = scheduler.connector.connector_scheduler
    return lambda: set(_jobs_blocks(books)).union(_requests_blocks(books))


# The functions below copy the dicts, because an engine that is stepped by its
# caller looks them up in another thread.


def _jobs_blocks(books: Any) -> Iterator[int]:
    """Yields the blocks of copies to the host that are planned or under way."""
    for job in list(books._jobs.values()):
        if job.is_store:
            yield from job.deferred_fence_block_ids or ()
            yield from job.fenced_block_ids or ()


def _requests_blocks(books: Any) -> Iterator[int]:
    """Yields the blocks of requests whose last copies are not planned yet. A
    preempted request starts again, and its former blocks are not copied."""
    for state in list(books._req_status.values()):
        if state.finished_signaled or state.req.status.name == _PREEMPTED:
            continue
        for group in state.group_states:
            yield from group.block_ids
