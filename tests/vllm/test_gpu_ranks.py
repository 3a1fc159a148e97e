"""Engines on several GPUs, on views: each worker has a view of its own GPU's pool
and the block ids are the same on all of them (design note 0028).

As test_gpu_trade.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import os
import unittest
from typing import Any

from gpu_machine import REAL_GPU, Model, kill_9
from test_gpu_trade import Trades
from test_gpu_worker import LARGE, SMALL

# Four heads: of two ranks each has two, so that a block takes half on each GPU,
# and of four each has one.
WIDE = Model(layers=4, seed=11)


class Ranks(Trades):
    """`SLABS`: of the pool of each GPU. `ON`: the GPUs of each engine."""

    SLABS = [16, 12]
    ON: list[list[int]] = []
    PARALLEL: list[dict[str, Any]] = []
    device_memory = 512 << 20

    def start_daemon(self, *arguments: str, **more: Any) -> Any:
        self.environment["EMUCUDA_DEVICES"] = str(len(self.SLABS))
        self.daemons = []
        self.gpus: list[str] = []  # their names, in the order of the devices
        folder = self.environment["FINESERVE_RUNTIME_DIR"]
        for device, slabs in enumerate(self.SLABS):
            daemon = super().start_daemon(
                *arguments, device=device, slabs=slabs
            )
            self.daemons.append(daemon)
            names = [f[:-5] for f in os.listdir(folder) if f.endswith(".sock")]
            (name,) = set(names) - set(self.gpus)
            self.gpus.append(name)
        return self.daemons[0]

    def start_vllm(self, model: Model, **arguments: Any) -> Any:
        i = self.MODELS.index(model)
        environment = arguments.pop("environment", None) or {}
        visible = ",".join(map(str, self.ON[i]))
        return super().start_vllm(
            model,
            environment=environment | {"CUDA_VISIBLE_DEVICES": visible},
            **(arguments | self.PARALLEL[i]),
        )

    def of_gpu(self, gpu: str, *arguments: str) -> Any:
        return self.fsctl("--gpu", gpu, *arguments)

    def returned(self) -> list[int]:
        """Slabs that came back, of each GPU."""
        return [
            self.of_gpu(gpu, "slabs")["counters"]["slabs_returned"]
            for gpu in self.gpus
        ]

    def slabs_held(self) -> dict[int, int]:
        held: dict[int, int] = {}
        for gpu in self.gpus:
            for engine in self.of_gpu(gpu, "engines")["engines"]:
                view = engine["view"]
                if view is None:  # its process has ended
                    continue
                print(gpu[-4:], engine["name"], view["leased"],
                      view["spans_gpus"], flush=True)
                held[len(held) + 1] = view["leased"]
        return held

    def reports(self) -> list[dict[str, Any]]:
        """One of each worker."""
        found = [
            {"wrong": self.wrong[i], "count": self.counts[i]} | rank
            for i, engine in enumerate(self.engines)
            for rank in engine.run("stats_of_all")
        ]
        # The daemons here count the returned slabs.
        for rank in found:
            print({k: v for k, v in rank.items() if k != "slabs_returned"})
        print({
            "pid": self.daemons[0].pid,
            "slabs_returned": sum(self.returned()),
        })
        return found

    def trade_until(self, returned: int) -> None:
        """Until so many slabs have come back on each GPU."""
        for _ in range(6):
            self.in_turns_then_together(32)
            print("returned", self.returned(), flush=True)
            if min(self.returned()) > returned:
                break
        self.assertGreater(min(self.returned()), returned)
        self.check_all()


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
        self._kill_a_worker()

    def _kill_a_worker(self) -> None:
        """The engine ends, and what it held on both GPUs goes back; the other
        notices nothing else."""
        pids = [rank["pid"] for rank in self.engines[0].run("stats_of_all")]
        prompts = self.ask(1, 32)
        kill_9(pids[1])
        self.finish(1, prompts)
        self.assertEqual(self.wrong[1], 0)
        self.assertTrue(
            self.eventually(
                lambda: not self.of_gpu(self.gpus[0], "engines")["engines"]
                and len(self.of_gpu(self.gpus[1], "engines")["engines"]) == 1
            )
        )
        self.assertEqual(
            self.of_gpu(self.gpus[0], "slabs")["states"]["free"]["slabs"],
            self.SLABS[0],
        )


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class TwoOnTheSameGpus(Ranks):
    """In pipelines and in tensor parallel, in opposite orders of the GPUs."""

    MODELS = [WIDE, LARGE]
    ON = [[0, 1], [1, 0]]
    PARALLEL = [{"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2}]

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({})
        self.trade_until(returned=12)


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class FourGpus(Ranks):
    """An engine on four GPUs with pools of four sizes, and one on the third
    of them: it may have at most what the smallest pool offers."""

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
