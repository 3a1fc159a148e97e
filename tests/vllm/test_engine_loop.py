"""The scheduler loop keeps every rule; with a rule broken the checker fails.

FINESERVE_LOOP_STEPS and FINESERVE_LOOP_SEED set the length and seed of the
sound runs. The broken ones have their own: found within some hundred steps.
"""

from __future__ import annotations

import os

import pytest

import engine_loop  # before vLLM: it sets the environment
from engine_loop import Options
from engine_loop_checker import Violation
from fineserve_vllm.engine_leases import EngineLeases
from fineserve_vllm.fence import StepFence
from fineserve_vllm.free_queue import LeasedFreeQueue
from fineserve_vllm.pool import LeasedBlockPool

_STEPS = int(os.environ.get("FINESERVE_LOOP_STEPS", "3000"))
_SEED = int(os.environ.get("FINESERVE_LOOP_SEED", "1"))
_BROKEN_STEPS = 20_000

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("preempt", [False, True], ids=["drain", "preempt"])
@pytest.mark.parametrize("async_", [False, True], ids=["sync", "async"])
def test_leases_move_and_every_token_is_right(
    async_: bool, preempt: bool
) -> None:
    options = Options(_STEPS, _SEED, async_, preempt)
    totals = engine_loop.run(options)
    print(options, totals, f"hit rate {totals.hit_rate:.3f}")
    # The run must have exercised what it tests.
    assert totals.finished > _STEPS / 10
    assert totals.returned > _STEPS / 50
    assert totals.preemptions > 0
    assert totals.idle_returns > 0
    assert 0 < totals.hit_rate < 1
    if async_:
        assert totals.returned_with_steps_in_flight > 0


@pytest.mark.parametrize("async_", [False, True], ids=["sync", "async"])
def test_stock_pool_passes_the_device_and_the_checker(async_: bool) -> None:
    totals = engine_loop.run(
        Options(_STEPS, _SEED, async_scheduling=async_, stock=True)
    )
    assert totals.finished > _STEPS / 10 and totals.returned == 0


def _violation(**options: object) -> str:
    with pytest.raises(Violation) as caught:
        engine_loop.run(Options(steps=_BROKEN_STEPS, **options))
    print(caught.value)
    return str(caught.value)


def test_without_the_fence_a_slab_leaves_under_a_step_in_flight(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(StepFence, "passed", lambda self, barrier: True)
    assert "in flight may" in _violation()


def test_without_the_fence_a_step_in_flight_writes_a_returned_slab(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(StepFence, "passed", lambda self, barrier: True)
    assert "in flight may write" in _violation(check_reads=False)


def test_a_fence_one_step_short_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(
        StepFence,
        "passed",
        lambda self, barrier: barrier <= self.processed + 1,
    )
    assert "in flight may" in _violation()


def test_returning_a_slab_with_used_blocks_is_found(monkeypatch: Patch) -> None:
    def return_all(self: LeasedBlockPool) -> list[int]:
        ready = [
            index
            for index, leaving in self._leaving.items()
            if self.fence.passed(leaving.barrier)
        ]
        for index in ready:
            del self._leaving[index]
            self.grants.return_slab(index)
        return ready

    monkeypatch.setattr(LeasedBlockPool, "return_drained", return_all)
    # The step that uses the blocks may be in flight or done.
    found = _violation(async_scheduling=False)
    assert "may read its blocks" in found or "holds its blocks" in found


def test_keeping_the_hashes_of_a_returned_slab_is_found(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(LeasedBlockPool, "_forget", lambda self, block: None)
    assert "used or cached" in _violation(async_scheduling=False)


def test_blocks_of_leaving_slabs_handed_out_again_are_found(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(
        LeasedFreeQueue, "_without_leaving", lambda self, blocks: blocks
    )
    assert "handed out" in _violation()


def test_an_idle_engine_that_is_not_woken_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(EngineLeases, "wake", lambda self: None)
    assert "idle" in _violation()
