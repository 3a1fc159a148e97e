"""Stock SGLang on the emulated device gives the tokens that transformers gives
on the CPU (label sglang)."""

from __future__ import annotations

import unittest

from sglang_machine import SglangMachine, WideModel
from tiny_models import random_prompts

MODEL = WideModel()


class Plain(SglangMachine):
    shim = False

    def test_tokens_are_those_of_transformers(self) -> None:
        engine = self.start_sglang(MODEL, view=False)
        print("start", engine.answer()["seconds"])
        prompts = random_prompts(1, 16, (5, 100), shared=48)
        answer = engine.run("generate", prompts=prompts, max_tokens=[32] * 16)
        tokens = answer["tokens"]
        self.assertEqual(sum(map(len, tokens)), 512)
        self.assertEqual(self.reference(MODEL).wrong(prompts, tokens), 0)
        stats = engine.run("stats")
        print(f"{512 / answer['seconds']:.0f} tokens/s", stats)
        self.assertEqual(stats["skipped_kernels"], 0)
        # Steps are in flight while the scheduler goes on.
        self.assertTrue(stats["overlap"])
        waited = sum(stats["waited"].values())
        self.assertGreater(stats["enqueued"], 20 * waited)
