"""A stock SGLang and a stock vLLM trade slabs of one pool (label sglang).

Run by the Python of vLLM's environment, with $FINESERVE_SGLANG_PYTHON.
"""

from __future__ import annotations

import unittest
from typing import Any

from sglang_machine import EngineProcess, SglangTrade, WideModel  # and the path
from gpu_machine import VllmMachine
from tiny_models import Model


class BesideVllm(SglangTrade, VllmMachine):
    # As many tokens in a slab.
    MODELS = [WideModel(), Model(layers=8, seed=2)]

    def start_one(
        self, i: int, environment: dict[str, str], **own: Any
    ) -> EngineProcess:
        if i == 0:
            return super().start_one(i, environment, **own)
        return self.start_vllm(
            self.MODELS[i], view=True, runner=1, environment=environment
        )

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.trade_until_the_first_is_killed()
