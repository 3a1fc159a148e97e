"""How many blocks an engine's requests can take before it may get more."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

# Steps until a want is answered. Heuristic, until the daemon measures it.
_STEPS_PER_ROUND_TRIP = 4


class Demand:
    """Of one scheduler, within a round trip to the daemon.

    Confined to the scheduler's thread.

    Args:
        block_sizes: tokens per block of each group of its KV cache.
    """

    def __init__(self, scheduler: Any, block_sizes: Sequence[int]) -> None:
        self._scheduler = scheduler
        self._block_sizes = block_sizes
        self._most_requests: int = scheduler.max_num_running_reqs
        # More than these no steps can compute.
        self._most_tokens: int = (
            _STEPS_PER_ROUND_TRIP * scheduler.max_num_scheduled_tokens
        )
        # A request that generates computes these.
        self._generated = _STEPS_PER_ROUND_TRIP * (
            1 + scheduler.num_spec_tokens
        )

    def blocks(self) -> int:
        """At most; 0 for an engine without requests. A request's last block in
        each group is partly filled, and how far is not looked at: one more block
        for each."""
        running = self._scheduler.running
        requests = len(running)
        # What a running request that generates has not computed is the token it
        # was given last. The others are few: asking all of them for num_tokens,
        # a property, takes four times as long (bench/vllm/vllm_bench.py).
        tokens = requests * (self._generated + 1)
        for request in [r for r in running if r.is_prefill_chunk]:
            tokens += self._missing(request)
        waiting = itertools.chain(
            # Loaded from the host, with blocks for what was loaded.
            self._scheduler.kv_holding_waiting,
            self._scheduler.waiting,
        )
        for request in waiting:
            if tokens >= self._most_tokens or requests >= self._most_requests:
                break
            tokens += self._generated + self._missing(request)
            requests += 1
        tokens = min(tokens, self._most_tokens)
        return sum(-(-tokens // size) + requests for size in self._block_sizes)

    @staticmethod
    def _missing(request: Any) -> int:
        return max(0, request.num_tokens - request.num_computed_tokens)
