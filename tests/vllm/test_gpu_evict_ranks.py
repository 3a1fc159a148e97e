"""Stock vLLM on two GPUs evicted and activated: all of its ranks leave, others
use its slabs on both, and it comes back when it is asked for something.

As test_gpu_evict.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import REAL_GPU
from test_gpu_ranks import WIDE, Ranks
from test_gpu_worker import SMALL

from eviction import NO_ANSWER, ROUNDS


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class EvictedTensorParallel(Ranks):
    """An engine on two GPUs is evicted and activated, beside an engine on the
    second GPU."""

    MODELS = [WIDE, SMALL]
    ON = [[0, 1], [1]]
    PARALLEL: list[dict[str, Any]] = [{"tensor_parallel_size": 2}, {}]

    def move(self, verb: str) -> None:
        """Moves the engine through the first rank's daemon. On a busy machine
        the daemon may not answer at first, so it retries."""
        for _ in range(5):
            done = self.machine.fsctl(
                "--gpu", self.gpus[0], verb, str(self.views()[0]["id"])
            )
            if done.returncode != NO_ANSWER:
                break
        print(verb, done.stdout + done.stderr, flush=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def serve(self, i: int, requests: int = 8) -> None:
        self.judge(i, self.ask(i, requests))

    def test_every_token_is_right_however_often_it_leaves(self) -> None:
        self.start_all({"FINESERVE_EVICT": "auto"})
        for i in range(2):
            self.serve(i, 16)
        for round_ in range(ROUNDS):
            beside = self.ask(1, 2)
            self.move("evict")
            for view in self.views():
                self.assertTrue(view["suspended"])
                self.assertEqual(view["leased"], 0)
            self.judge(1, beside)
            if round_ % 24 in (0, 3):
                self.serve(1, 24)
            if round_ % 2 == 0:
                self.move("activate")
            self.serve(0, 3)  # a request alone brings it back
            for view in self.views():
                self.assertFalse(view["suspended"])
        for report in self.reports():
            self.check(report)


if __name__ == "__main__":
    unittest.main()
