"""Stock vLLM with models that have experts (MoE): data-parallel ranks hold
different experts and step together, so a rank without a request runs idle
batches (design note 0028).

On vLLM itself (label vllm), as test_gpu_data_parallel.py.
"""

from __future__ import annotations

import dataclasses
import unittest
from typing import Any

from gpu_machine import REAL_GPU, Model
from test_gpu_data_parallel import DataParallelRanks
from test_gpu_parallel import VllmRanksAlone
from test_gpu_ranks import Ranks
from test_gpu_worker import SMALL, broken


@dataclasses.dataclass(frozen=True)
class ExpertsModel(Model):
    """Mixtral with eight experts, of which each token takes two. Its attention
    is that of Model."""

    def configuration(self) -> Any:
        from transformers import MixtralConfig

        return MixtralConfig(
            **self.sizes() | {"intermediate_size": 64},
            head_dim=64,
            num_local_experts=8,
            num_experts_per_tok=2,
        )


EIGHT = ExpertsModel(layers=4, seed=21)  # 128 KiB a block: 16 in a slab
OTHER = ExpertsModel(layers=3, seed=22)  # 96 KiB a block: 21 in a slab

_EACH_ITS_EXPERTS = {"enable_expert_parallel": True}


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class Experts(VllmRanksAlone):
    """Without FineServe."""

    MODEL = EIGHT

    def test_tokens_are_those_of_transformers(self) -> None:
        for runner, parallel in (
            (2, {}),
            (1, {"data_parallel_size": 2, **_EACH_ITS_EXPERTS}),
            (2, {"data_parallel_size": 2}),
            (2, {"tensor_parallel_size": 2, **_EACH_ITS_EXPERTS}),
        ):
            with self.subTest(runner=runner, **parallel):
                ranks = 2 if parallel else 1
                self.check_start(self.start(ranks, runner, **parallel), ranks)

    def test_experts_of_another_rank_left_out_are_noticed(self) -> None:
        engine = self.start(
            2,
            data_parallel_size=2,
            **_EACH_ITS_EXPERTS,
            environment=broken("all-reduce"),
        )
        engine.answer()
        self.assertGreater(self.serve(engine, seed=2), 0)


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class TwoModels(DataParallelRanks):
    """Both have a rank on each GPU, in opposite orders: a rank that waits for
    slabs while the other one waits for its experts would stop both models."""

    MODELS = [EIGHT, OTHER]
    PARALLEL = [
        one | _EACH_ITS_EXPERTS for one in DataParallelRanks.PARALLEL
    ]

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.trade_until_a_rank_is_killed()


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class IdleRank(Ranks):
    """Only the first rank gets requests. The second one runs idle batches,
    while a model without experts on its GPU takes its slabs."""

    MODELS = [EIGHT, SMALL]
    ON = [[0, 1], [1]]
    PARALLEL = [
        {
            "data_parallel_size": 2,
            "distributed_executor_backend": "uni",
            **_EACH_ITS_EXPERTS,
        },
        {},
    ]

    def serve(self, runner: int, environment: dict[str, str]) -> dict[str, Any]:
        """Returns the figures of the rank without requests."""
        self.RUNNERS = [runner, 2]
        self.start_all(environment)
        for _ in range(5):
            self.finish(0, self.ask(0, 32))  # both ranks
            prompts = self.ask(0, 64, rank=0)
            while not self.engines[0].has_answered():
                self.finish(1, self.ask(1, self.SHORT))
            self.finish(0, prompts)
            idle: dict[str, Any] = self.reports()[1]
            if self.has_given(idle):
                break
        return idle

    def has_given(self, idle: dict[str, Any]) -> bool:
        return idle["slabs_returned"] > 5 and idle["idle_batches"] > 50

    def test_an_idle_rank_writes_nothing_by_the_first_runner(self) -> None:
        self.check_idle_rank(runner=1)

    def test_an_idle_rank_writes_nothing_by_the_second_runner(self) -> None:
        self.check_idle_rank(runner=2)

    def check_idle_rank(self, runner: int) -> None:
        idle = self.serve(runner, {})
        self.assertTrue(self.has_given(idle), idle)
        self.check_all()

    def test_an_idle_batch_that_writes_is_noticed(self) -> None:
        self.assertGreater(
            self.serve(2, broken("idle batch"))["stray_writes"], 0
        )


if __name__ == "__main__":
    unittest.main()
