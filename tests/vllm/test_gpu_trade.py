"""Trades between stock vLLM's GPU workers: three formats, two layouts.

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import MIB, VERSION, Model, kill_9
from test_gpu_worker import LARGE, SMALL, Trade

CALM = [Model(layers=4, seed=1, deviation=0.08), Model(3, 2, 0.08)]
TINY = Model(layers=2, seed=3)  # 64 KiB a block: 32 in a slab


class Trades(Trade):
    def check_trade(self) -> list[dict[str, Any]]:
        reports = self.reports()
        for report in reports:
            self.check(report)
            self.assertGreater(report["slabs_returned"], 0)
        return reports


class ThreeEngines(Trades):
    MODELS = [LARGE, SMALL, TINY]
    RUNNERS = [1, 2, 1]
    DELAY_US = ["300", "0", "100"]

    def test_slabs_move_among_three_formats(self) -> None:
        self.start_all({})
        for _ in range(5):  # as Trade.together_until
            self.in_turns_then_together(48, most=8)
            if self.has_traded():
                break
        self.assertTrue(self.has_traded())
        self.check_trade()
        self.check_lost_daemon()

    def has_traded(self) -> bool:
        """True if twice as many slabs as the pool has were returned, at least
        one of them after waiting for a step."""
        reports = self.reports()
        returned = sum(report["slabs_returned"] for report in reports)
        return returned > 2 * self.pool_slabs and any(
            report["fence_waits"] for report in reports
        )

    def check_lost_daemon(self) -> None:
        """Kills the daemon while the engines serve: they continue with the
        slabs that they hold."""
        before = sum(self.counts)
        prompts = [self.ask(i, 16) for i in range(3)]
        kill_9(self.daemon.pid)
        for i in 0, 1, 2:
            self.judge(i, prompts[i])
        self.assertGreater(sum(self.counts), before)
        self.check_all()


class SteppedByTheirCallers(Trade):
    """If an LLM runs its engine in its own process, vLLM leaves the last step
    unprocessed."""

    def test_slabs_of_an_engine_at_rest_serve_the_other(self) -> None:
        self.start_all({"VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
        self.in_turns()
        first, second = self.reports()
        for report in first, second:
            self.check(report)
        self.assertGreater(first["slabs_returned"], self.pool_slabs // 2)
        self.assertEqual(first["leaving_slabs"], 0)


class TwoLayouts(Trades):
    """One engine has a plane per layer, the other has blocks in one piece. A
    slab has a granule for each of four layers."""

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
        planes = {
            engine["view"]["format"]["planes"]
            for engine in self.fsctl("engines")["engines"]
        }
        self.assertEqual(planes, {4, 1})
        self.in_turns_then_together(48)
        self.check_trade()


class Speculation(Trades):
    """Drafts come from the tokens so far, on the host in one engine and on the
    device in the other. Steps write KV for tokens that may be rejected."""

    MODELS = CALM
    METHODS = ["ngram", "ngram_gpu"]
    if VERSION.startswith("0.31."):  # its second runner has neither
        RUNNERS = [1, 1]
        METHODS = ["ngram", "ngram"]

    def test_drafts_are_accepted_and_every_token_is_right(self) -> None:
        self.start_all(
            {},
            [
                {
                    "speculative_config": {
                        "method": method,
                        "num_speculative_tokens": 3,
                        "prompt_lookup_min": 1,
                        "prompt_lookup_max": 3,
                    },
                    "disable_log_stats": False,
                }
                for method in self.METHODS
            ],
        )
        self.in_turns_then_together(32)
        for method, engine, report in zip(
            self.METHODS, self.engines, self.check_trade()
        ):
            metrics = engine.run("metrics")
            accepted = metrics["spec_decode_num_accepted_tokens"]
            drafted = metrics["spec_decode_num_draft_tokens"]
            print(f"{accepted} of {drafted} drafted tokens accepted")
            # vLLM schedules ahead only with drafts from the device.
            self.assertEqual(report["async_scheduling"], method == "ngram_gpu")
            self.assertGreater(accepted, 0)
            self.assertGreater(drafted, accepted)
