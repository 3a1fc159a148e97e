"""Stock vLLM's own GPU worker on the emulated device gives the tokens that
transformers gives on the CPU: alone, on a view of the pool, and while two
engines trade slabs.

On vLLM itself (label vllm). PyTorch's operators run on the host but on the
device's memory and in its streams' order (tools/lab/torch).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import (
    EngineEnded,
    Model,
    VllmEngine,
    VllmMachine,
    random_prompts,
)
import trading

LARGE = Model(layers=4, seed=1)  # 128 KiB a block: 16 in a slab
SMALL = Model(layers=3, seed=2)  # 96 KiB a block: 21 in a slab


class GpuWorkerTest(VllmMachine):
    def serve(
        self, engine: VllmEngine, model: Model, seed: int
    ) -> dict[str, Any]:
        """Generates 512 tokens; returns the number of wrong ones and the
        engine's figures."""
        prompts = random_prompts(seed, 16, (5, 100), shared=48)
        answer = engine.run("generate", prompts=prompts, max_tokens=[32] * 16)
        tokens = answer["tokens"]
        count = sum(map(len, tokens))
        wrong = self.reference(model).wrong(prompts, tokens)
        print(
            f"{count} tokens, {wrong} wrong, "
            f"{count / answer['seconds']:.0f} tokens/s"
        )
        self.assertEqual(count, 512)
        return {"wrong": wrong} | engine.run("stats")

    def serve_alone(
        self, model: Model, view: bool, runner: int, **arguments: Any
    ) -> None:
        engine = self.start_vllm(model, view=view, runner=runner, **arguments)
        print("start", engine.answer()["seconds"])
        report = self.serve(engine, model, seed=runner)
        print(report)
        self.check(report)
        engine.kill()
        if view:
            self.assertGreater(report["leased_slabs"], 0)


class Plain(GpuWorkerTest):
    def test_tokens_are_those_of_transformers(self) -> None:
        for runner in 1, 2:
            with self.subTest(runner=runner):
                self.serve_alone(LARGE, view=False, runner=runner)

    def test_a_stale_block_id_is_noticed(self) -> None:
        engine = self.start_vllm(
            LARGE, view=False, runner=1, environment=broken("stale block")
        )
        engine.answer()
        self.assertGreater(self.serve(engine, LARGE, seed=1)["wrong"], 0)


class OnAView(GpuWorkerTest):
    def test_tokens_are_those_of_transformers(self) -> None:
        self.start_daemon()
        for runner in 1, 2:
            with self.subTest(runner=runner):
                self.serve_alone(LARGE, view=True, runner=runner)


def broken(what: str) -> dict[str, str]:
    return {"HOST_DEVICE_BREAK": what}


class Trade(GpuWorkerTest, trading.Trade):
    MODELS = [LARGE, SMALL]
    RUNNERS = [1, 2]

    def start_one(
        self, i: int, environment: dict[str, str], **own: Any
    ) -> VllmEngine:
        return self.start_vllm(
            self.MODELS[i],
            view=True,
            runner=self.RUNNERS[i],
            environment=environment,
            **own,
        )


class TwoEngines(Trade):
    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.trade_until_the_first_is_killed()


class Controls(Trade):
    """Control tests: deliberate faults that the tests above must notice."""

    def test_a_step_that_no_fence_waits_for_is_noticed(self) -> None:
        self.start_all(broken("fence"))
        self.together_until(self.has_strayed, 64)
        self.assertTrue(self.has_strayed())

    def test_a_slab_returned_in_use_is_noticed(self) -> None:
        self.start_all(broken("undrained"))
        try:
            self.together(64)
        except EngineEnded as error:
            # Its own checks were first.
            self.assertIn("was leased twice", str(error))
            return
        self.assertGreater(sum(self.wrong), 0)
