"""Pages of 2 MiB of a KV cache in one piece, mapped while they are granted.

Implements fineserve_vllm.grants.Grants: a page is what a slab is to a view, so
that vLLM's block pool is the same and only the memory's way differs. As in
kvcached with its defaults, a thread keeps 5 pages mapped in advance and at most
10 emptied ones stay mapped.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from fineserve_vllm.grants import Changes, Slab
from on_demand_vllm import driver

AHEAD = 5
KEPT = 10


class Pages:
    """Confined to the thread that holds the block pool's lock, except the
    thread that maps ahead.

    Args:
        address: of the KV cache, a reserved range in which nothing is mapped
            but page 0, which has the null block.
        size: of the KV cache in bytes.
        page_bytes: of a block.
    """

    def __init__(self, address: int, size: int, page_bytes: int) -> None:
        self._address = address
        self._slabs = [
            Slab(i, _blocks_within(i, page_bytes))
            for i in range(1, size // driver.PAGE)
        ]
        self._granted: set[int] = set()
        self._asked_back: set[int] = set()
        self._used: dict[int, int] = {}
        self._fresh: list[int] = []  # granted since the last poll
        self._surplus: list[int] = []  # asked back since the last poll
        # Shared with the thread that maps ahead.
        self._changed = threading.Condition()
        self._handles: dict[int, int] = {}  # of mapped pages
        self._mapped: list[int] = []  # and not granted
        self._unmapped = [slab.index for slab in reversed(self._slabs)]
        self.calls = 0  # maps and unmaps
        threading.Thread(target=self._map_ahead, daemon=True).start()

    def slabs(self) -> Sequence[Slab]:
        return self._slabs

    def poll(self) -> Changes:
        changes = Changes(self._fresh, self._surplus)
        self._fresh, self._surplus = [], []
        return changes

    def want(self, slab_count: int) -> None:
        while len(self._granted) < min(slab_count, len(self._slabs)):
            page = self._take()
            self._granted.add(page)
            self._fresh.append(page)
        staying = self._granted - self._asked_back
        too_many = len(staying) - slab_count - KEPT
        if too_many > 0:
            emptiest = sorted(staying, key=lambda page: self._used.get(page, 0))
            self._surplus += emptiest[:too_many]
            self._asked_back.update(emptiest[:too_many])

    def return_slab(self, index: int) -> None:
        self._granted.remove(index)
        self._asked_back.discard(index)
        with self._changed:
            if len(self._mapped) < KEPT:
                self._mapped.append(index)
                return
            handle = self._handles.pop(index)
        self._unmap(index, handle)
        with self._changed:
            self._unmapped.append(index)

    def publish(self, index: int, used_blocks: int) -> None:
        self._used[index] = used_blocks

    def _take(self) -> int:
        with self._changed:
            if self._mapped:
                self._changed.notify()
                return self._mapped.pop()
            page = self._unmapped.pop()
        self._map(page)
        return page

    def _map(self, page: int) -> None:
        handle = driver.create()
        driver.map_page(self._address + page * driver.PAGE, handle)
        self.calls += 1
        with self._changed:
            self._handles[page] = handle

    def _unmap(self, page: int, handle: int) -> None:
        driver.unmap_page(self._address + page * driver.PAGE)
        driver.release(handle)
        self.calls += 1

    def _map_ahead(self) -> None:
        while True:
            with self._changed:
                while len(self._mapped) >= AHEAD or not self._unmapped:
                    self._changed.wait()
                page = self._unmapped.pop()
            self._map(page)
            with self._changed:
                self._mapped.append(page)


def _blocks_within(page: int, page_bytes: int) -> range:
    """Returns the ids of the blocks that lie entirely within one page."""
    return range(
        -(-page * driver.PAGE // page_bytes),
        (page + 1) * driver.PAGE // page_bytes,
    )
