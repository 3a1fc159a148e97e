"""Evicts and activates stock SGLang: its weights leave the GPU, the other
engine uses its slabs, and SGLang returns when it gets a request (label sglang).
FINESERVE_TEST_ROUNDS sets how often it leaves."""

from __future__ import annotations

import unittest
from typing import Any

from sglang_machine import EngineProcess, SglangTrade  # sets the path, too
import eviction
from test_sglang_states import EXACT, StatesModel
from test_sglang_windows import BACKEND, WindowsModel


class Evicted(eviction.Evictions, eviction.Evictable, SglangTrade):
    LEAVERS, OTHER_HAS_ALL = 2, False

    def after_both_left(self, i: int) -> None:
        """Evicts the engine: its radix cache is gone, and may be flushed while
        the engine is away."""
        self.leaves(i)
        self.assertTrue(self.engines[i].run("flush"))
        self.serve(i)


class EvictedHybrids(eviction.Evictable, SglangTrade):
    """Windows and states are the engines' own memory and leave with the
    weights."""

    MODELS = [WindowsModel(seed=91), StatesModel(seed=92, heads=12)]
    STEPS_AHEAD = 0

    def start_one(
        self, i: int, environment: dict[str, str], **own: Any
    ) -> EngineProcess:
        kinds = (BACKEND, {})
        return self.start_sglang(
            self.MODELS[i],
            view=True,
            environment=environment | EXACT,
            page_size=1,
            **kinds[i],
            **own,
        )

    def test_every_token_is_right_after_they_have_left(self) -> None:
        for i in range(2):
            self.serve(i, 16)
        for i in range(2):
            self.leaves(i)
            self.serve(1 - i, 16)
            self.assertTrue(self.engines[i].run("flush"))
            self.serve(i)
        self.check_all()
