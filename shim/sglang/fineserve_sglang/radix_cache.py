"""SGLang's radix cache, which evicts the entries that it keeps in leaving
slabs."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import (
    DecLockRefResult,
    InsertResult,
)
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from fineserve_sglang.leased_pages import LeasedPages


class LeasedRadixCache(UnifiedRadixCache):
    """Runs on SGLang's Python tree: the Rust tree does not reveal which nodes
    keep a page. An entry that a request uses stays until the request ends;
    further requests may join it until then. An entry that is being copied to
    the host or back (--enable-hierarchical-cache) stays, too: SGLang locks it
    until the device has copied it."""

    def __init__(self, params: Any) -> None:
        params.tree_core_backend = "python"
        # True if an entry may have become evictable since the last eviction.
        self._changed = True
        super().__init__(params)

    def insert(self, params: Any) -> InsertResult:
        self._changed = True
        return super().insert(params)

    def dec_lock_ref(self, *args: Any, **kwargs: Any) -> DecLockRefResult:
        self._changed = True
        return super().dec_lock_ref(*args, **kwargs)

    def evict_leaving(self, leased: LeasedPages, asked_back: bool) -> None:
        """Evicts the entries that no request uses and that keep a page of a
        leaving slab, together with their descendants. Afterwards no evictable
        entry keeps such a page, so evictable_size() counts only what can be
        allocated again."""
        if self.disable or not (asked_back or self._changed):
            return
        self._changed = False
        nodes = [n for n in self._nodes() if not _locked(n)]
        if not nodes:
            return
        values = [_value(node) for node in nodes]
        pages = torch.cat(values) // self.page_size
        hit = leased.is_leaving[leased.slab_of_page[pages]].cpu()
        parts = hit.split([len(value) for value in values])
        for node, part in zip(nodes, parts):
            if part.any():
                self._evict_below(node)
        if hit.any() and self._writes_back():
            # Each rank has waited for its own copies alone, and the first one
            # returns the slabs of all.
            self._all_reduce(torch.zeros(1), torch.distributed.ReduceOp.MIN)

    def _writes_back(self) -> bool:
        """Returns True with --hicache-write-policy write_back."""
        copies = self.cache_controller
        return copies is not None and copies.write_policy == "write_back"

    def _nodes(self) -> list[Any]:
        """Returns the nodes with pages on the device."""
        return [
            node
            for node in self.tree_core._collect_all_nodes()
            if _value(node) is not None
        ]

    def _evict_below(self, node: Any) -> None:
        """Evicts a node after all its descendants. Copies on the host stay."""
        below = [node]
        for one in below:
            below.extend(one.children.values())
        tracker = {component: 0 for component in self.tree_components}
        for one in reversed(below):
            # The eviction of another node may have evicted this one, too.
            if one.id in self.tree_core._node_arena and _value(one) is not None:
                self._evict_leaf(one.id, tracker)

    def _evict_leaf(self, node: int, tracker: dict[Any, int]) -> None:
        backup = self._evict_device_leaf(node, tracker)
        if backup is None:
            return
        # --hicache-write-policy write_back: it has no copy on the host yet.
        if self._execute_and_commit_kv_backup(backup, write_back=True):
            self.writing_check(write_back=True)  # waits for the device
            self._demote(node, tracker)
        else:
            self._drop_subtree_no_host(node, tracker)


def _value(node: Any) -> torch.Tensor | None:
    value: torch.Tensor | None = node.component_data[ComponentType.FULL].value
    return value


def _locked(node: Any) -> bool:
    """Then its ancestors are, too."""
    return any(data.lock_ref > 0 for data in node.component_data)
