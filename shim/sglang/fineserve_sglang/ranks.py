"""An SGLang on several GPUs: a scheduler process for each, all of which decide
alike from the requests that the first one broadcasts (--tensor-parallel-size)
or passes on to the next stage (--pipeline-parallel-size).

Each has a view of its GPU's pool, and page numbers are the same on all of them.
The first rank is the one that agrees with the daemons (shim/fineserve_kv.h,
fs_kv_join_ranks). SGLang's ranks stay alike only if every free list changes at
the same step, so the first one sends what a step begins with ahead of the
step's requests, the way that SGLang sends these. The fence of the first rank is
that of all: a step's last collective needs what every rank has computed from
the KV that it has written in its last layer, and a step's tokens, which the last
stage of a pipeline sends around to the first one, need that of every stage.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import torch
from fineserve_vllm import kv_abi
from fineserve_vllm.grants import Changes
from fineserve_vllm.shim_grants import ShimGrants

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Turn:
    """The changes that a step begins with, on every rank.

    sorts: the free list is brought in order, and the pages in use are counted.
    returned: what the steps before have returned since the last turn.
    """

    changes: Changes = Changes()
    sorts: bool = False
    returned: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        changes = self.changes
        return bool(
            changes.leased or changes.asked_back or self.sorts or self.returned
        )


class RankGrants(ShimGrants):
    """The leases of all ranks, held by the first rank once it has joined them.
    An engine on several GPUs never leaves them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._returned: list[int] = []

    @property
    def presence(self) -> kv_abi.Presence:
        return kv_abi.Presence.HERE

    def return_slab(self, index: int) -> None:
        super().return_slab(index)
        self._returned.append(index)

    def take_returned(self) -> tuple[int, ...]:
        """Returns the slabs that were returned since the last call, in
        order."""
        returned, self._returned = tuple(self._returned), []
        return returned


class FollowerGrants(RankGrants):
    """The grants of any rank but the first, which talks to the daemon for all
    ranks."""

    def poll(self) -> Changes:
        return Changes()

    def want(self, slab_count: int) -> None:
        pass

    def return_slab(self, index: int) -> None:
        self._returned.append(index)

    def publish(self, index: int, used_blocks: int) -> None:
        pass


class Ranks:
    """The ranks of one engine, as one of them sees them. It counts as alone
    until find() finds other ranks. Confined to the scheduler's thread."""

    def __init__(self, group: Any = None) -> None:
        self.are_a_pipeline = False
        self._group = group  # SGLang's, of all ranks; None: alone
        self._grants: RankGrants | None = None
        self._look: Callable[[], Turn] = Turn
        self._turn = Turn()
        self._next_turn = Turn()  # received

    def find(self) -> None:
        from sglang.srt.runtime_context import get_parallel

        parallel = get_parallel()
        if parallel.tp_size * parallel.pp_size > 1:
            self._group = parallel.world_group
        self.are_a_pipeline = parallel.pp_size > 1

    @property
    def are_several(self) -> bool:
        return self._group is not None

    @property
    def is_first(self) -> bool:
        return self._group is None or bool(self._group.rank_in_group == 0)

    def least(self, number: int) -> int:
        """Returns the least of the numbers that the ranks pass. Each rank must
        call it."""
        return min(self._gather(number))

    def check_stages(self, layers: int) -> None:
        """Refuses stages of a pipeline that do not keep KV alike. Each rank
        must call it.

        Raises:
            RuntimeError: a slab would have other tokens on each GPU.
        """
        found = self._gather(layers)
        if min(found) != max(found):
            raise RuntimeError(
                f"FineServe: stages of a pipeline with {min(found)} to "
                f"{max(found)} layers are not supported yet: set "
                f"SGLANG_PP_LAYER_PARTITION so that all have as many"
            )

    def _gather(self, its: Any) -> list[Any]:
        """Returns what each rank passes, in the order of the ranks."""
        if self._group is None:
            return [its]
        found: list[Any] = [None] * self._group.world_size
        torch.distributed.all_gather_object(
            found, its, group=self._group.cpu_group
        )
        return found

    def grants(
        self, shim: kv_abi.Shim, geometry: kv_abi.Geometry, pages: int
    ) -> ShimGrants:
        """Returns the grants of this rank's registered view. Only slabs that
        all GPUs have can be leased."""
        if self._group is None:
            return ShimGrants(shim, geometry, pages)
        geometry.slab_count = self.least(geometry.slab_count)
        kind = RankGrants if self.is_first else FollowerGrants
        self._grants = kind(shim, geometry, pages)
        return self._grants

    def join(self, shim: kv_abi.Shim) -> None:
        """Makes the first rank take over the pages of all ranks. The views of
        all ranks must be active."""
        if self._group is None:
            return
        found = self._gather(shim.rank())
        if not self.is_first:
            return
        geometry = shim.join_ranks(found)
        _log.info(
            "FineServe: the pages span the GPUs of all ranks: %d slabs, of "
            "which %d are always leased and at most %d at a time",
            geometry.slab_count,
            geometry.floor_slabs,
            geometry.cap_slabs,
        )

    def begin_with(self, look: Callable[[], Turn]) -> None:
        """Sets `look`, which finds the changes that the next step begins with;
        only the first rank's result counts."""
        self._look = look

    def turn(self) -> Turn:
        """Returns the changes that this step begins with."""
        if self._group is None:
            return self._look()
        self._turn, self._next_turn = self._next_turn, Turn()
        return self._turn

    def passed_on(self, requests: list[Any]) -> list[Any]:
        """Returns what this stage of a pipeline sends to the next one:
        the step's turn, if there is one, and its requests."""
        if not (self.are_a_pipeline and self._turn):
            return requests
        return [self._turn, *requests]

    def broadcast(
        self,
        original: Callable[..., Any],
        receiver: Any,
        requests: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Wraps SGLang's broadcast of the requests of a step."""
        if self._group is None:
            return original(receiver, requests, *args, **kwargs)
        assert self._grants is not None
        if self.is_first:
            returned = self._grants.take_returned()
            turn = dataclasses.replace(self._look(), returned=returned)
            if turn:
                requests = [turn, *requests]
        received = original(receiver, requests, *args, **kwargs)
        if received and isinstance(received[0], Turn):
            self._next_turn, *received = received
            self._check(self._next_turn)
        return received

    def _check(self, turn: Turn) -> None:
        """Ends the engine if its ranks have diverged: one of them may use a
        slab that belongs to another engine by now."""
        assert self._grants is not None
        if self.is_first or not turn.returned:
            return
        own = self._grants.take_returned()
        if own != turn.returned:
            raise RuntimeError(
                f"FineServe: this rank has let go of slabs {own}, and the "
                f"first rank of {turn.returned}"
            )
