"""Stock SGLang evicted and activated: its weights leave the GPU, the other
engine uses its slabs, and it comes back when it is asked for something (label
sglang). FINESERVE_TEST_ROUNDS sets how often it leaves.
"""

from __future__ import annotations

import unittest

from sglang_machine import EngineEnded  # noqa: F401  (sets the path, too)
from eviction import ROUNDS, Evictions
from machine import kill_9
from trading import Trade


class Evicted(Evictions, Trade):
    """The first engine has pages of one token, the second one of 16."""

    DELAY_US = ["0", "0"]

    def setUp(self) -> None:
        super().setUp()
        self.start_all({"FINESERVE_EVICT": "auto"})
        self.pids = [engine.run("stats")["pid"] for engine in self.engines]

    def serve(self, i: int, requests: int = 8) -> None:
        self.finish(i, self.ask(i, requests))
        self.assertEqual(self.wrong[i], 0)

    def check_all(self) -> None:
        for report in self.reports():
            self.check(report)

    def test_every_token_is_right_however_often_it_leaves(self) -> None:
        for i in range(2):
            self.serve(i, 32)
        for round_ in range(ROUNDS):
            one = round_ // 3 % 2  # each of them
            self.leaves(one)
            if round_ % 3 == 0:
                # With all slabs, those of the other's floor too.
                self.serve(1 - one, 48)
            if round_ % 2 == 0:
                self.comes_back(one)
            self.serve(one)  # a request alone brings it back
            self.assertFalse(self.engine_of(one)["view"]["suspended"])
        # Both leave, and both are asked at once.
        for i in range(2):
            self.leaves(i)
        prompts = [self.ask(i, 32) for i in range(2)]
        for i in range(2):
            self.finish(i, prompts[i])
            # Its radix cache is gone, and may be flushed while it is away.
            self.leaves(i)
            self.assertTrue(self.engines[i].run("flush"))
            self.serve(i)
        self.check_all()

    def test_an_engine_with_requests_stays(self) -> None:
        prompts = self.ask(0, 64)
        self.assertTrue(self.eventually(lambda: self.held(0) > 4))
        code, said = self.move("evict")
        if not self.engines[0].has_answered():
            self.assertEqual(code, 1, said)
            self.assertIn("it has requests", said)
        self.finish(0, prompts)
        self.leaves()
        self.serve(0)
        self.check_all()

    def test_a_killed_daemon_and_a_killed_engine_lose_nothing(self) -> None:
        for i in range(2):
            self.serve(i)
        self.leaves()
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = self.start_daemon("--planes", "4")
        self.serve(0)
        self.serve(1)
        self.leaves()
        kill_9(self.pids[0])
        self.serve(1, 48)
        self.check(self.engines[1].run("stats") | {"wrong": self.wrong[1]})


if __name__ == "__main__":
    unittest.main()
