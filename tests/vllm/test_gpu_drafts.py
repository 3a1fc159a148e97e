"""Speculative decoding by a model of its own, whose KV is in the same blocks
and is written behind each step.

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import Model, VllmEngine
from gpu_latent import PredictingModel
from gpu_variants import EagleHead
from test_gpu_trade import CALM, Trades
from test_gpu_worker import SMALL, broken

DRAFTERS = {
    "draft_model": Model(layers=1, seed=1, deviation=0.08),
    "eagle": EagleHead(layers=1, seed=3, deviation=0.08),
}


class Drafting(Trades):
    """The first engine's device is slow, so that slabs are asked back while
    drafters run."""

    RUNNERS = [2, 2]
    DELAY_US = ["300", "100"]

    def check_accepted(self, engine: VllmEngine) -> None:
        metrics = engine.run("metrics")
        drafted = metrics["spec_decode_num_draft_tokens"]
        accepted = metrics["spec_decode_num_accepted_tokens"]
        print(f"{accepted} of {drafted} drafted tokens accepted")
        self.assertGreater(drafted, accepted)


class WithADrafter(Drafting):
    """Two engines that draft three tokens per step."""

    MODELS = CALM

    def start_drafting(self, method: str, environment: dict[str, str]) -> None:
        own: dict[str, Any] = {
            "speculative_config": {
                "method": method,
                "model": DRAFTERS[method].make(self._models),
                "num_speculative_tokens": 3,
            },
            "disable_log_stats": False,
        }
        self.start_all(environment, [own, own])

    def check_drafts(self, method: str) -> None:
        self.start_drafting(method, {})
        self.in_turns_then_together(32)
        for engine, report in zip(self.engines, self.check_trade()):
            self.check_accepted(engine)
            self.assertTrue(report["async_scheduling"])

    def test_tokens_drafted_by_a_model_are_judged_rightly(self) -> None:
        self.check_drafts("draft_model")

    def test_tokens_drafted_by_an_eagle_are_judged_rightly(self) -> None:
        self.check_drafts("eagle")

    def test_a_drafter_that_no_fence_waits_for_is_noticed(self) -> None:
        self.start_drafting("draft_model", broken("drafter"))
        self.together_until(self.has_strayed, 48)
        self.assertTrue(self.has_strayed())


class Predicting(Drafting):
    """A model with a built-in drafter (MTP), beside one without."""

    MODELS = [PredictingModel(layers=2, seed=4, deviation=0.08), SMALL]

    def test_tokens_that_the_model_predicted_are_judged_rightly(self) -> None:
        own: dict[str, Any] = {
            "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
            "disable_log_stats": False,
        }
        self.start_all({}, [own, {}])
        self.in_turns_then_together(32)
        self.check_trade()
        self.check_accepted(self.engines[0])
