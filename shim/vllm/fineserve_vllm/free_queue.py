"""The free queue of a pool whose blocks come and go with their slabs.

vLLM's queue is one deque: unhashed blocks are prepended (reused at once),
hashed ones appended (evicted last, in LRU order). So it always reads F ++ B,
where F holds the initial and prepended blocks and B the appended ones. Here B
stays vLLM's own linked list, which this class inherits, and F is split by slab
into plain lists used as stacks. Blocks leave F from the densest slab first (the
one with the fewest blocks in F; cached blocks count as occupied), then B in LRU
order. With one slab the order is vLLM's, id by id.

Blocks freed since the last settle() are in one stack, `_recent`, and are reused
first, last in first out: sorting them into their slabs costs one pass, paid at
schedule entry instead of once per free.

A block is in B exactly if it is linked (prev_free_block is set).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock

from fineserve_vllm.grants import Slab

_Stack = list[KVCacheBlock]  # top at the end

_pop_linked = FreeKVCacheBlockQueue.popleft_n
_unlink = FreeKVCacheBlockQueue.remove


class LeasedFreeQueue(FreeKVCacheBlockQueue):
    """Drop-in for FreeKVCacheBlockQueue that links only leased blocks.

    Confined to the scheduler's thread. `num_free_blocks` is the inherited
    counter; it covers F and B, never a block of a slab that is leaving.

    Args:
        blocks: every block of the view, by id.
        slabs: every slab of the view; all start unleased.
        on_left: called with each used block of a leaving slab when it is freed;
            that block does not enter the queue.
    """

    def __init__(
        self,
        blocks: Sequence[KVCacheBlock],
        slabs: Sequence[Slab],
        on_left: Callable[[KVCacheBlock], None],
    ) -> None:
        super().__init__([])
        self._blocks = blocks
        self._on_left = on_left
        self._ids = {slab.index: slab.ids for slab in slabs}
        # The last slab comes first: _rank() sorts stably and slabs are taken
        # from the end, so that of two equally dense slabs the lower one serves
        # first.
        self._stacks: dict[int, _Stack] = {
            slab.index: [] for slab in reversed(slabs)
        }
        # The stack of each block, by block id; unused for ids outside all
        # slabs.
        self._stack_of: list[_Stack] = [[]] * len(blocks)
        for slab in slabs:
            stack = self._stacks[slab.index]
            self._stack_of[slab.ids.start : slab.ids.stop] = [stack] * len(
                slab.ids
            )
        self._recent: _Stack = []
        self._current: _Stack = []
        self._order: list[_Stack] = []  # the slabs after _current, densest last
        self._leaving: set[int] = set()  # used block ids of leaving slabs

    # Leases.

    def link(self, index: int) -> None:
        """Adds a newly leased slab, all of whose blocks are unused."""
        ids = self._ids[index]
        self._stacks[index].extend(self._blocks[i] for i in reversed(ids))
        self.num_free_blocks += len(ids)
        self._rank()

    def unlink(self, index: int) -> list[KVCacheBlock]:
        """Takes a slab's free blocks out and returns them, by id. Each used
        block is reported through on_left when it is freed."""
        self._sort_in_recent()
        stack = self._stacks[index]
        taken = sorted(stack, key=lambda block: block.block_id)
        self.num_free_blocks -= len(taken)
        in_front = {block.block_id for block in taken}
        stack.clear()
        self._rank()
        for i in self._ids[index]:
            if i in in_front:
                continue
            block = self._blocks[i]
            if block.prev_free_block is None:
                self._leaving.add(i)
            else:
                _unlink(self, block)
                taken.append(block)
        self._shadow()
        return taken

    def settle(self) -> None:
        """Restores the order by density. Must be called at schedule entry."""
        # A single slab needs no order, and its ids must be reused as vLLM does.
        if self._recent and len(self._stacks) > 1:
            self._sort_in_recent()
            self._rank()

    def _sort_in_recent(self) -> None:
        stack_of = self._stack_of
        for block in self._recent:
            stack_of[block.block_id].append(block)
        self._recent.clear()

    def _rank(self) -> None:
        self._order = sorted(
            filter(None, self._stacks.values()), key=len, reverse=True
        )
        self._current = self._order.pop() if self._order else []

    # vLLM calls these methods. The bench (bench/vllm/blockpool_bench.py)
    # decided what is inlined here: a call through super() costs as much as
    # freeing two blocks.

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        stack = self._recent or self._current
        if 0 < n <= len(stack):
            self.num_free_blocks -= n
            if n == 1:
                return [stack.pop()]
            taken = stack[: -n - 1 : -1]
            del stack[-n:]
            return taken
        if stack or self._order:
            return self._gather(n)
        # Only B has blocks. The inherited method would do for any n, but the
        # detour costs 1 % of an allocation of 16 blocks that evicts.
        if n < 2:
            return _pop_linked(self, n)
        assert self.num_free_blocks >= n
        self.num_free_blocks -= n
        head = self.fake_free_list_head
        block: Any = head.next_free_block
        taken = []
        for _ in range(n):
            taken.append(block)
            following = block.next_free_block
            block.prev_free_block = block.next_free_block = None
            block = following
        head.next_free_block = block
        block.prev_free_block = head
        return taken

    def _gather(self, n: int) -> list[KVCacheBlock]:
        """Does the work of popleft_n when it needs several stacks, then B."""
        assert self.num_free_blocks >= n
        taken: list[KVCacheBlock] = []
        while len(taken) < n:
            stack = self._recent or self._current
            if not stack:
                if not self._order:
                    break
                self._current = self._order.pop()
                continue
            missing = n - len(taken)
            # If the stack has fewer than `missing` blocks, the slice is all of
            # it.
            taken += stack[: -missing - 1 : -1]
            del stack[-missing:]
        self.num_free_blocks -= len(taken)
        if len(taken) < n:
            taken += _pop_linked(self, n - len(taken))
        return taken

    def popleft(self) -> KVCacheBlock:
        if self.num_free_blocks == 0:
            raise ValueError("No free blocks available")
        return self.popleft_n(1)[0]

    def prepend_n(self, blocks: list[KVCacheBlock]) -> None:
        if blocks:
            self._recent += blocks[::-1]
            self.num_free_blocks += len(blocks)

    # append_n is vLLM's. While a slab is leaving, the two methods below shadow
    # prepend_n and append_n:

    def _prepend_staying(self, blocks: list[KVCacheBlock]) -> None:
        LeasedFreeQueue.prepend_n(self, self._without_leaving(blocks))

    def _append_staying(self, blocks: list[KVCacheBlock]) -> None:
        super().append_n(self._without_leaving(blocks))

    def _shadow(self) -> None:
        """Shadows prepend_n and append_n only while a slab is leaving, so that
        freeing costs nothing extra otherwise."""
        if self._leaving:
            vars(self)["prepend_n"] = self._prepend_staying
            vars(self)["append_n"] = self._append_staying
        else:
            vars(self).pop("prepend_n", None)
            vars(self).pop("append_n", None)

    def append(self, block: KVCacheBlock) -> None:
        self.append_n([block])

    def remove(self, block: KVCacheBlock) -> None:
        if block.prev_free_block is not None:
            _unlink(self, block)
            return
        # vLLM touches blocks through their hash, so they are in B. The code
        # below is for callers that take any free block.
        for stack in (self._recent, self._stack_of[block.block_id]):
            for position, candidate in enumerate(stack):
                if candidate is block:
                    del stack[position]
                    self.num_free_blocks -= 1
                    return
        raise RuntimeError(f"remove() of a block that is not free: {block}")

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        front: list[KVCacheBlock] = self._recent[::-1] + self._current[::-1]
        for stack in reversed(self._order):
            front += stack[::-1]
        return front + super().get_all_free_blocks()

    def iter_blocks_after(
        self, cursor: KVCacheBlock | None
    ) -> Iterator[KVCacheBlock]:
        if cursor is not None and cursor.prev_free_block is not None:
            yield from super().iter_blocks_after(cursor)
            return
        found = cursor is None
        for block in self.get_all_free_blocks():
            if found:
                yield block
            found = found or block is cursor

    def _without_leaving(
        self, blocks: list[KVCacheBlock]
    ) -> list[KVCacheBlock]:
        kept = []
        for block in blocks:
            if block.block_id in self._leaving:
                self._leaving.remove(block.block_id)
                self._on_left(block)
            else:
                kept.append(block)
        self._shadow()
        return kept
