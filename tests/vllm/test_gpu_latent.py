"""Latent attention (MLA) on a view of the pool: a block whose bytes are no power
of two.

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import math
import re
import unittest

from gpu_latent import LatentModel
from gpu_machine import random_prompts
from rounded_reference import Fp8LatentReference
from test_gpu_trade import Trades
from test_gpu_worker import SMALL, GpuWorkerTest, broken

LATENT = LatentModel(layers=4, seed=21)  # 144 KiB a block: 13 or 14 in a slab


class Alone(GpuWorkerTest):
    def test_tokens_are_those_of_transformers(self) -> None:
        self.start_daemon()
        self.serve_alone(LATENT, view=False, runner=2)
        for runner in 1, 2:
            with self.subTest(runner=runner):
                self.serve_alone(LATENT, view=True, runner=runner)

    def test_fp8_latents_give_the_tokens_of_rounded_latents(self) -> None:
        """A token has 576 bytes per layer. Runs with and without a view."""
        self.environment["EMUCUDA_COMPUTE_CAPABILITY"] = "89"  # has FP8
        self.start_daemon()
        engines = [
            # Each step must hold whole prompts.
            self.start_vllm(
                LATENT,
                view=view,
                kv_cache_dtype="fp8",
                max_num_batched_tokens=1024,
            )
            for view in (False, True)
        ]
        prompts = random_prompts(22, 8, (20, 100))
        found = []
        for engine in engines:
            print("start", engine.answer()["seconds"])
            answer = engine.run(
                "generate", prompts=prompts, max_tokens=[24] * 8
            )
            found.append(answer["tokens"])
        rounded = Fp8LatentReference(LATENT.make(self._models))
        for tokens in found:
            self.assertEqual(rounded.wrong(prompts, tokens), 0)
        self.assertLessEqual(rounded.near_ties, 2)
        different = sum(a != b for a, b in zip(*found))
        print(f"{different} of 8 answers differ, {rounded.near_ties} near ties")
        (engine,) = self.fsctl("engines")["engines"]
        self.assertEqual(
            engine["view"]["format"]["page_bytes"], LATENT.layers * 16 * 576
        )
        self.check(engines[1].run("stats") | {"wrong": 0})
        # The rounding must matter: some tokens differ from those of unrounded
        # KV.
        wrong = self.reference(LATENT).wrong(prompts, found[0])
        print(f"{wrong} of {8 * 24} tokens differ from unrounded KV's")
        self.assertGreater(wrong, 0)

    def test_a_stale_block_id_is_noticed(self) -> None:
        engine = self.start_vllm(
            LATENT, view=False, environment=broken("stale block")
        )
        engine.answer()
        self.assertGreater(self.serve(engine, LATENT, seed=1)["wrong"], 0)


class WithADenseOne(Trades):
    MODELS = [LATENT, SMALL]

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({})
        self.check_that_its_loss_is_told()
        self.in_turns_then_together(48)
        self.check_trade()

    def check_that_its_loss_is_told(self) -> None:
        """Checks the loss in the engine's own log line and in fsctl's
        report."""
        (view,) = [
            engine["view"]
            for engine in self.fsctl("engines")["engines"]
            if engine["view"]["format"]["page_bytes"] == LATENT.block_bytes
        ]
        said = re.search(r"([\d.]+) % of the slabs", self.engines[0].stderr())
        assert said is not None
        print("lost", said[1], "% and, by fsctl,", view["straddle_waste"])
        # On average, a slab of S bytes holds (S - P + gcd(S, P)) / P blocks of
        # P bytes.
        page, slab = LATENT.block_bytes, self.slab_bytes
        lost = (page - math.gcd(page, slab)) / slab
        self.assertAlmostEqual(view["straddle_waste"], lost)
        # Sixteen slabs may hold a block or two less than that average.
        self.assertAlmostEqual(float(said[1]) / 100, lost, delta=0.01)
