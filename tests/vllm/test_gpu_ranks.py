"""Engines on several GPUs, on views: each worker has a view of its own GPU's pool
and the block ids are the same on all of them (design note 0028).

As test_gpu_trade.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import REAL_GPU, Model
from several_gpus import SeveralGpus
from test_gpu_trade import Trades
from test_gpu_worker import LARGE, SMALL

# Four heads: each of two ranks has two, so that a block takes half on each GPU;
# each of four ranks has one.
WIDE = Model(layers=4, seed=11)


class Ranks(SeveralGpus, Trades):
    PARALLEL: list[dict[str, Any]] = []
    device_memory = 512 << 20

    def start_vllm(self, model: Model, **arguments: Any) -> Any:
        i = self.MODELS.index(model)
        environment = arguments.pop("environment", None) or {}
        return super().start_vllm(
            model,
            environment=environment | self.gpus_of(i),
            **(arguments | self.PARALLEL[i]),
        )


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class TensorParallelBesideOne(Ranks):
    """An engine on two GPUs with pools of different sizes, and one on the
    second of them."""

    MODELS = [WIDE, SMALL]
    ON = [[0, 1], [1]]
    PARALLEL = [{"tensor_parallel_size": 2}, {}]

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({})
        self.trade_until(returned=12)
        self.kill_a_rank()


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class TwoOnTheSameGpus(Ranks):
    """One engine runs tensor parallel and one as a pipeline, with the GPUs in
    opposite orders."""

    MODELS = [WIDE, LARGE]
    ON = [[0, 1], [1, 0]]
    PARALLEL = [{"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2}]

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({})
        self.trade_until(returned=12)


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class FourGpus(Ranks):
    """An engine on four GPUs with pools of four sizes, and one on the third
    GPU. The first engine can have at most what the smallest pool offers."""

    SLABS = [16, 12, 14, 10]
    MODELS = [WIDE, SMALL]
    ON = [[0, 1, 2, 3], [2]]
    PARALLEL = [{"tensor_parallel_size": 4}, {}]

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({})
        self.trade_until(returned=3)
        for gpu in self.gpus:
            for engine in self.of_gpu(gpu, "engines")["engines"]:
                if engine["view"]["spans_gpus"]:
                    self.assertLessEqual(engine["view"]["leased"], 10)
