"""Engines whose workers are processes of their own, one per GPU, on views: their
block ids are the same on all GPUs.

As test_gpu_trade.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from test_gpu_trade import Trades
from test_gpu_worker import LARGE, SMALL


class AWorkerOfItsOwn(Trades):
    """One GPU each: the block pool runs in another process than the worker."""

    MODELS = [LARGE, SMALL]

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({}, [{"distributed_executor_backend": "mp"}] * 2)
        for _ in range(5):
            self.in_turns_then_together(48, most=8)
            if self._has_traded():
                break
        self.assertTrue(self._has_traded())
        for report in self.reports():
            self.check(report)

    def _has_traded(self) -> bool:
        """Twice as many slabs as there are."""
        views = self.fsctl("engines")["engines"]
        print(*views, sep="\n")
        return self.returned() > 2 * self.pool_slabs

    def returned(self) -> int:
        counters = self.fsctl("slabs")["counters"]
        print(counters)
        return counters["slabs_returned"]


if __name__ == "__main__":
    unittest.main()
