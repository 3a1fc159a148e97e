"""SGLang's allocators of tokens and of pages, on leased slabs.

Allocating and freeing stay SGLang's code. Its free list holds pages of leased
slabs only, so that available_size() and what SGLang derives from it follow the
leases. A pool of its own for sliding windows is not leased: it is memory of the
engine, of a fixed size (view.py).
"""

from __future__ import annotations

from typing import Any

import torch
from fineserve_vllm.grants import Changes
from sglang.srt.mem_cache.allocator.base import BaseTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.prefill_budget import (
    PrefillBudget,
    SWAPrefillBudget,
)

from fineserve_sglang.leased_pages import GrantsFactory, LeasedPages


class _Budget(PrefillBudget):
    """SGLang's budget for letting requests in. SGLang's own version relies on
    room that was free when a request came in; with leases that room may have
    gone since."""

    allocator: _Leased | LeasedWindowsAllocator

    def _available_and_evictable(self) -> int:
        leased = self.allocator.leased
        kept = (leased.withheld + leased.reserved) * self.page_size
        return int(super()._available_and_evictable()) - kept

    def fit_chunk(self, *, chunk_limit: int, **request: Any) -> int | None:
        """Returns how much of the next chunk of a begun request fits; None if
        the request must wait."""
        room = int(super()._available_and_evictable()) - self.page_size
        room = room // self.page_size * self.page_size
        return min(chunk_limit, room) if room > 0 else None


class _WindowsBudget(_Budget, SWAPrefillBudget):
    """The same budget for a model with layers of both kinds, which have one
    pool each."""

    def available_chunk_tokens(self, chunk_limit: int) -> int | None:
        windows = int(self.remaining_swa) - self.page_size
        if windows <= 0:
            return None
        # Bypasses SGLang's own version, which would not let the chunk have the
        # pages that are withheld for it.
        return PrefillBudget.available_chunk_tokens(
            self, min(chunk_limit, windows)
        )


class _Leased(BaseTokenToKVPoolAllocator):
    """The part that both allocators share. Confined to the scheduler's thread.
    Leases change only at the beginning of a step, because SGLang compares
    available_size() with what it then allocates."""

    grants_factory: GrantsFactory | None = None  # set by plugin.register()
    # The LeasedPages; None for SGLang's own allocator of a pool that is not a
    # view.
    leased: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if type(self).grants_factory is None:
            raise RuntimeError("FineServe: this allocator has no leases")
        # True if pages were freed since the last look at the free list; each
        # look waits for the device.
        self._freed = True
        super().__init__(*args, **kwargs)
        if self.need_sort:
            raise RuntimeError(
                "FineServe: a sorted free list is not supported yet: set "
                "--disaggregation-mode null"
            )
        pages = self.size // self.page_size + 1  # and the padding page
        grants = type(self).grants_factory(pages)
        if grants is not None:
            self.leased = LeasedPages(grants, pages, self.device)
            self.clear()

    def clear(self) -> None:
        self._freed = True
        super().clear()
        if self.leased is not None:
            self.free_pages = self.leased.all_pages()

    def free(self, free_index: torch.Tensor) -> None:
        self._freed = True
        super().free(free_index)

    def free_page_ids(self, page_ids: torch.Tensor) -> None:
        self._freed = True
        super().free_page_ids(page_ids)

    def create_prefill_budget(
        self, tree_cache: Any, *, num_mixed_decode_tokens: int = 0
    ) -> PrefillBudget:
        return _Budget(
            self, tree_cache, num_mixed_decode_tokens=num_mixed_decode_tokens
        )

    def check_decode_capacity(
        self,
        *,
        num_tokens: int,
        tree_cache: Any,
        requests: Any = None,
        **more: Any,
    ) -> bool:
        """Returns False, so that requests are retracted, before a micro-batch
        takes the pages that the last request of another micro-batch needs:
        SGLang would abort that request. A request that is alone in its
        micro-batch may take them, for the same reason."""
        reserved = self.leased.reserved * self.page_size
        if reserved and num_tokens and requests and len(requests) > 1:
            room = self.available_size() + tree_cache.evictable_size()
            if room < num_tokens + reserved:
                return False
        return bool(
            super().check_decode_capacity(
                num_tokens=num_tokens,
                tree_cache=tree_cache,
                requests=requests,
                **more,
            )
        )

    @property
    def capacity(self) -> int:
        """Returns how many tokens have room now; `size` is the view's size."""
        return self.leased.capacity * self.page_size

    def apply(self, changes: Changes) -> None:
        """Adds the leased slabs. Slabs that were asked back leave in
        give_back()."""
        new = self.leased.apply(changes)
        self._freed = True
        if new:
            self.free_pages = torch.cat([self.free_pages, *new])

    def give_back(self, at_least: int) -> list[int]:
        """Takes the free pages of slabs that are leaving out of the free list
        unless fewer than `at_least` tokens would be free, and returns the slabs
        that have drained."""
        if self._freed or self.leased.withheld:
            self._freed = False
            self.free_pages = self.leased.keep(
                self.free_pages, -(-at_least // self.page_size)
            )
        return self.leased.return_drained()

    def leases_ended(self) -> None:
        """Ends all leases at once. Every page must be free, and no slab
        leaving."""
        self.leased.linked.clear()
        self.free_pages = self.free_pages[:0]

    def fill_densest_first(self) -> None:
        """Sorts the free list so that the slabs with the fewest free pages are
        filled first, and others can drain. Does not wait for the device."""
        slabs = self.leased.slab_of_page[self.free_pages]
        free = torch.zeros(
            self.leased.count, dtype=torch.int64, device=self.device
        ).index_add_(0, slabs, torch.ones_like(slabs))
        # The order is the same on all ranks of the engine.
        order = torch.argsort(
            free[slabs] * self.leased.count + slabs, stable=True
        )
        self.free_pages = self.free_pages[order]


class LeasedTokenAllocator(_Leased, TokenToKVPoolAllocator):
    """For pages of one token."""


class LeasedPagedAllocator(_Leased, PagedTokenToKVPoolAllocator):
    """For longer pages."""


class LeasedWindowsAllocator(SWATokenToKVPoolAllocator):
    """For layers of both kinds: layers that attend to everything have leased
    pages, and layers that attend to a window have a separate pool. SGLang maps
    the slots of the former to those of the latter and removes the mapping when
    either slot is freed, so no slot of a slab that leaves is still mapped."""

    full_attn_allocator: LeasedTokenAllocator | LeasedPagedAllocator

    @property
    def leased(self) -> LeasedPages:
        pages: LeasedPages = self.full_attn_allocator.leased
        return pages

    def create_prefill_budget(
        self, tree_cache: Any, *, num_mixed_decode_tokens: int = 0
    ) -> PrefillBudget:
        return _WindowsBudget(
            self, tree_cache, num_mixed_decode_tokens=num_mixed_decode_tokens
        )

    def swa_capacity_and_available(
        self, *, full_capacity: int, swa_capacity: int
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns the capacity and the available tokens of each pool, as
        SGLang's books count them."""
        pools: tuple[tuple[int, int], tuple[int, int]]
        pools = super().swa_capacity_and_available(
            full_capacity=self.full_attn_allocator.capacity,
            swa_capacity=swa_capacity,
        )
        return pools


def leased_part(allocator: Any) -> Any:
    """Returns the part of a scheduler's allocator whose pages are leased."""
    return getattr(allocator, "full_attn_allocator", allocator)
