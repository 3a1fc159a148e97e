"""The interface between vLLM's block pool and leases.

For vLLM a slab is a range of block ids. The pool links only the ids of leased
slabs. All calls come from the thread that holds the pool's lock; none may
block.
The in-memory implementation replaces the daemon in tests and benches;
shim_grants.py talks to the daemon through the preloaded shim.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from fineserve_vllm import kv_abi
from fineserve_vllm.log import logger

_log = logger(__name__)

_COME_BACK_S = 1.0
_LONG_WAIT = 10  # tries


@dataclasses.dataclass(frozen=True)
class Slab:
    """One leasable slab.

    index: view index, from 1 (index 0 is the engine's private scratch, where
        the null block lives).
    ids: the usable block ids; ids that straddle a slab boundary are left out.
    """

    index: int
    ids: range


@dataclasses.dataclass(frozen=True)
class Changes:
    """The changes of leases since the last poll, by view index."""

    leased: Sequence[int] = ()
    asked_back: Sequence[int] = ()


class Grants(Protocol):
    """An engine's leases."""

    def slabs(self) -> Sequence[Slab]:
        """Returns every slab of the view, leased or not, in order of index."""

    def poll(self) -> Changes:
        """Returns new leases and ask-backs. A slab asked back stays leased
        until return_slab(); asking for it again changes nothing."""

    def want(self, slab_count: int) -> None:
        """Sets how many slabs the engine could use now, including those that it
        has."""

    def return_slab(self, index: int) -> None:
        """Ends a lease. The caller vouches that no block of the slab is in use
        or cached and that no step in flight may still write it."""

    def publish(self, index: int, used_blocks: int) -> None:
        """Publishes how many blocks of a slab are used by requests. The number
        decides which slabs are asked back first."""

    def suspend(self) -> None:
        """Ends all leases at once, and the claim to further slabs, until
        resume(). The caller vouches as for return_slab(). If it raises, nothing
        has changed."""

    def resume(self) -> None:
        """Takes part again; poll() reports what is leased. If it raises,
        nothing has changed."""

    # Eviction (scripts/design/0039-weights-leave.md).

    @property
    def presence(self) -> kv_abi.Presence:
        """Returns whether the engine's memory is on the GPU, and whether it has
        been asked to leave."""

    def leave(self) -> None:
        """Does what suspend() does, and lets the engine's memory leave the GPU.
        Raises, with nothing changed, if the engine is not asked to leave."""

    def come_back(self, timeout_s: float) -> bool:
        """Asks for the memory; returns True once it is on the GPU."""

    def came_back(self) -> bool:
        """Takes part again, as after resume(), once the memory is back. Returns
        False if the memory of some ranks is not back yet: call it again."""


def has_left(leave: Callable[[], None]) -> bool:
    """Calls leave(). Returns False, with nothing changed, if the engine is no
    longer asked to leave."""
    try:
        leave()
    except kv_abi.KvError as error:
        if error.code != kv_abi.Error.STATE:
            raise
        _log.info("%s", error)
        return False
    return True


def try_to_come_back(grants: Grants, tries: int) -> bool:
    """Asks for the engine's memory for the `tries`th time, and waits for it for
    a second. Returns True if the engine takes part again."""
    if grants.come_back(_COME_BACK_S) and grants.came_back():
        return True
    if tries == _LONG_WAIT:
        _log.warning(
            "FineServe: requests wait for this engine's memory, which "
            "has left the GPU: fsctl status says why it is not back"
        )
    return False


class InMemoryGrants:
    """Grants whose leases the owner of this object decides. Not thread-safe."""

    def __init__(self, slabs: Iterable[Slab], leased: Iterable[int]) -> None:
        self._slabs = list(slabs)
        self._held: set[int] = set()
        self._newly_leased: list[int] = []
        self._asked_back: list[int] = []
        self.wanted = 0
        self.suspended = False
        self.presence = kv_abi.Presence.HERE
        self.asked_to_come_back = 0
        self.used: dict[int, int] = {}  # by view index, as published
        self.returned: list[int] = []  # in order, for tests
        for index in leased:
            self.lease(index)

    @classmethod
    def uniform(
        cls, slab_count: int, blocks_per_slab: int, leased: Iterable[int] = ()
    ) -> InMemoryGrants:
        """Returns grants with slab_count leasable slabs besides the private
        index 0."""
        slabs = [
            Slab(i, range(i * blocks_per_slab, (i + 1) * blocks_per_slab))
            for i in range(1, slab_count + 1)
        ]
        return cls(slabs, leased)

    @classmethod
    def everything(cls, num_blocks: int) -> InMemoryGrants:
        """Returns grants with one leased slab that holds every id but the null
        block's. The pool must then behave like vLLM's own pool, down to the
        ids."""
        return cls([Slab(1, range(1, num_blocks))], leased=[1])

    def slabs(self) -> Sequence[Slab]:
        return self._slabs

    def poll(self) -> Changes:
        changes = Changes(self._newly_leased, self._asked_back)
        self._newly_leased, self._asked_back = [], []
        return changes

    def want(self, slab_count: int) -> None:
        self.wanted = slab_count

    def return_slab(self, index: int) -> None:
        self._held.remove(index)
        self.returned.append(index)

    def publish(self, index: int, used_blocks: int) -> None:
        self.used[index] = used_blocks

    def suspend(self) -> None:
        self._held.clear()
        self._newly_leased, self._asked_back = [], []
        self.suspended = True

    def resume(self) -> None:
        self.suspended = False

    def leave(self) -> None:
        self.suspend()
        self.presence = kv_abi.Presence.AWAY

    def come_back(self, timeout_s: float) -> bool:
        self.asked_to_come_back += 1
        self.presence = kv_abi.Presence.HERE
        return True

    def came_back(self) -> bool:
        self.resume()
        return True

    # The lessor's side.

    @property
    def held(self) -> frozenset[int]:
        return frozenset(self._held)

    def lease(self, index: int) -> None:
        assert index not in self._held
        self._held.add(index)
        self._newly_leased.append(index)

    def ask_back(self, index: int) -> None:
        assert index in self._held
        self._asked_back.append(index)
