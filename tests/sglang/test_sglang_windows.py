"""Layers of sliding windows with a separate pool, beside layers on a view of
the pool that attend to everything (label sglang)."""

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
from fineserve_sglang import support
from tiny_models import random_prompts

WINDOW = 40


@dataclasses.dataclass(frozen=True)
class WindowsModel(WideModel):
    """Gemma 4: every second layer attends to a window."""

    layers: int = 4

    def configuration(self) -> Any:
        from transformers import Gemma4TextConfig

        return Gemma4TextConfig(
            **self.sizes(),
            head_dim=64,
            global_head_dim=64,
            hidden_size_per_layer_input=0,
            sliding_window=WINDOW,
            # SGLang reads this value, but transformers does not.
            swa_num_key_value_heads=self.heads,
            layer_types=["sliding_attention", "full_attention"]
            * (self.layers // 2),
        )


# SGLang requires this backend for Gemma 4; the tests' own backend has taken its
# name.
BACKEND = {"attention_backend": "triton"}
# By default, SGLang frees what is behind a window 128 tokens at a time.
SOON = {"SGLANG_SWA_EVICTION_INTERVAL": "8"}


def setUpModule() -> None:
    if support.sglang_version() < (0, 5, 23):
        raise unittest.SkipTest("such a pool needs SGLang 0.5.23 on a view")


class Engines(SglangTrade):
    MODELS = [WindowsModel(seed=71), WindowsModel(seed=72, heads=12)]
    pool_slabs = 8
    HELD_IN_TURN = 4

    def start_one(
        self, i: int, environment: dict[str, str], **own: Any
    ) -> EngineProcess:
        return super().start_one(i, environment | SOON, **BACKEND, **own)


class Trades(Engines):
    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.trade_until_the_first_is_killed()


class WithoutDraining(Engines):
    """Compares each write with the daemon's table, because the tokens of such a
    model hardly depend on a few overwritten keys."""

    def start_one(
        self, i: int, environment: dict[str, str], **own: Any
    ) -> EngineProcess:
        broken = {"HOST_DEVICE_BREAK": "undrained"} if i == 0 else {}
        return super().start_one(i, environment | broken, **own)

    def test_a_slab_returned_in_use_is_noticed(self) -> None:
        self.start_all({})
        self.ask(0, 64)
        for _ in range(4):
            self.finish(1, self.ask(1, 24))
            # The engine ends when SGLang finds that pages are lost, so only its
            # stderr is read.
            if "a stray write" in self.engines[0].stderr():
                return
        self.fail("no stray write was seen")


class Alone(SglangMachine):
    device_memory = 2 << 30

    def test_a_window_hides_what_is_before_it(self) -> None:
        model = WindowsModel(seed=73, heads=4)
        self.start_daemon()
        engine = self.start_sglang(model, view=True, environment=SOON, **BACKEND)
        print("start", engine.answer()["seconds"])
        prompts = random_prompts(3, 16, (5, 400), shared=48)
        for _ in range(2):  # the second time from the radix cache
            answer = engine.run(
                "generate", prompts=prompts, max_tokens=[32] * 16
            )
            wrong = self.reference(model).wrong(prompts, answer["tokens"])
            report = engine.run("stats") | {"wrong": wrong}
            print(f"{16 * 32} tokens, {wrong} wrong", report, flush=True)
            print("cached", answer["cached"])
            self.check(report)


if __name__ == "__main__":
    unittest.main()
