"""A stock SGLang and a stock vLLM trade slabs of one pool (label sglang).

Run by the Python of vLLM's environment, with $FINESERVE_SGLANG_PYTHON.
"""

from __future__ import annotations

import unittest
from typing import Any

from sglang_machine import EngineProcess, WideModel  # sets the path, too
from gpu_machine import VllmMachine, kill_9
from tiny_models import Model
from trading import Trade


class BesideVllm(Trade, VllmMachine):
    # As many tokens in a slab.
    MODELS = [WideModel(), Model(layers=8, seed=2)]

    def start_one(
        self, i: int, environment: dict[str, str], **arguments: Any
    ) -> EngineProcess:
        if i == 0:
            return super().start_one(i, environment, **arguments)
        return self.start_vllm(
            self.MODELS[i], view=True, runner=1, environment=environment
        )

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({})
        self.in_turns()
        self.together_until(self.has_traded, 64)
        self.assertTrue(self.has_traded())
        reports = self.reports()
        for report in reports:
            self.check(report)
        # The other one notices nothing but that it may have more.
        prompts = self.ask(1, 32)
        kill_9(reports[0]["pid"])
        self.finish(1, prompts)
        self.assertEqual(self.wrong[1], 0)
        self.assertTrue(
            self.eventually(lambda: len(self.slabs_held().keys() - {0}) == 1),
            self.slabs_held(),
        )


if __name__ == "__main__":
    unittest.main()
