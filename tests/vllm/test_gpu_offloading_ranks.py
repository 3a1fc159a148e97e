"""Stock vLLM's offloading of KV blocks to the host from two GPUs, on views: each
rank copies its part of a block, and no slab goes before all have.

As test_gpu_offloading.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import REAL_GPU
from test_gpu_offloading import LEAST_HITS, OFFLOADING, Offloading
from test_gpu_ranks import WIDE, Ranks
from test_gpu_worker import SMALL, broken


class OffloadingRanks(Ranks, Offloading):
    """An engine on two GPUs, and one on the second of them."""

    SLABS = [10, 8]
    MODELS = [WIDE, SMALL]
    ON = [[0, 1], [1]]
    PARALLEL: list[dict[str, Any]] = [
        OFFLOADING | {"tensor_parallel_size": 2},
        OFFLOADING,
    ]


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class TwoEngines(OffloadingRanks):
    def test_blocks_come_back_right_while_slabs_trade(self) -> None:
        self.start_all(self.SLOW)
        self.rounds()
        for report in self.reports():
            self.check(report)
            self.assertGreater(report["copies"], 0)
            self.assertEqual(report["stray_copies"], 0)
        self.assertGreater(min(self.returned()), 0)
        hits = self.engines[0].run("metrics")["external_prefix_cache_hits"]
        print(f"{hits} tokens came back from the host")
        self.assertGreater(hits, LEAST_HITS)


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class SlowCopies(OffloadingRanks):
    def test_no_slab_goes_while_it_is_copied(self) -> None:
        self.start_all(self.SLOWER)
        self.no_copy_strays()


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class WithoutTheHold(OffloadingRanks):
    def test_a_slab_that_goes_while_it_is_copied_is_noticed(self) -> None:
        self.start_all(broken("connector") | self.SLOWER)
        self.some_copies_stray()


if __name__ == "__main__":
    unittest.main()
