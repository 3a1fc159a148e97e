"""FP8 KV and latents (MLA) on a view of the pool, trading with dense KV; also
layers that attend to a window, embeddings and LoRA adapters on a view (label
sglang)."""

from __future__ import annotations

import dataclasses
import functools
import unittest
from typing import Any

from sglang_machine import (  # sets the path, too
    SglangMachine,
    SglangTrade,
    WideModel,
)
from gpu_latent import LatentModel
from gpu_variants import ADAPTER_RANK, AdaptedReference, make_adapter
from tiny_models import Model, Reference, random_prompts
import rounded_reference

FP8 = {"kv_cache_dtype": "fp8_e4m3"}
FP8_MODEL = WideModel(seed=31, heads=32)  # 1024 tokens a slab
LATENT = LatentModel(layers=4, seed=21)  # 910 tokens a slab, or 909
DENSE = WideModel(seed=2, heads=12)  # 672 tokens a slab


class Fp8Reference(rounded_reference.Fp8Reference):
    """SGLang has no scales unless a separate file gives them."""

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
    device_memory = 2 << 30  # attention reads KV as FP32

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
        # A layer has one plane, with 576 elements per token.
        self.assertIn((4, 576 * 4), formats)
        self.trade()


class LatentsWithoutDraining(Trades):
    MODELS = [LATENT, DENSE]

    def test_a_slab_returned_in_use_is_noticed(self) -> None:
        self.notice_undrained_slabs()


class Fp8Latents(SglangMachine):
    def test_tokens_are_those_of_rounded_latents(self) -> None:
        """Tokens are right with 576 bytes per token and layer, for pages of one
        token and of 64."""
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


@dataclasses.dataclass(frozen=True)
class WindowModel(WideModel):
    """Gemma 3: the first layer attends to a window, the second one to
    everything. SGLang keeps all tokens of both layers."""

    WINDOW = 40

    def configuration(self) -> Any:
        from transformers import Gemma3TextConfig

        return Gemma3TextConfig(
            **self.sizes(),
            head_dim=64,
            query_pre_attn_scalar=64,
            sliding_window=self.WINDOW,
            layer_types=["sliding_attention", "full_attention"],
        )


class Alone(SglangMachine):
    def test_a_window_hides_what_is_before_it(self) -> None:
        model = WindowModel(seed=41, heads=4)
        self.start_daemon()
        engine = self.start_sglang(model, view=True)
        print("start", engine.answer()["seconds"])
        prompts = random_prompts(3, 16, (5, 200), shared=48)
        for _ in range(2):  # the second time from the radix cache
            answer = engine.run(
                "generate", prompts=prompts, max_tokens=[32] * 16
            )
            wrong = self.reference(model).wrong(prompts, answer["tokens"])
            report = engine.run("stats") | {"wrong": wrong}
            print(f"{16 * 32} tokens, {wrong} wrong", report, flush=True)
            self.check(report)

    def test_embeddings_are_those_of_transformers(self) -> None:
        import torch
        from transformers import AutoModel

        model = WideModel(seed=51)
        self.start_daemon()
        engine = self.start_sglang(model, view=True, is_embedding=True)
        print("start", engine.answer()["seconds"])
        reference = AutoModel.from_pretrained(
            model.make(self._models), dtype=torch.float32
        )
        # Some are read in chunks.
        prompts = random_prompts(52, 24, (5, 400), shared=48)
        for _ in range(2):  # the second time from the radix cache
            embeddings = torch.tensor(engine.run("embed", prompts=prompts))
            for prompt, embedding in zip(prompts, embeddings):
                with torch.no_grad():
                    states = reference(torch.tensor([prompt]))
                last = states.last_hidden_state[0, -1]
                torch.testing.assert_close(
                    embedding,
                    torch.nn.functional.normalize(last, dim=0),
                    rtol=0,
                    atol=1e-4,
                )
        report = engine.run("stats")
        print(f"{len(prompts)} embeddings, twice", report, flush=True)
        self.check(report | {"wrong": 0})
        self.assertTrue(engine.run("flush"))

    def test_an_adapter_s_keys_are_not_the_model_s(self) -> None:
        model = Model(layers=2, seed=61)
        adapter = make_adapter(self._models, model, seed=6)
        self.start_daemon()
        engine = self.start_sglang(
            model,
            view=True,
            enable_lora=True,
            lora_paths=[adapter],
            lora_backend="torch_native",
            max_loras_per_batch=2,
            max_lora_rank=ADAPTER_RANK,
        )
        print("start", engine.answer()["seconds"])
        # Each prompt comes with and without an adapter, one after the other:
        # what one request caches must not serve the other.
        prompts = [p for p in random_prompts(7, 6, (30, 60)) for _ in "ab"]
        path = model.make(self._models)
        plain, adapted = Reference(path), AdaptedReference(path)
        adapted.merge(adapter)
        for _ in range(2):
            tokens = engine.run(
                "generate",
                prompts=prompts,
                max_tokens=[16] * 12,
                adapters=[None, adapter] * 6,
            )["tokens"]
            self.assertEqual(plain.wrong(prompts[::2], tokens[::2]), 0)
            self.assertEqual(adapted.wrong(prompts[1::2], tokens[1::2]), 0)
            # The adapter matters.
            self.assertGreater(plain.wrong(prompts[1::2], tokens[1::2]), 6)
        report = engine.run("stats")
        print(report, flush=True)
        self.assertEqual(report["stray_writes"], 0)
        self.assertEqual(report["dirty_parts"], 0)
        self.assertEqual(report["skipped_kernels"], 0)


