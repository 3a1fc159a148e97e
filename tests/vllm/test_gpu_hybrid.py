"""Models with several groups of KV blocks on a view of the pool: attention
within a window, with pages of another size or not, and states beside attention.

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import statistics
import threading
import unittest
from typing import Any

from gpu_hybrids import ShortConvolutionModel, SlidingModel, TwoPagesModel
from gpu_machine import MIB, Model, VllmEngine
from test_gpu_trade import Trades
from test_gpu_worker import SMALL, GpuWorkerTest

SLIDING = SlidingModel(layers=8, seed=11)  # 64 KiB a block: 32 in a slab
CONVOLUTION = ShortConvolutionModel(layers=4, seed=12)  # 64 KiB, too
TWO_PAGES = TwoPagesModel(layers=8, seed=13)  # 160 KiB


def observed(report: dict[str, Any], model: Model) -> dict[str, Any]:
    """Returns the report without false observations. Writes of states are not
    observed, and pages of another size overlap a layer's parts of a slab, so
    that the slab soon holds bytes other than zero."""
    overlaid = model in (CONVOLUTION, TWO_PAGES)
    return report | ({"dirty_parts": 0} if overlaid else {})


class Alone(GpuWorkerTest):
    def serve(
        self, engine: VllmEngine, model: Model, seed: int
    ) -> dict[str, Any]:
        return observed(super().serve(engine, model, seed), model)

    def test_tokens_are_those_of_transformers(self) -> None:
        self.start_daemon()
        self.serve_alone(CONVOLUTION, view=False, runner=2)
        for model in SLIDING, CONVOLUTION:
            with self.subTest(model=model):
                self.serve_alone(model, view=True, runner=2)


class Hybrids(Trades):
    RUNNERS = [2, 2, 2]
    DELAY_US = ["300", "100", "0"]

    def reports(self) -> list[dict[str, Any]]:
        return list(map(observed, super().reports(), self.MODELS))

    def trade(self) -> None:
        for _ in range(5):  # as Trade.together_until
            self.in_turns_then_together(32)
            if min(r["slabs_returned"] for r in self.reports()) > 0:
                break
        self.check_trade()


class WithADenseOne(Hybrids):
    """An engine whose requests free blocks while they run, one with states, and
    one with a single group."""

    MODELS = [SLIDING, CONVOLUTION, SMALL]

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({})
        self.trade()


class UsableShare(Hybrids):
    """Two hybrids, one with pages of two sizes and one with states, trade with
    a dense model. The usable share is the bytes of whole blocks in their slabs.
    Ideally, there are as many blocks as the slabs have bytes for."""

    slab_bytes = 4 * MIB
    pool_slabs = 12
    MODELS = [TWO_PAGES, CONVOLUTION, SMALL]

    def test_it_is_near_the_ideal_all_the_time(self) -> None:
        self.start_all({})
        shares: list[tuple[float, float]] = []
        over = threading.Event()
        sampler = threading.Thread(target=self.sample, args=(over, shares))
        sampler.start()
        try:
            self.trade()
        finally:
            over.set()
            sampler.join()
        usable, used = zip(*shares)
        print(
            f"{len(shares)} samples: usable at least {min(usable):.3f}, in the "
            f"mean {statistics.mean(usable):.3f}; of the pool in use at most "
            f"{max(used):.3f}"
        )
        self.assertGreaterEqual(min(usable), 0.95)
        # There was something to share.
        self.assertGreater(max(used), 0.5)

    def sample(
        self, over: threading.Event, shares: list[tuple[float, float]]
    ) -> None:
        """Samples the usable share of the leased slabs, and the share of the
        pool in use."""
        while not over.wait(1):
            leased = usable = used = 0
            for engine in self.fsctl("engines")["engines"]:
                view = engine["view"]
                block = view["format"]["planes"] * view["format"]["page_bytes"]
                leased += view["leased"] * self.slab_bytes
                usable += view["blocks"]["usable_blocks"] * block
                used += view["blocks"]["used_blocks"] * block
            shares.append(
                (usable / leased, used / (self.pool_slabs * self.slab_bytes))
            )
