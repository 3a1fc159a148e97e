"""Stock vLLM evicted and activated: its weights leave the GPU, others use its
slabs, and it comes back when it is asked for something.

As test_gpu_worker.py, on vLLM itself (label vllm). FINESERVE_TEST_ROUNDS sets
how often it leaves.
"""

from __future__ import annotations

import os
import subprocess
import time
import unittest
from typing import Any

from gpu_machine import kill_9, machine
from test_gpu_worker import Trade

NO_ANSWER = 3  # exit code of fsctl
ROUNDS = int(os.environ.get("FINESERVE_TEST_ROUNDS", "6"))


class Evictable(Trade):
    """Two engines that can leave."""

    DELAY_US = ["0", "0"]
    ARGUMENTS: list[dict[str, Any]] | None = None

    def setUp(self) -> None:
        super().setUp()
        self.start_all({"FINESERVE_EVICT": "auto"}, self.ARGUMENTS)
        self.pids = [engine.run("stats")["pid"] for engine in self.engines]

    def engine_of(self, i: int) -> dict[str, Any]:
        """They start together, so either may be the first."""
        (found,) = [
            engine
            for engine in self.fsctl("engines")["engines"]
            if engine["view"] and engine["view"]["pid"] == self.pids[i]
        ]
        return found

    def move(self, verb: str, i: int = 0) -> tuple[int, str]:
        """Exit code, and what fsctl said. On a busy machine the daemon may not
        answer at once."""
        for _ in range(5):
            began = time.monotonic()
            done = subprocess.run(
                [machine.BUILD / "bin/fsctl", verb]
                + [str(self.engine_of(i)["id"])],
                env=os.environ | self.environment,
                capture_output=True,
                text=True,
            )
            print(f"{verb}: {time.monotonic() - began:.3f} s", flush=True)
            if done.returncode != NO_ANSWER:
                break
        return done.returncode, done.stdout + done.stderr

    def leaves(self, i: int = 0) -> None:
        code, said = self.move("evict", i)
        self.assertEqual(code, 0, said)
        self.assertIn("left the GPU", said)
        self.assertTrue(self.engine_of(i)["view"]["suspended"])
        self.assertEqual(self.held(i), 0)

    def held(self, i: int) -> int:
        return self.slabs_held().get(self.engine_of(i)["id"], 0)

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
                code, said = self.move("activate")
                self.assertEqual(code, 0, said)
                self.assertFalse(self.engine_of(0)["view"]["suspended"])
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
