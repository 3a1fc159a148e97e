"""vLLM's block pool on leased slabs.

The pool keeps a KVCacheBlock for every id of the view, but its free queue links
only ids of leased slabs, and num_gpu_blocks counts what the pool has now
instead of the view. Everything else is vLLM's own code: admission reads the
free count, and get_usage and reset_prefix_cache compare it with num_gpu_blocks.
The two readers outside the pool, which take num_gpu_blocks + 1 as a number that
cannot be allocated, stay correct.

Life of a slab here: unleased -> linked -> leaving (asked back; used blocks
left) -> drained (waits for the fence) -> unleased.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock

from fineserve_vllm.fence import StepFence
from fineserve_vllm.free_queue import LeasedFreeQueue
from fineserve_vllm.grants import Changes, Grants, Slab

# From the number of blocks in the view to the engine's leases.
GrantsFactory = Callable[[int], Grants]


@dataclasses.dataclass
class _Leaving:
    used: set[int]  # block ids
    barrier: int = 0  # of the fence; matters once `used` is empty


class HeldByScheduler:
    """A pool's lock while the scheduler's thread holds it for a whole step's
    construction or the intake of a result. As a context it takes the lock.

    Only the scheduler's thread frees blocks, so that one that sees `now` set
    needs no lock of its own; a thread that looks at leases never frees any.
    """

    __slots__ = ("now", "_lock")

    def __init__(self, lock: threading.RLock) -> None:
        self.now = False
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.acquire()
        self.now = True

    def __exit__(self, *error: object) -> None:
        self.now = False
        self._lock.release()


class LeasedBlockPool(BlockPool):
    """A BlockPool whose capacity follows its leases.

    Confined to the thread that holds `lock`: the scheduler's within a step's
    construction and the intake of its result (`held_by_scheduler`), and between
    them a thread that looks at leases. Methods that vLLM calls at other times
    take the lock themselves. vLLM constructs it with its own arguments, which
    differ between versions and are passed through; the grants come from
    `grants` or, for vLLM's calls, from `grants_factory`.

    Invariants: a block is handed out only while its slab is linked; a slab is
    returned only when none of its blocks is used or cached, the fence has
    passed the step at which the last one was freed, and no KV connector may
    read it (transfers.py). The null block is id 0, which is in no slab.
    """

    grants_factory: GrantsFactory | None = None  # set by plugin.install()
    free_block_queue: LeasedFreeQueue

    def __init__(
        self, *args: Any, grants: Grants | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if grants is None:
            factory = type(self).grants_factory
            if factory is None:
                raise RuntimeError(
                    "LeasedBlockPool has no leases: pass `grants` or call "
                    "fineserve_vllm.plugin.install()"
                )
            grants = factory(len(self.blocks))
        self.grants = grants
        self.lock = threading.RLock()
        self.held_by_scheduler = HeldByScheduler(self.lock)
        self.fence = StepFence()
        # The blocks that a KV connector may still read, besides those in use.
        self.held_by_connector: Callable[[], set[int]] | None = None
        slabs = grants.slabs()
        self._slabs = {slab.index: slab for slab in slabs}
        self._check(slabs)
        self._smallest_slab = max(
            1, min((len(slab.ids) for slab in slabs), default=1)
        )
        self._linked: set[int] = set()
        self._leaving: dict[int, _Leaving] = {}
        self._leaving_slab_of: dict[int, int] = {}  # by used block id
        for block in self.blocks:
            block.prev_free_block = block.next_free_block = None
        self.free_block_queue = LeasedFreeQueue(
            self.blocks, slabs, self._block_left
        )
        self.num_gpu_blocks = 1  # the null block
        self.apply(grants.poll())

    # The bench (bench/vllm/blockpool_bench.py) decided how this is written: the
    # lock, super() and forwarding arguments cost as much as freeing a block.
    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        if self.held_by_scheduler.now:
            BlockPool.free_blocks(self, ordered_blocks)
            return
        with self.lock:
            BlockPool.free_blocks(self, ordered_blocks)

    def evict_blocks(self, *args: Any, **kwargs: Any) -> None:
        with self.lock:
            super().evict_blocks(*args, **kwargs)

    def reset_prefix_cache(self) -> bool:
        with self.lock:
            return super().reset_prefix_cache()

    def _check(self, slabs: Sequence[Slab]) -> None:
        end = 1  # 0 is the null block
        for slab in sorted(slabs, key=lambda slab: slab.ids.start):
            ids = slab.ids
            if not ids:  # its blocks all straddle its boundaries
                continue
            if ids.step != 1 or ids.start < end:
                raise ValueError(
                    f"slab {slab.index}: block ids {ids} overlap another slab, "
                    f"leave gaps or hold the null block"
                )
            end = ids.stop
        if end > len(self.blocks):
            raise ValueError(
                f"the slabs end at block id {end}, but the view ends at "
                f"{len(self.blocks)}"
            )

    # Leases. Within schedule(), apply() may be called at the entry only:
    # allocate_slots compares the free count more than once per request and must
    # not see it shrink.

    @property
    def linked(self) -> frozenset[int]:
        """Returns the slabs that blocks are allocated from, by view index."""
        return frozenset(self._linked)

    @property
    def leaving(self) -> frozenset[int]:
        """Returns the slabs that were asked back and have not been returned."""
        return frozenset(self._leaving)

    def holds(self, index: int) -> bool:
        """Returns True if blocks of the slab may be in use."""
        return index in self._linked or index in self._leaving

    @property
    def used_blocks(self) -> int:
        """Returns the number of blocks that requests use, including those in
        leaving slabs."""
        return self.num_gpu_blocks - 1 - self.get_num_free_blocks()

    def used_in_leaving(self, index: int) -> frozenset[int]:
        """Returns the ids of the blocks that keep a leaving slab from being
        drained."""
        return frozenset(self._leaving[index].used)

    def wanted_slabs(self, room: int) -> int:
        """Returns how many slabs to want: the leaving slabs, whose blocks
        cannot be handed out again, and slabs for the other used blocks and
        `room` more blocks."""
        staying = self.used_blocks - len(self._leaving_slab_of)
        wanted = len(self._leaving) + self.slabs_for(staying + room)
        return min(wanted, len(self._slabs))

    def slabs_for(self, block_count: int) -> int:
        """Returns how many slabs hold this many blocks; at most the number of
        all slabs."""
        return min(-(-block_count // self._smallest_slab), len(self._slabs))

    def apply(self, changes: Changes) -> None:
        """Grows and shrinks the pool according to the changes."""
        for index in changes.leased:
            if index in self._linked or index in self._leaving:
                raise ValueError(f"slab {index} was leased twice")
            self._linked.add(index)
            self.free_block_queue.link(index)
            self.num_gpu_blocks += len(self._slabs[index].ids)
        for index in changes.asked_back:
            if index in self._linked:
                self._start_leaving(index)
        self._evict_used_in_leaving()
        self.free_block_queue.settle()

    def return_drained(self) -> list[int]:
        """Returns the drained slabs that the fence has passed and that no
        connector reads."""
        if not self._leaving:
            return []
        ready = [
            index
            for index, leaving in self._leaving.items()
            if not leaving.used and self.fence.passed(leaving.barrier)
        ]
        if ready and self.held_by_connector is not None:
            held = self.held_by_connector()
            ready = [i for i in ready if held.isdisjoint(self._slabs[i].ids)]
        for index in ready:
            del self._leaving[index]
            self.grants.return_slab(index)
        return ready

    def suspend(self, end_leases: Callable[[], None]) -> None:
        """Gives all slabs back at once, until grants.resume(), by
        grants.suspend or grants.leave. No block is in use, and the device has
        nothing left to do.

        Raises:
            RuntimeError: a block is in use; nothing has changed.
        """
        if self.used_blocks or self._leaving_slab_of:
            raise RuntimeError(
                f"FineServe: {self.used_blocks} blocks of the KV cache are in "
                f"use: it cannot be suspended"
            )
        end_leases()
        for index in sorted(self._linked):
            self._start_leaving(index)
        self._leaving.clear()

    def _start_leaving(self, index: int) -> None:
        self._linked.remove(index)
        free = self.free_block_queue.unlink(index)
        self.num_gpu_blocks -= len(free)
        for block in free:
            self._forget(block)
        used = set(self._slabs[index].ids).difference(b.block_id for b in free)
        self._leaving[index] = _Leaving(used, self.fence.barrier())
        self._leaving_slab_of.update(dict.fromkeys(used, index))

    def _evict_used_in_leaving(self) -> None:
        """Keeps requests from joining used blocks of leaving slabs through the
        prefix cache, which could delay the return forever. This must be
        repeated because running requests cache the blocks that they fill."""
        for block_id in self._leaving_slab_of:
            block = self.blocks[block_id]
            if block.block_hash is not None:
                self._maybe_evict_cached_block(block)

    def _block_left(self, block: KVCacheBlock) -> None:
        """Called when a used block of a leaving slab has been freed."""
        self._forget(block)
        self.num_gpu_blocks -= 1
        leaving = self._leaving[self._leaving_slab_of.pop(block.block_id)]
        leaving.used.remove(block.block_id)
        leaving.barrier = self.fence.barrier()

    def _forget(self, block: KVCacheBlock) -> None:
        """Drops a block's former content, as get_new_blocks does."""
        if self._reuse_watchers:
            self._notify_reuse([block])
        self._maybe_evict_cached_block(block)
