"""Trades between stock vLLM's GPU workers: three formats, two layouts.

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import MIB, Model
from test_gpu_worker import LARGE, SMALL, Trade

TINY = Model(layers=2, seed=3)  # 64 KiB a block: 32 in a slab


class Trades(Trade):
    def check_trade(self) -> list[dict[str, Any]]:
        reports = self.reports()
        for report in reports:
            self.check(report)
            self.assertEqual(report["stray_writes"], 0)
            self.assertEqual(report["driver_calls_serving"], 0)
            self.assertGreater(report["slabs_returned"], 0)
        return reports


class ThreeEngines(Trades):
    MODELS = [LARGE, SMALL, TINY]
    RUNNERS = [1, 2, 1]
    DELAY_US = ["300", "0", "100"]

    def test_slabs_move_among_three_formats(self) -> None:
        self.start_all({})
        for i in range(3):
            # The others are idle, their slabs full of cached blocks.
            self.finish(i, self.ask(i, 32))
            self.assertGreaterEqual(max(self.slabs_held().values()), 8)
        prompts = [self.ask(i, 48) for i in range(3)]
        for i in 0, 1, 2:
            self.finish(i, prompts[i])
        reports = self.check_trade()
        returned = sum(report["slabs_returned"] for report in reports)
        self.assertGreater(returned, 2 * self.pool_slabs)
        self.assertGreater(sum(r["fence_waits"] for r in reports), 0)


class TwoLayouts(Trades):
    """A plane per layer beside blocks in one piece, in slabs of a granule for
    each of four layers."""

    slab_bytes = 8 * MIB
    pool_slabs = 6
    MODELS = [LARGE, SMALL]
    LAYOUTS = ["LBNHC", "BLHNC"]

    def start_daemon(self, *arguments: str) -> Any:
        return super().start_daemon("--planes", "4", *arguments)

    def start_vllm(self, model: Model, **arguments: Any) -> Any:
        layout = self.LAYOUTS[self.MODELS.index(model)]
        arguments["environment"] |= {"VLLM_KV_CACHE_LAYOUT": layout}
        return super().start_vllm(model, **arguments)

    def test_slabs_move_between_layouts(self) -> None:
        self.start_all({})
        print(self.fsctl("engines"))
        for i in 0, 1:
            self.finish(i, self.ask(i, 32))
        prompts = [self.ask(i, 48) for i in range(2)]
        for i in 0, 1:
            self.finish(i, prompts[i])
        self.check_trade()


if __name__ == "__main__":
    unittest.main()
