"""Stock vLLM evicted and activated: its weights leave the GPU, others use its
slabs, and it comes back when it is asked for something.

As test_gpu_worker.py, on vLLM itself (label vllm). FINESERVE_TEST_ROUNDS sets
how often it leaves.
"""

from __future__ import annotations

import unittest
from typing import Any

from eviction import ROUNDS, Evictions
from gpu_machine import kill_9
from test_gpu_worker import Trade


class Evictable(Evictions, Trade):
    """Two engines that can leave."""

    DELAY_US = ["0", "0"]
    ARGUMENTS: list[dict[str, Any]] | None = None

    def setUp(self) -> None:
        super().setUp()
        self.start_all({"FINESERVE_EVICT": "auto"}, self.ARGUMENTS)
        self.pids = [engine.run("stats")["pid"] for engine in self.engines]

    def serve(self, i: int, requests: int = 8) -> None:
        self.judge(i, self.ask(i, requests))


class Evicted(Evictable):
    """The first engine leaves and comes back beside the second one."""

    def test_every_token_is_right_however_often_it_leaves(self) -> None:
        for i in range(2):
            self.serve(i, 32)
        for round_ in range(ROUNDS):
            self.leaves()
            if round_ % 3 == 0:
                # With all slabs, those of the other's floor too.
                self.serve(1, 48)
                self.assertEqual(self.held(1), self.pool_slabs)
            if round_ % 2 == 0:
                self.comes_back()
            self.serve(0)  # a request alone brings it back
            self.assertFalse(self.engine_of(0)["view"]["suspended"])
        # Both leave, and both are asked at once.
        for i in range(2):
            self.leaves(i)
        prompts = [self.ask(i, 32) for i in range(2)]
        for i in range(2):
            self.judge(i, prompts[i])
        for report in self.reports():
            self.check(report)

    def test_an_engine_with_requests_stays(self) -> None:
        prompts = self.ask(0, 64)
        self.assertTrue(self.eventually(lambda: self.held(0) > 8))
        code, said = self.move("evict")
        if not self.engines[0].has_answered():
            self.assertEqual(code, 1, said)
            self.assertIn("it has requests", said)
        self.judge(0, prompts)
        self.leaves()
        self.serve(0)
        for report in self.reports():
            self.check(report)

    def test_a_killed_daemon_and_a_killed_engine_lose_nothing(self) -> None:
        for i in range(2):
            self.serve(i)
        self.leaves()
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = self.start_daemon()
        self.serve(0)
        self.serve(1)
        self.leaves()
        kill_9(self.pids[0])
        self.serve(1, 48)
        self.check(self.engines[1].run("stats") | {"wrong": self.wrong[1]})


if __name__ == "__main__":
    unittest.main()
