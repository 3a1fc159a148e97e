"""Stock vLLM's sleep mode on two GPUs: all ranks fall asleep, others use their
slabs, and all wake up, or none.

As test_gpu_sleep.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import REAL_GPU, kill_9
from test_gpu_ranks import WIDE, Ranks
from test_gpu_worker import SMALL, Trade


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class SleepingTensorParallel(Ranks):
    """An engine on two GPUs sleeps, beside an engine on the second GPU."""

    MODELS = [WIDE, SMALL]
    ON = [[0, 1], [1]]
    PARALLEL: list[dict[str, Any]] = [
        {"tensor_parallel_size": 2, "enable_sleep_mode": True},
        {},
    ]

    def serve(self, i: int, requests: int = 8) -> None:
        self.judge(i, self.ask(i, requests))

    def all_are(self, suspended: bool) -> None:
        views = self.views()
        self.assertEqual(
            [view["suspended"] for view in views], [suspended] * len(self.ON[0])
        )
        if suspended:
            self.assertEqual([view["leased"] for view in views], [0, 0])

    def fall_asleep(self, level: int) -> None:
        self.assertEqual(self.engines[0].run("sleep", level=level), ["asleep"])
        self.all_are(suspended=True)

    def wake(self, level: int) -> None:
        sleeper = self.engines[0]
        if level == 2:
            self.assertEqual(
                sleeper.run("wake_up", tags=["weights"]), ["asleep"]
            )
            sleeper.run("reload_weights")
            self.all_are(suspended=True)
        self.assertEqual(sleeper.run("wake_up"), [])
        self.all_are(suspended=False)

    def test_all_ranks_sleep_and_every_token_is_right(self) -> None:
        self.start_all({})
        for level in 1, 2, 1:
            with self.subTest(level=level):
                self.serve(0, 16)
                self.fall_asleep(level)
                self.engines[0].run("sleep", level=level)  # is asleep already
                self.serve(1, 48)
                # The other engine gets all slabs, including those of the
                # sleeper's floor.
                self.assertEqual(max(self.slabs_held().values()), self.SLABS[1])
                self.wake(level)
        self.all_wake_up_or_none()
        for i in range(2):
            self.serve(i)
        for report in self.reports():
            self.check(report)

    def all_wake_up_or_none(self) -> None:
        """Wakes the ranks while the second rank's daemon is down: all must wake
        up or none."""
        self.fall_asleep(1)
        lost = self.daemons[1]
        kill_9(lost.pid)
        lost.wait()
        (error,) = self.engines[0].run("wake_up")
        print(error, flush=True)
        self.assertRegex(error, "FineServe: no daemon serves this GPU: .*")
        first = self.of_gpu(self.gpus[0], "engines")["engines"][0]["view"]
        self.assertTrue(first["suspended"], "though its own daemon is there")
        self.daemons[1] = Trade.start_daemon(
            self, device=1, slabs=self.SLABS[1]
        )
        self.assertTrue(
            self.eventually(lambda: self.engines[0].run("wake_up") == [])
        )
        self.all_are(suspended=False)


if __name__ == "__main__":
    unittest.main()
