"""Stock vLLM over several emulated GPUs gives the tokens that transformers
gives on the CPU: tensor parallel, pipeline parallel.

On vLLM itself (label vllm). Each worker is a process with a device of its own;
collectives are those of the emulated device's libnccl.so.2, in the streams'
order (design note 0026).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import REAL_GPU, Model, VllmEngine, VllmMachine
from several_gpus import RanksAlone

# Four heads: one for each of four ranks. The ranks' partial sums are added in
# single precision in rank order; the resulting difference of the logits is
# within gpu_machine.TOLERANCE, as with one rank.
MODEL = Model(layers=4, seed=1)


class VllmRanksAlone(RanksAlone, VllmMachine):
    """Stock vLLM with a rank on each GPU, without FineServe."""

    device_memory = 512 << 20

    def start(self, ranks: int, runner: int = 2, **arguments: Any) -> VllmEngine:
        self.environment["EMUCUDA_DEVICES"] = str(ranks)
        return self.start_vllm(
            self.MODEL, view=False, runner=runner, **arguments
        )

    def check_start(self, engine: VllmEngine, ranks: int) -> None:
        print("start", engine.answer()["seconds"], flush=True)
        self.check_ranks(engine, ranks)
        engine.kill()


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class Parallel(VllmRanksAlone):
    MODEL = MODEL

    def test_tensor_parallel(self) -> None:
        for ranks, runner in (1, 2), (2, 1), (2, 2), (4, 2):
            with self.subTest(ranks=ranks, runner=runner):
                self.check_start(
                    self.start(ranks, runner, tensor_parallel_size=ranks),
                    ranks,
                )

    # Does not run model runner 1, which overwrites its inputs: note 0026,
    # Limits.
    def test_pipeline_parallel(self) -> None:
        self.check_start(self.start(2, runner=2, pipeline_parallel_size=2), 2)

    def test_tensor_and_pipeline_parallel(self) -> None:
        engine = self.start(
            4, tensor_parallel_size=2, pipeline_parallel_size=2
        )
        self.check_start(engine, 4)

    def test_a_sum_left_out_is_noticed(self) -> None:
        engine = self.start(
            2,
            tensor_parallel_size=2,
            environment={"HOST_DEVICE_BREAK": "all-reduce"},
        )
        engine.answer()
        self.assertGreater(self.serve(engine, seed=2), 0)
