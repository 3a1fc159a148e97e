"""Doubles of a block and of the queue of free blocks."""

import dataclasses
from typing import Any


@dataclasses.dataclass(eq=False)
class KVCacheBlock:
    block_id: int
    ref_cnt: int = 0
    pool: Any = None
    block_hash: Any = None
    prev_free_block: Any = dataclasses.field(default=None, repr=False)
    next_free_block: Any = dataclasses.field(default=None, repr=False)
    is_null: bool = False

    def set_block_hash(self, block_hash, num_tokens=None):
        assert self.block_hash is None
        self.block_hash = block_hash

    def reset_hash(self):
        self.block_hash = None


class FreeKVCacheBlockQueue:
    """A ring through one sentinel, known as head and as tail."""

    def __init__(self, blocks):
        ring = KVCacheBlock(-1)
        ring.prev_free_block = ring.next_free_block = ring
        self.fake_free_list_head = self.fake_free_list_tail = ring
        self.num_free_blocks = 0
        self.append_n(blocks)

    def popleft(self):
        if self.num_free_blocks == 0:
            raise ValueError("No free blocks available")
        return FreeKVCacheBlockQueue.popleft_n(self, 1)[0]

    def popleft_n(self, n):
        assert n <= self.num_free_blocks
        head = self.fake_free_list_head
        blocks = []
        for _ in range(n):
            blocks.append(head.next_free_block)
            FreeKVCacheBlockQueue.remove(self, blocks[-1])
        return blocks

    def remove(self, block):
        before, after = block.prev_free_block, block.next_free_block
        if before is None or after is None:
            raise RuntimeError(f"not in the queue: {block}")
        before.next_free_block, after.prev_free_block = after, before
        block.prev_free_block = block.next_free_block = None
        self.num_free_blocks -= 1

    def append(self, block):
        self.append_n([block])

    def append_n(self, blocks):
        for block in blocks:
            self._insert(block, self.fake_free_list_tail)

    def prepend_n(self, blocks):
        first = self.fake_free_list_head.next_free_block
        for block in blocks:
            self._insert(block, first)

    def _insert(self, block, after):
        before = after.prev_free_block
        block.prev_free_block, block.next_free_block = before, after
        before.next_free_block = after.prev_free_block = block
        self.num_free_blocks += 1

    def get_all_free_blocks(self):
        return list(_follow(self.fake_free_list_head))

    def iter_blocks_after(self, cursor):
        return _follow(cursor or self.fake_free_list_head)


def _follow(block):
    while (block := block.next_free_block) is not None and block.block_id >= 0:
        yield block
