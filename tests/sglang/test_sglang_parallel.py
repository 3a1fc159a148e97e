"""Stock SGLang at tensor parallel 2 on emulated GPUs gives the tokens that
transformers gives on the CPU, without FineServe (label sglang).

Each rank is a scheduler's process with a device of its own; collectives are
those of the emulated device's libnccl.so.2 (design note 0026).
"""

from __future__ import annotations

import unittest

from sglang_machine import EngineProcess, SglangMachine, WideModel
from tiny_models import random_prompts

MODEL = WideModel()
RANKS = 2
PROMPTS, TOKENS = 16, 16


class Parallel(SglangMachine):
    shim = False

    def start(self, **environment: str) -> EngineProcess:
        self.environment["EMUCUDA_DEVICES"] = str(RANKS)
        engine = self.start_sglang(
            MODEL,
            view=False,
            environment=environment,
            tp_size=RANKS,
        )
        print("start", engine.answer()["seconds"], flush=True)
        return engine

    def serve(self, engine: EngineProcess) -> int:
        """Generates 256 tokens; returns how many of them are wrong."""
        prompts = random_prompts(RANKS, PROMPTS, (5, 100), shared=48)
        answer = engine.run(
            "generate", prompts=prompts, max_tokens=[TOKENS] * PROMPTS
        )
        tokens = answer["tokens"]
        count = sum(map(len, tokens))
        wrong = self.reference(MODEL).wrong(prompts, tokens)
        print(
            f"{count} tokens, {wrong} wrong, "
            f"{count / answer['seconds']:.0f} tokens/s",
            flush=True,
        )
        self.assertEqual(count, PROMPTS * TOKENS)
        return wrong

    def test_tokens_are_those_of_transformers(self) -> None:
        engine = self.start()
        self.assertEqual(self.serve(engine), 0)
        stats = engine.run("stats_of_all")
        print(*stats, sep="\n", flush=True)
        self.assertEqual(len({rank["pid"] for rank in stats}), RANKS)
        self.assertEqual(
            {rank["device"] for rank in stats}, set(range(RANKS))
        )
        for rank in stats:
            self.assertTrue(rank["overlap"])
            self.assertEqual(rank["skipped_kernels"], 0)
            waited = sum(rank["waited"].values())
            self.assertGreater(rank["enqueued"], self.STEPS_AHEAD * waited)

    def test_a_sum_left_out_is_noticed(self) -> None:
        engine = self.start(HOST_DEVICE_BREAK="all-reduce")
        self.assertGreater(self.serve(engine), 0)
