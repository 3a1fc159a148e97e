"""Two stock SGLangs of different formats trade slabs of one pool (label
sglang)."""

from __future__ import annotations

import unittest

from sglang_machine import EngineEnded  # sets the path, too
from machine import kill_9
from trading import Trade


class TwoEngines(Trade):
    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({})
        self.in_turns()
        self.together_until(self.has_traded, 64)
        self.assertTrue(self.has_traded())
        reports = self.reports()
        for report in reports:
            self.check(report)
        self._kill_scheduler(reports[0]["pid"])

    def _kill_scheduler(self, pid: int) -> None:
        """Its slabs go to the other, which notices nothing else."""
        prompts = self.ask(1, 32)
        kill_9(pid)
        self.finish(1, prompts)
        self.assertEqual(self.wrong[1], 0)
        self.assertTrue(
            self.eventually(lambda: len(self.slabs_held().keys() - {0}) == 1),
            self.slabs_held(),
        )


class WithoutDraining(Trade):
    """Breakages that must turn the test above red."""

    def test_a_slab_returned_in_use_is_noticed(self) -> None:
        self.start_all({"HOST_DEVICE_BREAK": "undrained"})
        self.ask(0, 64)  # its own books are wrong by now: it may not answer
        try:
            for _ in range(8):
                self.finish(1, self.ask(1, 24))
                if self.wrong[1]:
                    return
        except EngineEnded as error:
            # SGLang's own check was first, when it had nothing to do.
            self.assertIn("leak", str(error))
            return
        self.fail("no token was wrong")


if __name__ == "__main__":
    unittest.main()
