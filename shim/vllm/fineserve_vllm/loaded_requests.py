"""Requests whose KV came from the host and that wait for more blocks.

A request that vLLM's OffloadingConnector loads holds its blocks while it is
loaded and until it runs. vLLM lets it in only if all such requests will fit,
but then the pool may shrink: what was free goes back with the slabs that are
asked back, and none of these requests gets the blocks that it still needs. They
do not run, so vLLM preempts none of them, and their slabs never drain. The one
that came last then lets its blocks go, as a preempted request does, and is
loaded again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fineserve_vllm import transfers
from fineserve_vllm.log import logger
from fineserve_vllm.pool import LeasedBlockPool

_log = logger(__name__)

# Limit on the wait for wanted slabs. Heuristic: slabs that another engine can
# spare come within milliseconds, and loading a request again takes longer.
_PATIENCE_S = 0.1

# Names from vLLM's RequestStatus.
_LOADING = "WAITING_FOR_REMOTE_KVS"  # or loaded, and not looked at since
_WAITING = ("WAITING", "PREEMPTED")


class LoadedRequests:
    """The loaded requests of one scheduler. Confined to the scheduler's thread,
    with the pool's lock held."""

    def __init__(
        self,
        scheduler: Any,
        pool: LeasedBlockPool,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._clock = clock
        self._patience_s = patience_s
        self._stuck_since: float | None = None

    def step_built(self, output: Any) -> int:
        """Called with each output of schedule(). Returns how many requests have
        let their blocks go: at most one, and only while nothing else makes
        progress."""
        victim = None
        if output.total_num_scheduled_tokens == 0:
            victim = self._victim()
        if victim is None:
            self._stuck_since = None
            return 0
        now = self._clock()
        if self._stuck_since is None:
            self._stuck_since = now
        if now - self._stuck_since < self._patience_s:
            return 0
        self._let_go(victim)
        return 1

    def _victim(self) -> Any:
        """Returns the request that came last among those that lack nothing but
        blocks; None if something else still makes progress, or if letting go
        would not help."""
        scheduler = self._scheduler
        if scheduler.running:  # these can be preempted
            return None
        loaded = []
        for request in scheduler.kv_holding_waiting:
            if self._is_loaded(request):
                loaded.append(request)
            elif request.status.name == _LOADING:
                return None  # comes to an end by itself
        if len(loaded) > 1 or (loaded and self._keeps_a_slab(loaded[0])):
            return loaded[-1]
        # The only loaded request has all the blocks there are, and its slabs
        # stay: it gets the rest of its floor as soon as the other slabs are
        # back.
        return None

    def _is_loaded(self, request: Any) -> bool:
        if request.status.name == _LOADING:
            finished = self._scheduler.finished_recving_kv_req_ids
            return request.request_id in finished
        return request.status.name in _WAITING

    def _keeps_a_slab(self, request: Any) -> bool:
        """Returns True if a slab that was asked back waits for this request."""
        groups = self._scheduler.kv_cache_manager.get_block_ids(
            request.request_id
        )
        held = {block_id for ids in groups for block_id in ids}
        return any(
            not held.isdisjoint(self._pool.used_in_leaving(index))
            for index in self._pool.leaving
        )

    def _let_go(self, request: Any) -> None:
        """Does to a waiting request what _preempt_request does to a running
        one. The waiting request keeps its status: if it has never run, no
        worker has a request to resume."""
        scheduler = self._scheduler
        if request.status.name == _LOADING:  # vLLM takes note of what came
            scheduler._handle_blocked_waiting_request(request)
        _log.info(
            "request %s lets its blocks go until there are enough for it",
            request.request_id,
        )
        scheduler.kv_holding_waiting.remove_request(request)
        scheduler._free_request_blocks(request)
        scheduler._inflight_prefills.discard(request)
        request.num_computed_tokens = 0
        scheduler.waiting.prepend_request(request)


def watch(scheduler: Any, pool: LeasedBlockPool) -> LoadedRequests | None:
    """Returns the loaded requests of a scheduler; None if it loads no requests
    from outside."""
    if not transfers.loads_requests(scheduler):
        return None
    return LoadedRequests(scheduler, pool)
