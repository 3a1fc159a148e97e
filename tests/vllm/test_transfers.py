"""The slabs that wait for a KV connector, by vLLM's own notes of it.

Runs on vLLM if it is installed, else on the doubles.
"""

from __future__ import annotations

import types
import unittest
from typing import Any

import doubles

doubles.prepare()

from fineserve_vllm import transfers  # noqa: E402
from fineserve_vllm.grants import InMemoryGrants  # noqa: E402
from fineserve_vllm.pool import LeasedBlockPool  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import (  # noqa: E402
    OffloadingConnector,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading import (  # noqa: E402
    scheduler as offloading,
)

PER_SLAB = 10


def copy(**named: Any) -> Any:
    """Returns a job; `named` says which of its blocks are fenced and when."""
    return _with(offloading.TransferJobStatus, **named)


def request(*groups: list[int], status: str = "RUNNING", **named: Any) -> Any:
    return _with(
        offloading.RequestOffloadState,
        req=types.SimpleNamespace(status=types.SimpleNamespace(name=status)),
        group_states=tuple(
            _with(offloading.RequestGroupState, block_ids=ids) for ids in groups
        ),
        **{"finished_signaled": False} | named,
    )


def _with(cls: type, **fields: Any) -> Any:
    """Makes an object with these fields, without calling its constructor."""
    made = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


class TransfersTest(unittest.TestCase):
    def setUp(self) -> None:
        self.books = types.SimpleNamespace(_jobs={}, _req_status={})
        self.scheduler = types.SimpleNamespace(
            connector=_with(OffloadingConnector, connector_scheduler=self.books)
        )
        self.grants = InMemoryGrants.uniform(3, PER_SLAB, leased=[1, 2, 3])
        self.pool = LeasedBlockPool(40, True, 16, grants=self.grants)
        self.pool.held_by_connector = transfers.held_blocks(self.scheduler)

    def held(self) -> set[int]:
        found = transfers.held_blocks(self.scheduler)
        assert found is not None
        return found()

    def leave(self, *indices: int) -> list[int]:
        for index in indices:
            self.grants.ask_back(index)
        self.pool.apply(self.grants.poll())
        return self.pool.return_drained()

    def test_without_a_connector_nothing_is_held(self) -> None:
        for other in None, object():  # tests of the pool have others
            self.scheduler.connector = other
            self.assertIsNone(transfers.held_blocks(self.scheduler))

    def test_a_slab_waits_for_the_copy_of_its_blocks(self) -> None:
        self.books._jobs[7] = copy(
            is_store=True, deferred_fence_block_ids=[22], fenced_block_ids=None
        )
        self.assertEqual(self.leave(1, 2), [1])
        self.assertEqual(self.pool.leaving, {2})
        del self.books._jobs[7]
        self.assertEqual(self.pool.return_drained(), [2])

    def test_blocks_that_left_a_window_are_held_too(self) -> None:
        self.books._jobs[7] = copy(
            is_store=True, deferred_fence_block_ids=[], fenced_block_ids=[31]
        )
        self.assertEqual(self.held(), {31})

    def test_a_request_that_ended_is_held_until_its_last_copies_are_planned(
        self,
    ) -> None:
        self.books._req_status["a"] = request(
            [21, 22], [23], status="FINISHED_STOPPED"
        )
        self.assertEqual(self.leave(2), [])
        self.books._req_status["a"].finished_signaled = True
        self.assertEqual(self.pool.return_drained(), [2])

    def test_a_preempted_request_holds_nothing(self) -> None:
        self.books._req_status["a"] = request([11, 12], status="PREEMPTED")
        self.assertEqual(self.held(), set())

    def test_a_copy_to_the_device_is_the_requests_own_affair(self) -> None:
        self.books._jobs[8] = copy(is_store=False)
        self.assertEqual(self.held(), set())
