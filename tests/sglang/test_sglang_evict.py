"""Stock SGLang evicted and activated: its weights leave the GPU, the other
engine uses its slabs, and it comes back when it is asked for something (label
sglang). FINESERVE_TEST_ROUNDS sets how often it leaves.
"""

from __future__ import annotations

import unittest

from sglang_machine import SglangTrade  # sets the path, too
import eviction


class Evicted(eviction.Evictions, eviction.Evictable, SglangTrade):
    LEAVERS, OTHER_HAS_ALL = 2, False

    def after_both_left(self, i: int) -> None:
        """Its radix cache is gone, and may be flushed while it is away."""
        self.leaves(i)
        self.assertTrue(self.engines[i].run("flush"))
        self.serve(i)
