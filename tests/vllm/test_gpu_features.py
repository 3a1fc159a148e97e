"""Features of stock vLLM besides plain decoding, on a view of the pool.

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import VllmEngine, random_prompts
from test_gpu_worker import LARGE, SMALL, Trade


class SmallPool(Trade):
    """Two engines whose requests do not all fit: one runs its steps one after
    the other, the other schedules ahead."""

    pool_slabs = 6
    MODELS = [LARGE, SMALL]
    ARGUMENTS = [
        {
            "async_scheduling": ahead,
            "max_num_batched_tokens": 128,
            "disable_log_stats": False,
        }
        for ahead in (False, True)
    ]

    def test_chunks_preemption_and_seeds_give_the_right_tokens(self) -> None:
        alone = [
            self.start_vllm(model, view=False, runner=runner)
            for model, runner in zip(self.MODELS, self.RUNNERS)
        ]
        self.start_all({}, self.ARGUMENTS)
        for engine in alone:
            engine.answer()
        for engine, on_view in zip(alone, self.engines):
            self.check_seeds(engine, on_view)
            engine.kill()
        self.check_preemption()

    def check_seeds(self, alone: VllmEngine, on_view: VllmEngine) -> None:
        prompts = random_prompts(5, 8, (20, 100))
        answers = []
        for seed in 7, 8:
            for engine in alone, on_view:
                engine.ask(
                    "generate",
                    prompts=prompts,
                    max_tokens=[24] * 8,
                    temperature=1,
                    seed=seed,
                )
            expected, found = (e.answer()["tokens"] for e in (alone, on_view))
            self.assertEqual(found, expected)
            answers.append(found)
        different = sum(
            a != b for pair in zip(*answers) for a, b in zip(*pair)
        )
        print(f"seeds: of {8 * 24} tokens {different} differ with the seed")
        self.assertGreater(different, 8 * 24 // 4)

    def check_preemption(self) -> None:
        prompts = [
            # All prompts are longer than a step, and half of them share a
            # beginning.
            random_prompts(20 + i, 14, (150, 300), shared=100)
            for i in range(2)
        ]
        for engine, its in zip(self.engines, prompts):
            engine.ask("generate", prompts=its, max_tokens=[64] * 14)
        for i, its in enumerate(prompts):
            self.finish(i, its)
        for ahead, engine, report in zip(
            (False, True), self.engines, self.reports()
        ):
            self.check(report)
            metrics = engine.run("metrics")
            print({
                name: metrics[name]
                for name in ("num_preemptions", "prefix_cache_hits")
            })
            self.assertEqual(report["async_scheduling"], ahead)
            self.assertGreater(metrics["num_preemptions"], 0)
            self.assertGreater(metrics["prefix_cache_hits"], 0)


class WithoutZeroing(Trade):
    """Control test of `dirty_parts`: the daemon's fills have no effect."""

    def start_daemon(self, *arguments: str) -> Any:
        whole = self.environment
        self.environment = whole | {"EMUCUDA_FILLS": "lose"}
        try:
            return super().start_daemon(*arguments)
        finally:
            self.environment = whole

    def test_a_slab_that_is_not_zero_is_noticed(self) -> None:
        self.start_daemon()
        engine = self.start_vllm(LARGE, view=True, runner=1)
        engine.answer()
        report = self.serve(engine, LARGE, seed=1)
        print(report)
        self.assertGreater(report["dirty_parts"], 0)
