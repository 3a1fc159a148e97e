"""Engines of a test that leave the GPU and come back."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

import machine

NO_ANSWER = 3  # exit code of fsctl
ROUNDS = int(os.environ.get("FINESERVE_TEST_ROUNDS", "6"))


class Evictions(machine.Machine):
    """Base of tests whose engines, started with FINESERVE_EVICT=auto, are
    processes `pids`, the ones that hold their views."""

    pids: list[int]

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

    def comes_back(self, i: int = 0) -> None:
        code, said = self.move("activate", i)
        self.assertEqual(code, 0, said)
        self.assertFalse(self.engine_of(i)["view"]["suspended"])

    def held(self, i: int) -> int:
        return self.slabs_held().get(self.engine_of(i)["id"], 0)
