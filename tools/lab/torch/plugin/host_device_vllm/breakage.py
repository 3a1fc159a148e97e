"""Installs the breakage that a test must notice, named by
$HOST_DEVICE_BREAK."""

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
            "idle batch": _write_in_idle_batches,
        }[what]()


def _let_loaded_requests_go() -> None:
    """Makes each request let its blocks go once, after it has been loaded."""
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
    """Makes the first request read the last request's first block as its own
    first block."""
    from host_device_vllm.attention import HostAttentionImpl
    from host_device_vllm.latent_attention import HostLatentImpl

    _read_a_stale_block_in(HostAttentionImpl, "forward", lambda given: given)
    _read_a_stale_block_in(
        HostLatentImpl, "forward_mqa", lambda given: given.decode
    )


def _read_a_stale_block_in(
    implementation: Any, name: str, with_table: Callable[[Any], Any]
) -> None:
    """Breaks one method; `with_table` returns the part of the metadata that has
    the block table."""
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
    """Returns a slab as soon as its last block is free, without waiting for the
    fence."""
    from fineserve_vllm.pool import LeasedBlockPool

    original = LeasedBlockPool.return_drained

    def return_drained(self: LeasedBlockPool) -> list[int]:
        for leaving in self._leaving.values():
            leaving.barrier = 0
        return original(self)

    LeasedBlockPool.return_drained = return_drained


def _forget_the_connector() -> None:
    """Returns a slab although the connector still copies its blocks."""
    from fineserve_vllm import transfers

    transfers.held_blocks = lambda scheduler: None


def _forget_the_drafter() -> None:
    """Returns a slab when its last step has been processed, even if a drafter
    still writes."""
    from fineserve_vllm.fence import StepFence

    StepFence.passed = lambda self, barrier: barrier <= self.processed


def _return_undrained_slabs() -> None:
    """Returns slabs when they are asked back, although requests still use their
    blocks."""
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
    """Returns a slab although a connector still fills its blocks."""
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
    """Lets a slab go when a read into it is reported as failed."""
    from fineserve_vllm.receives import Receives

    Receives._keep = lambda self, blocks: None


def _register_at_once() -> None:
    """Makes the connector register the memory on which the engine starts."""
    from fineserve_vllm.registration import Registration

    Registration.defer = lambda self, vllm_config: None


def _leave_out_sums() -> None:
    """Makes each rank continue with its own part of a sum over ranks."""
    from vllm.distributed.device_communicators.cuda_communicator import (
        CudaCommunicator,
    )

    def own_part(
        self: Any,
        input_: Any,
        dim: int = -1,
        sizes: list[int] | None = None,
        output: Any = None,
    ) -> Any:
        count = self.world_size
        shares = sizes or [input_.shape[0] // count] * count
        first = sum(shares[: self.rank_in_group])
        part = input_[first : first + shares[self.rank_in_group]]
        return part.clone() if output is None else output.copy_(part)

    CudaCommunicator.all_reduce = lambda self, input_: input_.clone()
    CudaCommunicator.reduce_scatterv = own_part
    if hasattr(CudaCommunicator, "_reduce_scatterv"):  # vLLM 0.33
        CudaCommunicator._reduce_scatterv = own_part


def _write_in_idle_batches() -> None:
    """Makes an idle batch of vLLM's second runner write where the last step
    wrote."""
    from vllm.v1.worker.gpu.block_table import BlockTables

    BlockTables.get_dummy_slot_mappings = (
        lambda self, num_tokens: self.slot_mappings[:, :num_tokens]
    )


def _fail_to_sleep() -> None:
    """Makes sleep fail, as if there were no host memory for the weights."""
    from vllm.device_allocator.sleep_mode_backend import CuMemBackend

    def suspend(self: CuMemBackend, level: int = 1) -> None:
        raise MemoryError("no memory for the weights")

    CuMemBackend.suspend = suspend
