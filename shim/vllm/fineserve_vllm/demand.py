"""The blocks that an engine's requests can take before it may get more."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from fineserve_vllm.kv_groups import Taken

# Number of steps until a want is answered. Heuristic, until the daemon measures
# it.
_STEPS_PER_ROUND_TRIP = 4


class Demand:
    """The demand of one scheduler within a round trip to the daemon.

    vLLM lets a request in only if all of it fits into the free blocks, however
    few of its tokens a step computes (scheduler_reserve_full_isl). So a request
    counts with all its tokens; a round trip bounds how many that wait do.

    Confined to the thread that holds the pool's lock. An in-process LLM may add
    requests in between.

    Args:
        groups: of its KV cache.
    """

    def __init__(self, scheduler: Any, groups: Sequence[Taken]) -> None:
        self._scheduler = scheduler
        self._groups = groups
        self._most_requests: int = scheduler.max_num_running_reqs
        # The most tokens that these steps can compute.
        self._most_tokens: int = (
            _STEPS_PER_ROUND_TRIP * scheduler.max_num_scheduled_tokens
        )
        # The most tokens that these steps compute for a request that generates.
        self._generated = _STEPS_PER_ROUND_TRIP * (
            1 + scheduler.num_spec_tokens
        )

    def blocks(self) -> int:
        """Returns the most blocks that the requests can take; 0 for an engine
        without requests. A request's last block in each group is partly filled.
        How far is not checked, so each adds one more block."""
        running = self._scheduler.running
        requests = len(running)
        # A running request that generates has computed all its tokens but the
        # last. The other running requests are few: asking all requests for
        # num_tokens, a property, takes four times as long
        # (bench/vllm/vllm_bench.py).
        generated = requests * (self._generated + 1)
        prompts = [self._missing(r) for r in running if r.is_prefill_chunk]
        waiting = self._let_in(requests, generated + sum(prompts))
        requests += len(waiting)
        prompts += waiting
        room = sum(
            -(-(generated + _counted(prompts, group)) // group.block_tokens)
            + requests
            + group.fixed * len(waiting)
            for group in self._groups
        )
        # vLLM keeps these blocks free when it lets a request in.
        kept_free = self._scheduler.kv_cache_manager.watermark_blocks
        return room + (kept_free if waiting else 0)

    def _let_in(self, requests: int, tokens: int) -> list[int]:
        """Returns the tokens of each waiting request that may be let in besides
        `requests` requests with `tokens` tokens to compute. The first waiting
        request may always be let in: a step need not spend all its tokens on a
        prompt that it computes."""
        found: list[int] = []
        slots = max(0, self._most_requests - requests)
        # Requests loaded from the host, which have blocks for what was loaded.
        # An engine that is paused keeps room for what has begun.
        waiting = _copied(self._scheduler.kv_holding_waiting, slots)
        if self._scheduler.pause_state.name == "UNPAUSED":
            waiting = itertools.chain(
                waiting, _copied(self._scheduler.waiting, slots)
            )
        for request in itertools.islice(waiting, slots):
            if found and tokens >= self._most_tokens:
                break
            found.append(self._generated + self._missing(request))
            tokens += found[-1]
        return found

    @staticmethod
    def _missing(request: Any) -> int:
        return max(0, request.num_tokens - request.num_computed_tokens)


def _copied(queue: Iterable[Any], most: int) -> Iterable[Any]:
    """Returns the first requests of a queue that may change during the call.
    vLLM's priority queue iterates over a copy of itself."""
    if not isinstance(queue, collections.deque):
        return queue
    while True:
        try:
            return list(itertools.islice(queue, most))
        except RuntimeError:
            # The queue changed as the copy began; after that the copy cannot be
            # interrupted. That is rare, and hardly ever happens twice in a row.
            continue


def _counted(prompts: Sequence[int], group: Taken) -> int:
    """Returns how many tokens of all prompts take blocks of a group, not
    counting each request's partly filled block."""
    longest = max(0, group.most - 1) * group.block_tokens
    if max(prompts, default=0) <= longest:
        return sum(prompts)
    return sum(min(tokens, longest) for tokens in prompts)
