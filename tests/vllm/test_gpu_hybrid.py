"""Models with several groups of KV blocks on a view of the pool: attention
within a window, states beside attention.

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_hybrids import ShortConvolutionModel, SlidingModel
from gpu_machine import Model, VllmEngine
from test_gpu_trade import Trades
from test_gpu_worker import SMALL, GpuWorkerTest

SLIDING = SlidingModel(layers=8, seed=11)  # 64 KiB a block: 32 in a slab
CONVOLUTION = ShortConvolutionModel(layers=4, seed=12)  # 64 KiB, too


def observed(report: dict[str, Any], model: Model) -> dict[str, Any]:
    """Without what is wrongly observed: states, whose writes are not looked at,
    lie over attention's parts of a slab, which then is not zero for long."""
    return report | ({"dirty_parts": 0} if model is CONVOLUTION else {})


class Alone(GpuWorkerTest):
    def serve(
        self, engine: VllmEngine, model: Model, seed: int
    ) -> dict[str, Any]:
        return observed(super().serve(engine, model, seed), model)

    def test_tokens_are_those_of_transformers(self) -> None:
        self.start_daemon()
        self.serve_alone(CONVOLUTION, view=False, runner=2)
        for model in SLIDING, CONVOLUTION:
            with self.subTest(model=model):
                self.serve_alone(model, view=True, runner=2)


class WithADenseOne(Trades):
    """One whose requests give blocks back while they run, one with states, and
    one with a single group."""

    MODELS = [SLIDING, CONVOLUTION, SMALL]
    RUNNERS = [2, 2, 2]
    DELAY_US = ["300", "100", "0"]

    def reports(self) -> list[dict[str, Any]]:
        return list(map(observed, super().reports(), self.MODELS))

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({})
        for _ in range(5):  # as Trade.together_until
            self.in_turns_then_together(32)
            if min(r["slabs_returned"] for r in self.reports()) > 0:
                break
        self.check_trade()


if __name__ == "__main__":
    unittest.main()
