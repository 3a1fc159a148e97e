"""Stock SGLang at tensor parallel 2, and in two stages of a pipeline, on emulated
GPUs gives the tokens that transformers gives on the CPU, without FineServe (label
sglang).

Each rank is a scheduler's process with a device of its own; collectives are
those of the emulated device's libnccl.so.2 (design note 0026).
"""

from __future__ import annotations

import unittest

from sglang_machine import (
    EngineProcess,
    SglangMachine,
    WideModel,
    environment_of_stages,
)
from several_gpus import RanksAlone

MODEL = WideModel()
RANKS = 2


class Parallel(RanksAlone, SglangMachine):
    MODEL = MODEL
    shim = False
    SIZES: dict[str, int] = {}

    def start(self, **environment: str) -> EngineProcess:
        self.environment["EMUCUDA_DEVICES"] = str(RANKS)
        engine = self.start_sglang(
            MODEL,
            view=False,
            environment=environment,
            **self.SIZES,
        )
        print("start", engine.answer()["seconds"], flush=True)
        return engine


class TensorParallel(Parallel):
    SIZES = {"tp_size": RANKS}

    def test_tokens_are_those_of_transformers(self) -> None:
        for rank in self.check_ranks(self.start(), RANKS):
            self.assertTrue(rank["overlap"])

    def test_a_sum_left_out_is_noticed(self) -> None:
        engine = self.start(HOST_DEVICE_BREAK="all-reduce")
        self.assertGreater(self.serve(engine, seed=RANKS), 0)


class Pipeline(Parallel):
    SIZES = {"pp_size": RANKS}

    def test_tokens_are_those_of_transformers(self) -> None:
        self.check_ranks(self.start(**environment_of_stages()), RANKS)
