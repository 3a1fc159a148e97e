"""KV in FP8 and latents (MLA) on a view of the pool, trading with dense KV (label
sglang)."""

from __future__ import annotations

import functools
from typing import Any

from sglang_machine import (  # sets the path, too
    EngineEnded,
    SglangMachine,
    SglangTrade,
    WideModel,
)
from gpu_latent import LatentModel
from tiny_models import Model, Reference, random_prompts
import rounded_reference

FP8 = {"kv_cache_dtype": "fp8_e4m3"}
FP8_MODEL = WideModel(seed=31, heads=32)  # 1024 tokens a slab
LATENT = LatentModel(layers=4, seed=21)  # 910 tokens a slab, or 909
DENSE = WideModel(seed=2, heads=12)  # 672 tokens a slab


class Fp8Reference(rounded_reference.Fp8Reference):
    """SGLang has no scales but those of a file of their own."""

    scales = (1, 1)


class Trades(SglangTrade):
    pool_slabs = 8
    HELD_IN_TURN = 5
    FIRST: dict[str, Any] = {}  # arguments of the first engine

    def start_trading(self) -> None:
        self.start_all({}, [self.FIRST, {}])

    def trade(self) -> None:
        self.in_turns()
        self.together_until(self.has_traded, 48)
        self.assertTrue(self.has_traded())
        self.check_all()


class Fp8(Trades):
    MODELS = [FP8_MODEL, DENSE]
    FIRST = FP8

    @classmethod
    @functools.cache
    def reference(cls, model: Model) -> Reference:
        make = Fp8Reference if model is FP8_MODEL else Reference
        return make(model.make(cls._models))

    def setUp(self) -> None:
        super().setUp()
        # The first one that has FP8.
        self.environment["EMUCUDA_COMPUTE_CAPABILITY"] = "89"

    def test_slabs_move_and_tokens_are_those_of_rounded_kv(self) -> None:
        self.start_trading()
        self.trade()
        near_ties = self.reference(FP8_MODEL).near_ties
        print(f"{near_ties} near ties in {self.counts[0]} tokens", flush=True)
        self.assertLessEqual(near_ties, 2 + self.counts[0] / 1000)

    def test_the_rounding_matters(self) -> None:
        self.start_daemon()
        engine = self.start_sglang(FP8_MODEL, view=True, **FP8)
        engine.answer()
        prompts = random_prompts(5, 8, (20, 100))
        tokens = engine.run("generate", prompts=prompts, max_tokens=[24] * 8)[
            "tokens"
        ]
        self.assertEqual(self.reference(FP8_MODEL).wrong(prompts, tokens), 0)
        exact = Reference(FP8_MODEL.make(self._models))
        exact.tolerance = Fp8Reference.tolerance
        self.assertGreater(exact.wrong(prompts, tokens), 0)


class Latents(Trades):
    MODELS = [LATENT, DENSE]

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_trading()
        formats = [
            (view["format"]["planes"], view["format"]["page_bytes"])
            for view in (e["view"] for e in self.fsctl("engines")["engines"])
        ]
        # One plane a layer, of 576 elements a token.
        self.assertIn((4, 576 * 4), formats)
        self.trade()


class LatentsWithoutDraining(Trades):
    MODELS = [LATENT, DENSE]

    def test_a_slab_returned_in_use_is_noticed(self) -> None:
        self.start_all({"HOST_DEVICE_BREAK": "undrained"})
        self.ask(0, 64)  # its own books are wrong by now: it may not answer
        try:
            for _ in range(8):
                self.finish(1, self.ask(1, 24))
                if self.wrong[1]:
                    return
        except EngineEnded as error:
            # SGLang's own check was first, when it had nothing to do.
            self.assertIn("leak", str(error))
            return
        self.fail("no token was wrong")


class Fp8Latents(SglangMachine):
    def test_tokens_are_those_of_rounded_latents(self) -> None:
        """576 bytes a token and layer, with pages of one token and of 64."""
        self.environment["EMUCUDA_COMPUTE_CAPABILITY"] = "89"
        self.start_daemon()
        rounded = Fp8Reference(LATENT.make(self._models))
        for page in 1, 64:
            with self.subTest(page_size=page):
                engine = self.start_sglang(
                    LATENT, view=True, page_size=page, **FP8
                )
                print("start", engine.answer()["seconds"])
                prompts = random_prompts(page, 16, (5, 100), shared=64)
                answer = engine.run(
                    "generate", prompts=prompts, max_tokens=[24] * 16
                )
                wrong = rounded.wrong(prompts, answer["tokens"])
                report = engine.run("stats") | {"wrong": wrong}
                print(f"{16 * 24} tokens, {wrong} wrong", report, flush=True)
                self.check(report)
                engine.kill()
        self.assertLessEqual(rounded.near_ties, 2)
