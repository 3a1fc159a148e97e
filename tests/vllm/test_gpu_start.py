"""Stock vLLM starts beside others as it does alone, with no flag set; or it
says in one line why it cannot.

On vLLM itself (label vllm), as test_gpu_worker.py.
"""

from __future__ import annotations

import unittest

from gpu_machine import EngineEnded, Model, VllmEngine, VllmMachine
from gpu_machine import random_prompts

FIRST = Model(layers=4, seed=1)
SECOND = Model(layers=3, seed=2)
HEAVY = Model(layers=160, seed=3)  # 150 MiB of weights


class CrowdedTest(VllmMachine):
    """A small device, on which one engine holds the whole pool and uses it."""

    device_memory = 192 << 20

    def generate(
        self, engine: VllmEngine, model: Model, seed: int, requests: int
    ) -> list[list[int]]:
        """Sends a batch; finish() judges the answer."""
        prompts = random_prompts(seed, requests, (100, 250))
        engine.ask("generate", prompts=prompts, max_tokens=[80] * requests)
        return prompts

    def finish(
        self, engine: VllmEngine, model: Model, prompts: list[list[int]]
    ) -> None:
        tokens = engine.answer()["tokens"]
        self.assertEqual(self.reference(model).wrong(prompts, tokens), 0)
        self.assertEqual(sum(map(len, tokens)), 80 * len(prompts))

    def test_starts_beside_a_busy_engine(self) -> None:
        self.start_daemon()
        first = self.start_vllm(FIRST, view=True, runner=1)
        first.answer()
        asked = self.generate(first, FIRST, seed=1, requests=200)
        self.assertTrue(
            self.eventually(lambda: self.slabs_held().get(1) == self.pool_slabs)
        )

        second = self.start_vllm(SECOND, view=True, runner=1)
        second.answer()
        self.assertFalse(first.has_answered(), "it must still be busy")
        self.finish(
            second, SECOND, self.generate(second, SECOND, seed=2, requests=8)
        )

        third = self.start_vllm(
            HEAVY, view=True, runner=1, max_model_len=64
        )
        with self.assertRaises(EngineEnded) as ended:
            third.answer()
        said = third.stderr()
        lines = [line for line in said.splitlines() if "are free" in line]
        print(*lines, sep="\n")
        self.assertTrue(lines, said[-2000:])
        self.assertRegex(lines[0], "the pool has 32 MiB .* run fewer engines")
        self.assertIn("out of memory", str(ended.exception))
        self.finish(first, FIRST, asked)

    def test_a_share_of_the_device_that_holds_no_request_is_refused(
        self,
    ) -> None:
        self.start_daemon()
        engine = self.start_vllm(
            FIRST, view=True, runner=1, gpu_memory_utilization=0.01
        )
        with self.assertRaises(EngineEnded):
            engine.answer()
        self.assertEqual(
            engine.stderr().splitlines()[-1],
            "FineServe: --gpu-memory-utilization 0.01 leaves room for 0 blocks "
            "of KV cache, but the longest request takes 32: raise it or lower "
            "--max-model-len",
        )

    def test_a_length_that_vllm_chooses_fits_under_the_cap(self) -> None:
        self.start_daemon()
        engine = self.start_vllm(
            FIRST,
            view=True,
            runner=1,
            max_model_len=-1,
            num_gpu_blocks_override=20,
        )
        engine.answer()
        self.assertIn("is lowered from 512 to 320", engine.stderr())
        prompts = random_prompts(3, 4, (230, 240))
        engine.ask("generate", prompts=prompts, max_tokens=[80] * 4)
        self.finish(engine, FIRST, prompts)
