"""Double of the block pool: one hash per block, no metrics."""

import dataclasses
from typing import Any

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock


@dataclasses.dataclass
class BlockRemoved:
    block_hashes: list[Any]


class AllBlocksCleared:
    pass


class BlockHashToBlockMap:
    def __init__(self):
        self._cache = {}

    def insert(self, key, block):
        self._cache.setdefault(key, {})[block.block_id] = block

    def get_one_block(self, key):
        return next(iter(self._cache.get(key, {}).values()), None)

    def pop(self, key, block_id):
        blocks = self._cache.get(key, {})
        block = blocks.pop(block_id, None)
        if not blocks:
            self._cache.pop(key, None)
        return block

    def __len__(self):
        return len(self._cache)


class BlockPool:
    def __init__(
        self,
        num_gpu_blocks,
        enable_caching,
        hash_block_size,
        enable_kv_cache_events=False,
        metrics_collector=None,
        num_hash_lookahead_tokens=0,
        medium="GPU",
    ):
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.blocks = [
            KVCacheBlock(i, pool=self) for i in range(num_gpu_blocks)
        ]
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks)
        self.null_block = self.free_block_queue.popleft()
        self.null_block.is_null = True
        self.cached_block_hash_to_block = BlockHashToBlockMap()
        self.enable_kv_cache_events = enable_kv_cache_events
        self.kv_event_queue = []
        self._reuse_watchers = {}

    def get_new_blocks(self, num_blocks):
        if num_blocks > self.get_num_free_blocks():
            raise ValueError(f"fewer than {num_blocks} free blocks")
        blocks = self.free_block_queue.popleft_n(num_blocks)
        self._notify_reuse(blocks)
        for block in blocks:
            self._maybe_evict_cached_block(block)
            assert block.ref_cnt == 0
            block.ref_cnt = 1
        return blocks

    def _notify_reuse(self, blocks):
        for block in blocks:
            watcher = self._reuse_watchers.pop(block.block_id, None)
            if watcher is not None:
                watcher(block)

    def unpin_blocks(self, blocks, on_reuse):
        blocks = list(blocks)
        for block in blocks:
            block.ref_cnt -= 1
            self._reuse_watchers[block.block_id] = on_reuse
        self.free_block_queue.append_n([b for b in blocks if b.ref_cnt == 0])

    def _maybe_evict_cached_block(self, block):
        key = block.block_hash
        if key is None:
            return False
        self.cached_block_hash_to_block.pop(key, block.block_id)
        block.reset_hash()
        if self.enable_kv_cache_events:
            self.kv_event_queue.append(BlockRemoved([key]))
        return True

    def touch(self, blocks):
        for block in blocks:
            if block.is_null:
                continue
            if block.ref_cnt == 0:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, ordered_blocks):
        blocks = [b for b in ordered_blocks if not b.is_null]
        for block in blocks:
            block.ref_cnt -= 1
        free = [b for b in blocks if b.ref_cnt == 0]
        keep = [b for b in free if b.block_hash and self.enable_caching]
        self.free_block_queue.prepend_n([b for b in free if b not in keep])
        self.free_block_queue.append_n(keep)

    def evict_blocks(self, block_ids):
        for block_id in block_ids:
            self._maybe_evict_cached_block(self.blocks[block_id])

    def reset_prefix_cache(self):
        if self.num_gpu_blocks - self.get_num_free_blocks() != 1:
            return False
        self.cached_block_hash_to_block = BlockHashToBlockMap()
        self._notify_reuse([self.blocks[i] for i in list(self._reuse_watchers)])
        for block in self.blocks:
            block.reset_hash()
        if self.enable_kv_cache_events:
            self.kv_event_queue.append(AllBlocksCleared())
        return True

    def get_num_free_blocks(self):
        return self.free_block_queue.num_free_blocks

    def get_usage(self):
        total = self.num_gpu_blocks - 1
        return 1.0 - self.get_num_free_blocks() / total if total else 0

    def take_events(self):
        events, self.kv_event_queue = self.kv_event_queue, []
        return events
