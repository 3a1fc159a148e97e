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
    """SGLang's budget for letting requests in. By itself it relies on room
    that was free when a request came in; here that may have gone since."""

    allocator: _Leased | LeasedWindowsAllocator

    def _available_and_evictable(self) -> int:
        leased = self.allocator.leased
        kept = (leased.withheld + leased.reserved) * self.page_size
        return int(super()._available_and_evictable()) - kept

    def fit_chunk(self, *, chunk_limit: int, **request: Any) -> int | None:
        """Returns the part of a begun request's chunk that fits; None if it
        must wait."""
        room = int(super()._available_and_evictable()) - self.page_size
        room = room // self.page_size * self.page_size
        return min(chunk_limit, room) if room > 0 else None


class _WindowsBudget(_Budget, SWAPrefillBudget):
    """The same for layers of both kinds, which have a pool each."""

    def available_chunk_tokens(self, chunk_limit: int) -> int | None:
        windows = int(self.remaining_swa) - self.page_size
        if windows <= 0:
            return None
        # Not SGLang's, which does not let it have what is withheld for it.
        return PrefillBudget.available_chunk_tokens(
            self, min(chunk_limit, windows)
        )


class _Leased(BaseTokenToKVPoolAllocator):
    """The part that both allocators share. Confined to the scheduler's
    thread; leases change at the beginning of a step only, because SGLang
    compares available_size() with what it then allocates."""

    grants_factory: GrantsFactory | None = None  # set by plugin.register()
    # LeasedPages; None: SGLang's own allocator, of a pool that is no view.
    leased: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if type(self).grants_factory is None:
            raise RuntimeError("FineServe: this allocator has no leases")
        # True if pages were freed since the last look at the free list, which
        # waits for the device.
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
        takes what another one's last request needs: SGLang would abort that.
        For the same reason a request alone may have it."""
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
        """Tokens that have room now; `size` is the view's."""
        return self.leased.capacity * self.page_size

    def apply(self, changes: Changes) -> None:
        """Grows by the leased slabs. Slabs that were asked back leave by
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
        """All at once. Every page was free, and no slab was leaving."""
        self.leased.linked.clear()
        self.free_pages = self.free_pages[:0]

    def fill_densest_first(self) -> None:
        """Sorts the free list so that the slabs with the fewest free pages are
        filled first, and others can drain. Does not wait for the device."""
        slabs = self.leased.slab_of_page[self.free_pages]
        free = torch.zeros(
            self.leased.count, dtype=torch.int64, device=self.device
        ).index_add_(0, slabs, torch.ones_like(slabs))
        # Alike on all ranks of the engine.
        order = torch.argsort(
            free[slabs] * self.leased.count + slabs, stable=True
        )
        self.free_pages = self.free_pages[order]


class LeasedTokenAllocator(_Leased, TokenToKVPoolAllocator):
    """For pages of one token."""


class LeasedPagedAllocator(_Leased, PagedTokenToKVPoolAllocator):
    """For longer pages."""


class LeasedWindowsAllocator(SWATokenToKVPoolAllocator):
    """For layers of both kinds: those that attend to everything have leased
    pages, those that attend to a window a pool of their own. SGLang maps the
    slots of the first to those of the second and forgets it when either is
    freed, so a slab leaves without a slot that is mapped."""

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
        """Returns what SGLang's books count, by pool."""
        pools: tuple[tuple[int, int], tuple[int, int]]
        pools = super().swa_capacity_and_available(
            full_capacity=self.full_attn_allocator.capacity,
            swa_capacity=swa_capacity,
        )
        return pools


def leased_part(allocator: Any) -> Any:
    """Returns the allocator of a scheduler whose pages are leased."""
    return getattr(allocator, "full_attn_allocator", allocator)
