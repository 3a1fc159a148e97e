"""Data-parallel ranks of stock vLLM: each is an engine of its own, with a view of
its GPU's pool and block ids of its own (design note 0028).

As test_gpu_ranks.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from collections.abc import Callable

from gpu_machine import REAL_GPU, EngineEnded, kill_9
from test_gpu_ranks import Ranks
from test_gpu_worker import LARGE, SMALL


class DataParallelRanks(Ranks):
    """Two models with two ranks each on the same two GPUs. vLLM gives each rank
    a separate GPU and, by default, a worker in a separate process."""

    ON = [[0, 1], [1, 0]]
    PARALLEL = [
        {"data_parallel_size": 2},
        {"data_parallel_size": 2, "distributed_executor_backend": "uni"},
    ]

    def trade_until_a_rank_is_killed(self) -> None:
        self.start_all({})
        self.trade_until(returned=12)
        schedulers = [self.scheduler_of_first_model(gpu) for gpu in self.gpus]
        self.assertEqual(len(set(schedulers)), 2)
        for rank in self.engines[1].run("stats_of_all"):
            self.assertGreater(rank["slabs_returned"], 0)
        self.kill_a_rank(schedulers[1])

    def scheduler_of_first_model(self, gpu: str) -> int:
        """Returns the EngineCore of the first model whose worker is on that
        GPU. Each rank of the second model is one process."""
        views = [e["view"] for e in self.of_gpu(gpu, "engines")["engines"]]
        self.assertEqual(len(views), 2)
        (pid,) = (v["spans_gpus"]["pid"] for v in views if v["spans_gpus"])
        return pid

    def kill_a_rank(self, pid: int) -> None:
        """Kills one rank. Its vLLM ends with it, and the slabs of both ranks
        are freed; the other model's ranks are not disturbed."""
        prompts = self.ask(1, 32)
        kill_9(pid)
        self.finish(1, prompts)
        self.assertEqual(self.wrong[1], 0)
        self.expect(
            lambda gpu: len(self.of_gpu(gpu, "engines")["engines"]), [1, 1]
        )
        self.engines[1].kill()
        self.expect(
            lambda gpu: self.of_gpu(gpu, "slabs")["states"]["free"]["slabs"],
            self.SLABS,
        )

    def expect(self, of_gpu: Callable[[str], int], values: list[int]) -> None:
        self.assertTrue(
            self.eventually(
                lambda: [of_gpu(gpu) for gpu in self.gpus] == values
            ),
            [of_gpu(gpu) for gpu in self.gpus],
        )


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class DataParallel(DataParallelRanks):
    MODELS = [LARGE, SMALL]

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.trade_until_a_rank_is_killed()

    def test_two_ranks_on_one_gpu_are_refused(self) -> None:
        """vLLM itself refuses them; run a separate engine for each instead."""
        self.SLABS = [16]
        self.ON = [[0], [0]]
        self.start_daemon()
        engine = self.start_vllm(LARGE, view=True)
        with self.assertRaises(EngineEnded):
            engine.answer()
        self.assertIn("out of bounds for 1 devices", engine.stderr())
