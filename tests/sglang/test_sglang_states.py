"""State-space layers, whose states are the engine's own memory, beside
attention on a view of the pool (label sglang)."""

from __future__ import annotations

import dataclasses
import unittest
from typing import Any

from sglang_machine import (  # sets the path, too
    EngineProcess,
    SglangMachine,
    SglangTrade,
    WideModel,
)
from tiny_models import random_prompts

# By itself SGLang rounds them.
EXACT = {"SGLANG_MAMBA_CONV_DTYPE": "float32"}


@dataclasses.dataclass(frozen=True)
class StatesModel(WideModel):
    """LFM 2: every second layer keeps a state of two tokens for a request."""

    layers: int = 4

    def configuration(self) -> Any:
        from transformers import Lfm2Config

        return Lfm2Config(
            **self.sizes(),
            head_dim=64,
            conv_L_cache=3,
            block_auto_adjust_ff_dim=False,
            layer_types=["conv", "full_attention"] * (self.layers // 2),
        )


class Engines(SglangTrade):
    """For such a model, SGLang has either a radix cache or steps that run ahead
    of their results. The first engine runs ahead, with pages of 16 tokens."""

    MODELS = [StatesModel(seed=81), StatesModel(seed=82, heads=12)]
    pool_slabs = 8
    HELD_IN_TURN = 4
    # SGLang reads the places of states before it reads a prompt.
    STEPS_AHEAD = 0

    def start_one(
        self, i: int, environment: dict[str, str], **own: Any
    ) -> EngineProcess:
        kinds = (
            {"page_size": 16, "disable_radix_cache": True},
            {"page_size": 1},
        )
        return self.start_sglang(
            self.MODELS[i],
            view=True,
            environment=environment | EXACT,
            **kinds[i],
            **own,
        )


class Trades(Engines):
    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.trade_until_the_first_is_killed()


class WithoutDraining(Engines):
    def test_a_slab_returned_in_use_is_noticed(self) -> None:
        self.notice_undrained_slabs()


class Alone(SglangMachine):
    STEPS_AHEAD = 0

    def test_a_cached_prefix_has_its_state(self) -> None:
        model = StatesModel(seed=83, heads=4)
        self.start_daemon()
        engine = self.start_sglang(model, view=True, environment=EXACT)
        print("start", engine.answer()["seconds"])
        prompts = random_prompts(3, 16, (5, 400), shared=48)
        for _ in range(2):
            answer = engine.run(
                "generate", prompts=prompts, max_tokens=[32] * 16
            )
            wrong = self.reference(model).wrong(prompts, answer["tokens"])
            report = engine.run("stats") | {"wrong": wrong}
            print(f"{16 * 32} tokens, {wrong} wrong", report, flush=True)
            self.check(report)
        self.assertGreater(answer["cached"], 0)


if __name__ == "__main__":
    unittest.main()
