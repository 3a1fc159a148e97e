"""Two stock SGLangs of different formats trade slabs of one pool (label
sglang)."""

from __future__ import annotations

import unittest

from sglang_machine import EngineEnded, SglangTrade


class TwoEngines(SglangTrade):
    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.trade_until_the_first_is_killed()


class WithoutDraining(SglangTrade):
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
