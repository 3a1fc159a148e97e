"""Half precision on whatever GPU the machine has: what gpu_check --vllm runs.

On a real one vLLM runs its own Triton attention and replays CUDA graphs; on the
emulated one as in test_gpu_worker.py.
"""

from __future__ import annotations

import unittest

from gpu_machine import REAL_GPU
from test_gpu_evict import Evictable
from test_gpu_formats import HALF_ARGUMENTS, Formats
from test_gpu_trade import CALM


class Half(Formats):
    pool_slabs = 8
    MODELS = CALM
    # vLLM's second model runner needs vLLM's compiled part.
    RUNNERS = [1, 1]

    def test_plain_tokens_are_those_of_transformers(self) -> None:
        self.serve_alone(CALM[0], view=False, runner=1, **HALF_ARGUMENTS)

    def test_tokens_on_a_view_are_those_of_transformers(self) -> None:
        self.start_daemon()
        self.serve_alone(CALM[0], view=True, runner=1, **HALF_ARGUMENTS)

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({}, [HALF_ARGUMENTS] * 2)
        self.in_turns_then_together(48 if REAL_GPU is None else 480)
        self.check_trade()


class HalfEvicted(Formats, Evictable):
    pool_slabs = 8
    MODELS = CALM
    RUNNERS = [1, 1]
    ARGUMENTS = [HALF_ARGUMENTS] * 2

    def test_tokens_are_right_after_each_return(self) -> None:
        for _ in range(4):
            self.leaves()
            self.serve(1)
            self.serve(0)  # a request alone brings it back
        self.assertEqual(self.wrong, [0, 0])
