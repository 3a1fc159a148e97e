"""Stock vLLM evicted and activated: its weights leave the GPU, others use its
slabs, and it comes back when it is asked for something.

As test_gpu_worker.py, on vLLM itself (label vllm). FINESERVE_TEST_ROUNDS sets
how often it leaves.
"""

from __future__ import annotations

import unittest

from test_gpu_worker import Trade  # sets the path, too

import eviction


class Evictable(eviction.Evictable, Trade):
    pass


class Evicted(eviction.Evictions, Evictable):
    """The first engine is evicted and activated while the second one serves."""
