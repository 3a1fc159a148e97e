"""SGLang's allocators of tokens and of pages, on leased slabs.

Allocating and freeing stay SGLang's code. Its free list holds pages of leased
slabs only, so that available_size() and what SGLang derives from it follow the
leases.
"""

from __future__ import annotations

from typing import Any

import torch
from fineserve_vllm.grants import Changes
from sglang.srt.mem_cache.allocator.base import BaseTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator

from fineserve_sglang.leased_pages import GrantsFactory, LeasedPages


class _Leased(BaseTokenToKVPoolAllocator):
    """What both have in common. Confined to the scheduler's thread; leases
    change at the beginning of a step only, because SGLang compares
    available_size() with what it then allocates."""

    grants_factory: GrantsFactory | None = None  # set by plugin.register()
    leased: LeasedPages

    def __init__(self, size: int, *args: Any, **kwargs: Any) -> None:
        if type(self).grants_factory is None:
            raise RuntimeError("FineServe: this allocator has no leases")
        if kwargs["need_sort"]:
            raise RuntimeError(
                "FineServe: a sorted free list is not supported yet: set "
                "--disaggregation-mode null"
            )
        # And the padding page.
        pages = size // kwargs.get("page_size", 1) + 1
        self.leased = LeasedPages(
            type(self).grants_factory(pages), pages, kwargs["device"]
        )
        super().__init__(size, *args, **kwargs)

    def clear(self) -> None:
        super().clear()
        self.free_pages = self.leased.all_pages()

    @property
    def capacity(self) -> int:
        """Tokens that have room now; `size` is the view's."""
        return self.leased.capacity * self.page_size

    def apply(self, changes: Changes) -> None:
        """Grows by what was leased. What was asked back goes by give_back()."""
        new = self.leased.apply(changes)
        if new:
            self.free_pages = torch.cat([self.free_pages, *new])

    def give_back(self) -> list[int]:
        """Takes the free pages of slabs that are leaving out of the free list,
        and returns the slabs that have drained."""
        self.free_pages = self.leased.keep(self.free_pages)
        return self.leased.return_drained()

    def fill_densest_first(self) -> None:
        """Sorts the free list so that the slabs with the fewest free pages are
        filled first, and others can drain. Does not wait for the device."""
        slabs = self.leased.slab_of_page[self.free_pages]
        free = torch.zeros(
            self.leased.count, dtype=torch.int64, device=self.device
        ).index_add_(0, slabs, torch.ones_like(slabs))
        order = torch.argsort(free[slabs] * self.leased.count + slabs)
        self.free_pages = self.free_pages[order]


class LeasedTokenAllocator(_Leased, TokenToKVPoolAllocator):
    """For pages of one token."""


class LeasedPagedAllocator(_Leased, PagedTokenToKVPoolAllocator):
    """For longer pages."""
