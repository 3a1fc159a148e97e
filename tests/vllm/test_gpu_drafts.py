"""Speculative decoding by a model of its own, whose KV lies in the same blocks
and is written behind each step.

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import Model
from test_gpu_trade import CALM, Trades
from test_gpu_worker import broken

DRAFT = Model(layers=1, seed=1, deviation=0.08)
DRAFTED = 3  # tokens a step


class Drafting(Trades):
    """Two engines that draft. The first one's device is slow, so that drafters
    run when slabs are asked back."""

    MODELS = CALM
    RUNNERS = [2, 2]
    DELAY_US = ["300", "100"]

    def start_drafting(self, environment: dict[str, str]) -> None:
        own: dict[str, Any] = {
            "speculative_config": {
                "method": "draft_model",
                "model": DRAFT.make(self._models),
                "num_speculative_tokens": DRAFTED,
            },
            "disable_log_stats": False,
        }
        self.start_all(environment, [own, own])

    def test_every_token_is_right_and_no_drafter_strays(self) -> None:
        self.start_drafting({})
        self.in_turns_then_together(32)
        for engine, report in zip(self.engines, self.check_trade()):
            metrics = engine.run("metrics")
            drafted = metrics["spec_decode_num_draft_tokens"]
            print(f"{metrics['spec_decode_num_accepted_tokens']} of {drafted}")
            self.assertGreater(drafted, 0)
            self.assertTrue(report["async_scheduling"])

    def test_a_drafter_that_nobody_waits_for_is_noticed(self) -> None:
        self.start_drafting(broken("drafter"))
        self.together_until(self._has_strayed, 48)
        self.assertTrue(self._has_strayed())

    def _has_strayed(self) -> bool:
        return any(report["stray_writes"] for report in self.reports())


if __name__ == "__main__":
    unittest.main()
