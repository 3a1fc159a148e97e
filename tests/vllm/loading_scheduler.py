"""A model of how vLLM schedules requests whose KV is loaded from the host.

Our own code, for tests without PyTorch: the queues, the order in which requests
are let in, what a load reserves, and preemption are as in vLLM's Scheduler.
Tokens are only counted.
"""

from __future__ import annotations

import dataclasses
import random
import types
from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.request_queue import FCFSRequestQueue

BLOCK_TOKENS = 16


def blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)


class OffloadingConnector:
    """A connector by whose name the plugin recognizes that requests are
    loaded."""


def status(name: str) -> Any:
    return types.SimpleNamespace(name=name)


@dataclasses.dataclass(eq=False)
class Request:
    request_id: str
    num_tokens: int
    on_host: int  # tokens that are loaded, less than num_tokens
    to_generate: int
    status: Any = dataclasses.field(default_factory=lambda: status("WAITING"))
    num_computed_tokens: int = 0
    num_preemptions: int = 0
    blocks: list[Any] = dataclasses.field(default_factory=list)

    @property
    def is_prefill_chunk(self) -> bool:
        return self.num_computed_tokens < self.num_tokens - 1

    @property
    def missing_blocks(self) -> int:
        """To hold what it has now."""
        return blocks_for(self.num_tokens) - len(self.blocks)


class LoadingScheduler:
    """The scheduler of one engine whose steps compute one after another."""

    max_num_running_reqs = 8
    max_num_scheduled_tokens = 256
    num_spec_tokens = 0

    def __init__(self, pool: Any, rng: random.Random) -> None:
        self.pool = pool
        self.connector = OffloadingConnector()
        self.running: list[Request] = []
        self.pause_state = PauseState.UNPAUSED
        self.waiting = FCFSRequestQueue()
        self.kv_holding_waiting = FCFSRequestQueue()
        self.finished_recving_kv_req_ids: set[str] = set()
        self._inflight_prefills: set[Request] = set()
        self._loading: list[Request] = []
        self._rng = rng
        self.requests: dict[str, Request] = {}
        self.kv_cache_manager = types.SimpleNamespace(
            watermark_blocks=0,
            block_pool=pool,
            get_block_ids=lambda name: (
                [block.block_id for block in self.requests[name].blocks],
            ),
        )

    def add(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def has_unfinished_requests(self) -> bool:
        return bool(self.requests)

    def schedule(self) -> Any:
        """Builds a step: returns its requests and the number of tokens for
        each."""
        step: dict[Request, int] = {}
        preempted = False
        for request in list(self.running):
            if request not in self.running:
                break  # preempted for one before it
            tokens = self._tokens_of(request, step)
            if not tokens:
                continue
            after = request.num_computed_tokens + tokens
            while not self._allocate(request, after):
                last = self.running.pop()
                self._preempt(last)
                step.pop(last, None)
                preempted = True
                if last is request:
                    break
            else:
                step[request] = tokens
        if not preempted:
            self._let_in(step)
        return types.SimpleNamespace(
            step=step,
            total_num_scheduled_tokens=sum(step.values()),
            new_block_ids_to_zero=None,
            kv_cache_block_copies=None,
            kv_connector_metadata=object(),
        )

    def update_from_output(self, output: Any) -> None:
        for request, tokens in output.step.items():
            request.num_computed_tokens += tokens
            if request.num_computed_tokens < request.num_tokens:
                continue
            self._inflight_prefills.discard(request)
            request.to_generate -= 1
            if request.to_generate:
                request.num_tokens += 1
                continue
            self.running.remove(request)
            self._free_request_blocks(request)
            del self.requests[request.request_id]
        for request in list(self._loading):
            if self._rng.random() < 0.1:
                self._loading.remove(request)
                self.finished_recving_kv_req_ids.add(request.request_id)

    def _tokens_of(self, request: Request, step: dict[Request, int]) -> int:
        left = self.max_num_scheduled_tokens - sum(step.values())
        return min(left, request.num_tokens - request.num_computed_tokens)

    def _let_in(self, step: dict[Request, int]) -> None:
        skipped = []
        while self._tokens_left(step) and (
            len(self.running) < self.max_num_running_reqs
        ):
            # Requests that hold blocks go first; none overtakes one that does
            # not fit.
            queue = self.kv_holding_waiting or self.waiting
            if not queue:
                break
            request = queue[0]
            if not self._handle_blocked_waiting_request(request):
                skipped.append(queue.popleft())
                continue
            if request.missing_blocks > self.pool.get_num_free_blocks():
                break
            if not request.num_computed_tokens and request.on_host:
                if not self._load(request):
                    break
                skipped.append(queue.popleft())
                continue
            tokens = self._tokens_of(request, step)
            if not self._allocate(
                request, request.num_computed_tokens + tokens
            ):
                break
            self.running.append(queue.popleft())
            request.status = status("RUNNING")
            step[request] = tokens
            if request.num_computed_tokens + tokens < request.num_tokens:
                self._inflight_prefills.add(request)
        self.kv_holding_waiting.extendleft(reversed(skipped))

    def _tokens_left(self, step: dict[Request, int]) -> int:
        return self.max_num_scheduled_tokens - sum(step.values())

    def _load(self, request: Request) -> bool:
        reserved = sum(r.missing_blocks for r in self._inflight_prefills)
        free = self.pool.get_num_free_blocks() - reserved
        if blocks_for(request.on_host) > free:
            return False
        self._allocate(request, request.on_host)
        request.num_computed_tokens = request.on_host
        request.status = status("WAITING_FOR_REMOTE_KVS")
        self._inflight_prefills.add(request)
        self._loading.append(request)
        return True

    def _allocate(self, request: Request, tokens: int) -> bool:
        count = blocks_for(tokens) - len(request.blocks)
        if count > self.pool.get_num_free_blocks():
            return False
        if count > 0:
            request.blocks += self.pool.get_new_blocks(count)
        return True

    def _preempt(self, request: Request) -> None:
        self._free_request_blocks(request)
        self._inflight_prefills.discard(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = status("PREEMPTED")
        self.waiting.prepend_request(request)

    def _free_request_blocks(self, request: Request) -> None:
        self.pool.free_blocks(reversed(request.blocks))
        request.blocks = []

    def _handle_blocked_waiting_request(self, request: Request) -> bool:
        if request.status.name == "WAITING_FOR_REMOTE_KVS":
            if request.request_id not in self.finished_recving_kv_req_ids:
                return False
            self.finished_recving_kv_req_ids.remove(request.request_id)
            request.status = status(
                "PREEMPTED" if request.num_preemptions else "WAITING"
            )
        return True
