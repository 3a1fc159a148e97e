"""Test engines that are evicted from the GPU and activated again."""

from __future__ import annotations

import os
import time
from typing import Any

from machine import kill_9
from trading import Trade

NO_ANSWER = 3  # exit code of fsctl
ROUNDS = int(os.environ.get("FINESERVE_TEST_ROUNDS", "6"))


class Evictable(Trade):
    """Two engines that can leave."""

    DELAY_US = ["0", "0"]
    ARGUMENTS: list[dict[str, Any]] | None = None

    def setUp(self) -> None:
        super().setUp()
        self.start_all({"FINESERVE_EVICT": "auto"}, self.ARGUMENTS)
        self.note_pids()

    def serve(self, i: int, requests: int = 8) -> None:
        self.judge(i, self.ask(i, requests))
        self.assertEqual(self.wrong[i], 0)

    def move(self, verb: str, i: int = 0) -> tuple[int, str]:
        """Returns fsctl's exit code and output. On a busy machine the daemon
        may not answer at first, so it retries."""
        for _ in range(5):
            began = time.monotonic()
            done = self.machine.fsctl(verb, str(self.engine_of(i)["id"]))
            print(f"{verb}: {time.monotonic() - began:.3f} s", flush=True)
            if done.returncode != NO_ANSWER:
                break
        return done.returncode, done.stdout + done.stderr

    def leaves(self, i: int = 0) -> None:
        code, said = self.move("evict", i)
        self.assertEqual(code, 0, said)
        self.assertIn("left the GPU", said)
        self.assertTrue(self.view_of(i)["suspended"])
        self.assertEqual(self.held(i), 0)

    def comes_back(self, i: int = 0) -> None:
        code, said = self.move("activate", i)
        self.assertEqual(code, 0, said)
        self.assertFalse(self.view_of(i)["suspended"])


class Evictions:
    """The tests of two engines that can be evicted; to be combined with
    Evictable."""

    # The number of engines that leave in turn, and whether the engine that
    # serves at that time must have had all slabs.
    LEAVERS, OTHER_HAS_ALL = 1, True

    def after_both_left(self, i: int) -> None:
        """Called after engine i has answered the request that followed its
        eviction."""

    def test_every_token_is_right_however_often_it_leaves(self) -> None:
        for i in range(2):
            self.serve(i, 32)
        for round_ in range(ROUNDS):
            one = round_ // 3 % self.LEAVERS
            beside = self.ask(1 - one, 2)
            self.leaves(one)
            self.judge(1 - one, beside)
            if round_ % 24 in (0, 3):
                # This takes all slabs, including those of the evicted engine's
                # floor.
                self.serve(1 - one, 48)
                if self.OTHER_HAS_ALL:
                    self.assertEqual(self.held(1 - one), self.pool_slabs)
            if round_ % 2 == 0:
                self.comes_back(one)
            self.serve(one, 3)  # a request alone brings it back
            self.assertFalse(self.view_of(one)["suspended"])
        self.assertEqual(self.wrong, [0, 0])
        # Both engines leave, and then both get requests at once.
        for i in range(2):
            self.leaves(i)
        prompts = [self.ask(i, 32) for i in range(2)]
        for i in range(2):
            self.judge(i, prompts[i])
            self.after_both_left(i)
        self.check_all()

    def test_an_engine_with_requests_stays(self) -> None:
        prompts = self.ask(0, 64)
        self.assertTrue(
            self.eventually(lambda: self.held(0) > self.HELD_WHEN_BUSY)
        )
        code, said = self.move("evict")
        if not self.engines[0].has_answered():
            self.assertEqual(code, 1, said)
            self.assertIn("it has requests", said)
        self.judge(0, prompts)
        self.leaves()
        self.serve(0)
        self.check_all()

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
