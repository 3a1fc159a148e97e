"""How many blocks an engine's requests can take before it may get more."""

from __future__ import annotations

import itertools
from typing import Any

# Steps until a want is answered. Heuristic, until the daemon measures it.
_STEPS_PER_ROUND_TRIP = 4


class Demand:
    """Of one scheduler, within a round trip to the daemon.

    Confined to the scheduler's thread.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._block_tokens: int = scheduler.block_size
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
        """At most; 0 for an engine without requests. A request's last block is
        partly filled, and how far is not looked at: one more block for each."""
        scheduler = self._scheduler
        tokens = requests = 0
        generated, most = self._generated, self._most_tokens
        for request in itertools.chain(scheduler.running, scheduler.waiting):
            missing = request.num_tokens - request.num_computed_tokens
            tokens += generated + (missing if missing > 0 else 0)
            requests += 1
            if tokens >= most or requests >= self._most_requests:
                break
        return -(-min(tokens, most) // self._block_tokens) + requests
