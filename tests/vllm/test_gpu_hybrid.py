"""Models with several groups of KV blocks on a view of the pool: attention
within a window, states beside attention.

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest

from gpu_hybrids import ShortConvolutionModel, SlidingModel
from test_gpu_trade import Trades
from test_gpu_worker import SMALL, GpuWorkerTest

SLIDING = SlidingModel(layers=8, seed=11)
CONVOLUTION = ShortConvolutionModel(layers=4, seed=12)


class Alone(GpuWorkerTest):
    def test_tokens_are_those_of_transformers(self) -> None:
        self.start_daemon()
        for model in [CONVOLUTION]:
            for view in False, True:
                with self.subTest(model=model, view=view):
                    self.serve_alone(model, view=view, runner=2)


if __name__ == "__main__":
    unittest.main()
