"""Stock vLLM's GPU workers while their daemon is killed again and again, and
another takes its pool over (design note 0029).

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import unittest
from typing import Any

from gpu_machine import kill_9
from test_gpu_trade import Trades
from test_gpu_worker import LARGE, SMALL

KILLS = int(os.environ.get("FINESERVE_DAEMON_KILLS", "12"))


class Killer(threading.Thread):
    """Kills the pool's daemon now and then, until it is stopped."""

    def __init__(self, machine: Any) -> None:
        super().__init__(daemon=True)
        self._machine = machine
        self._end = threading.Event()
        self._random = random.Random(7)
        self.killed: list[int] = []

    def run(self) -> None:
        while not self._end.wait(self._random.uniform(0.3, 1.5)):
            pid = self._machine.daemon_pid()
            if pid is None or pid in self.killed:
                continue
            kill_9(pid)
            self.killed.append(pid)

    def stop(self) -> None:
        self._end.set()
        self.join()


class Restarts(Trades):
    MODELS = [LARGE, SMALL]
    RUNNERS = [1, 2]
    DELAY_US = ["300", "0"]

    def start_daemon(self, *arguments: str) -> Any:
        return super().start_daemon("--supervise", *arguments)

    @staticmethod
    def _end(daemon: Any) -> None:
        daemon.terminate()  # its daemon, too
        daemon.wait()

    def daemon_pid(self) -> int | None:
        """None while no daemon answers."""
        try:
            daemon = self.fsctl("slabs")["daemon"]
        except subprocess.CalledProcessError:
            return None
        return daemon["pid"] if daemon["answers"] else None

    def test_engines_serve_on_and_trade_under_every_daemon(self) -> None:
        self.start_all({})
        epoch = self.fsctl("slabs")["daemon"]["epoch"]
        killer = Killer(self)
        killer.start()
        returned = []
        while len(killer.killed) < KILLS or len(returned) < 3:
            self.in_turns_then_together(32)
            returned.append(sum(r["slabs_returned"] for r in self.reports()))
            self.assertIsNone(self.daemon.poll())
        killer.stop()
        print(f"{len(killer.killed)} daemons killed; returned: {returned}")
        self.assertEqual(sorted(set(returned)), returned, "slabs stopped moving")
        # Under the last of them.
        self.eventually(lambda: self.daemon_pid() is not None)
        self.assertEqual(self.fsctl("slabs")["daemon"]["epoch"], epoch)
        self.in_turns_then_together(32)
        self.check_trade()
        for engine in self.engines:
            engine.kill()
        self.assertTrue(
            self.eventually(lambda: self.free_slabs() == self.pool_slabs),
            self.slabs_held(),
        )
