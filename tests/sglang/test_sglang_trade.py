"""Two stock SGLangs of different formats trade slabs of one pool (label
sglang)."""

from __future__ import annotations

import unittest

from sglang_machine import SglangTrade


class TwoEngines(SglangTrade):
    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.trade_until_the_first_is_killed()


class WithoutDraining(SglangTrade):
    """Each breakage must make the test above fail."""

    def test_a_slab_returned_in_use_is_noticed(self) -> None:
        self.notice_undrained_slabs()
