"""Stock SGLang on a view of the pool gives the tokens that transformers gives
on the CPU: with pages of one token and of 16 (label sglang)."""

from __future__ import annotations

import unittest

from sglang_machine import EngineProcess, SglangMachine, WideModel
from tiny_models import random_prompts

MODEL = WideModel()
LONG = 90  # tokens of an answer


class OnAView(SglangMachine):
    def serve(self, **arguments: object) -> dict[str, object]:
        engine = self.start_sglang(MODEL, view=True, **arguments)
        print("start", engine.answer()["seconds"])
        self.check_admission(engine)
        prompts = random_prompts(1, 16, (5, 100), shared=48)
        for _ in range(2):  # the second time from the radix cache
            answer = engine.run(
                "generate", prompts=prompts, max_tokens=[32] * 16
            )
            tokens = answer["tokens"]
            self.assertEqual(sum(map(len, tokens)), 512)
            self.assertEqual(self.reference(MODEL).wrong(prompts, tokens), 0)
        self.assertGreater(answer["cached"], 400)
        stats = engine.run("stats")
        print(f"{512 / answer['seconds']:.0f} tokens/s", stats)
        self.assertTrue(stats["overlap"])
        self.assertEqual(stats["skipped_kernels"], 0)
        self.assertGreater(stats["writes"], 0)
        self.assertEqual(stats["stray_writes"], 0)
        self.assertEqual(stats["dirty_parts"], 0)
        self.assertEqual(stats["driver_calls_serving"], 0)
        self.assertGreater(stats["leased_slabs"], 0)
        self.assertTrue(engine.run("flush"))
        engine.kill()
        return stats

    def check_admission(self, engine: EngineProcess) -> None:
        """Sends more than a fresh engine has room for while its daemon is
        stopped. The rest is let in when slabs come, before the first ones
        end."""
        leased = engine.run("stats")["leased_slabs"]
        prompts = random_prompts(2, 24, (90, 90))
        tokens = engine.run(
            "generate_beside",
            process=self.daemon.pid,
            until=LONG // 10,
            prompts=prompts,
            tokens=LONG,
        )
        self.assertEqual(sum(map(len, tokens)), 24 * LONG)
        self.assertEqual(self.reference(MODEL).wrong(prompts, tokens), 0)
        stats = engine.run("stats")
        print(leased, stats["leased_slabs"], "slabs,", stats["steps"], "steps")
        self.assertGreater(stats["leased_slabs"], leased)
        self.assertLess(stats["steps"], 1.6 * LONG)

    def test_tokens_are_those_of_transformers(self) -> None:
        self.daemon = self.start_daemon()
        for page, allocator in (1, "Token"), (16, "Paged"):
            with self.subTest(page_size=page):
                stats = self.serve(page_size=page)
                self.assertEqual(
                    stats["allocator"], f"Leased{allocator}Allocator"
                )
