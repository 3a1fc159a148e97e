"""The breakage that a test must notice: $HOST_DEVICE_BREAK."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any


def install() -> None:
    what = os.environ.get("HOST_DEVICE_BREAK")
    if what:
        {
            "stale block": _read_a_stale_block,
            "fence": _leave_out_the_fence,
            "connector": _forget_the_connector,
            "drafter": _forget_the_drafter,
            "undrained": _return_undrained_slabs,
            "all-reduce": _leave_out_sums,
            "loaded": _let_loaded_requests_go,
            "sleep": _fail_to_sleep,
            "transfer": _return_slabs_that_are_read_into,
            "failed read": _forget_failed_reads,
            "registration": _register_at_once,
        }[what]()


def _let_loaded_requests_go() -> None:
    """Each request lets its blocks go when it has been loaded, once."""
    from fineserve_vllm.engine_leases import EngineLeases

    original = EngineLeases.schedule_begins
    gone: set[str] = set()

    def schedule_begins(self: EngineLeases) -> None:
        original(self)
        for request in list(self._scheduler.kv_holding_waiting):
            name = request.request_id
            if name not in gone and self._loaded._is_loaded(request):
                gone.add(name)
                self._loaded._let_go(request)
                self.counters.let_go += 1

    EngineLeases.schedule_begins = schedule_begins


def _read_a_stale_block() -> None:
    """The first request's first block is taken to be the last one's."""
    from host_device_vllm.attention import HostAttentionImpl
    from host_device_vllm.latent_attention import HostLatentImpl

    _read_a_stale_block_in(HostAttentionImpl, "forward", lambda given: given)
    _read_a_stale_block_in(
        HostLatentImpl, "forward_mqa", lambda given: given.decode
    )


def _read_a_stale_block_in(
    implementation: Any, name: str, with_table: Callable[[Any], Any]
) -> None:
    """with_table: finds in the metadata what has the block table."""
    original = getattr(implementation, name)
    place = list(inspect.signature(original).parameters).index("attn_metadata")

    def forward(*arguments: Any, **named: Any) -> Any:
        if arguments[place] is not None:
            metadata = with_table(arguments[place])
            table = metadata.block_table.clone()
            table[0, 0] = table[-1, 0]
            metadata.block_table = table
        return original(*arguments, **named)

    setattr(implementation, name, forward)


def _leave_out_the_fence() -> None:
    """A slab goes when its last block is free."""
    from fineserve_vllm.pool import LeasedBlockPool

    original = LeasedBlockPool.return_drained

    def return_drained(self: LeasedBlockPool) -> list[int]:
        for leaving in self._leaving.values():
            leaving.barrier = 0
        return original(self)

    LeasedBlockPool.return_drained = return_drained


def _forget_the_connector() -> None:
    """A slab goes though the connector still copies blocks of it."""
    from fineserve_vllm import transfers

    transfers.held_blocks = lambda scheduler: None


def _forget_the_drafter() -> None:
    """A slab goes when its last step has been processed, drafter or not."""
    from fineserve_vllm.fence import StepFence

    StepFence.passed = lambda self, barrier: barrier <= self.processed


def _return_undrained_slabs() -> None:
    """Slabs go when they are asked back, with blocks that requests use."""
    from fineserve_vllm.pool import LeasedBlockPool

    gone: set[int] = set()

    def return_drained(self: LeasedBlockPool) -> list[int]:
        returned = [i for i in self._leaving if i not in gone]
        for index in returned:
            self.grants.return_slab(index)
        gone.update(returned)
        for index in [i for i, it in self._leaving.items() if not it.used]:
            del self._leaving[index]
            gone.discard(index)
        return returned

    LeasedBlockPool.return_drained = return_drained


def _return_slabs_that_are_read_into() -> None:
    """A slab goes though blocks of it are filled by a connector."""
    from fineserve_vllm.pool import LeasedBlockPool
    from fineserve_vllm.receives import Receives

    original = LeasedBlockPool.return_drained
    books: list[Receives] = []
    construct = Receives.__init__

    def note(self: Receives) -> None:
        construct(self)
        books.append(self)

    gone: set[int] = set()

    def return_drained(self: LeasedBlockPool) -> list[int]:
        read = set().union(*(receives.blocks() for receives in books))
        undrained = [
            index
            for index, leaving in self._leaving.items()
            if index not in gone and leaving.used and leaving.used <= read
        ]
        for index in undrained:
            self.grants.return_slab(index)
        gone.update(undrained)
        drained = [i for i in gone if not self._leaving[i].used]
        for index in drained:
            del self._leaving[index]
            gone.discard(index)
        held, self.held_by_connector = self.held_by_connector, None
        returned = original(self)
        self.held_by_connector = held
        return undrained + returned

    Receives.__init__ = note
    LeasedBlockPool.return_drained = return_drained


def _forget_failed_reads() -> None:
    """A slab goes when a read into it is reported as failed."""
    from fineserve_vllm.receives import Receives

    Receives._keep = lambda self, blocks: None


def _register_at_once() -> None:
    """The connector registers the memory on which an engine starts."""
    from fineserve_vllm.registration import Registration

    Registration.defer = lambda self, vllm_config: None


def _leave_out_sums() -> None:
    """A rank goes on with its own part of a sum over ranks."""
    from vllm.distributed.device_communicators.cuda_communicator import (
        CudaCommunicator,
    )

    CudaCommunicator.all_reduce = lambda self, input_: input_.clone()


def _fail_to_sleep() -> None:
    """As without host memory for the weights."""
    from vllm.device_allocator.sleep_mode_backend import CuMemBackend

    def suspend(self: CuMemBackend, level: int = 1) -> None:
        raise MemoryError("no memory for the weights")

    CuMemBackend.suspend = suspend
