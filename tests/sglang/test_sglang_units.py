"""SGLang's own allocators on slabs that the test leases and asks back, without
a device (label sglang)."""

from __future__ import annotations

import pickle
import threading
import unittest
from array import array
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from fineserve_sglang import plugin
from fineserve_sglang.allocators import (
    LeasedPagedAllocator,
    LeasedTokenAllocator,
    LeasedWindowsAllocator,
    leased_part,
)
from fineserve_sglang.demand import Demand
from fineserve_sglang.radix_cache import LeasedRadixCache
from fineserve_sglang.ranks import Ranks, Turn
from fineserve_sglang.scheduler_leases import SchedulerLeases
from fineserve_sglang.usage import Usage
from fineserve_vllm.grants import Changes, InMemoryGrants
from fineserve_vllm.kv_abi import (
    ASKED_BACK,
    LEASED,
    Error,
    Geometry,
    KvError,
    Presence,
)
from sglang.srt.constants import HEALTH_CHECK_RID_PREFIX
from sglang.srt.mem_cache.base_prefix_cache import (
    InsertParams,
    MatchPrefixParams,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

SLABS = 4
PAGES = 8  # of a slab
_NO_GRAMMARS = SimpleNamespace(has_waiting_grammars=lambda: False)


class _NoCache:
    """A radix cache that keeps nothing."""

    def evictable_size(self) -> int:
        return 0

    def supports_mamba(self) -> bool:
        return False

    def supports_prefix_sharing(self) -> bool:
        return False

    def evict_leaving(self, leased: Any, asked_back: bool) -> None:
        pass


class _Allocators(unittest.TestCase):
    """Provides allocators with pages of one token and of four."""

    def setUp(self) -> None:
        self.each = [self.token(), self.paged()]

    def grants(self, pages: int) -> InMemoryGrants:
        self.assertEqual(pages, (SLABS + 1) * PAGES)
        return InMemoryGrants.uniform(SLABS, PAGES)

    def token(self) -> Any:
        LeasedTokenAllocator.grants_factory = staticmethod(self.grants)
        return LeasedTokenAllocator(
            (SLABS + 1) * PAGES - 1,
            dtype=torch.float32,
            device="cpu",
            kvcache=None,
            need_sort=False,
        )

    def paged(self) -> Any:
        LeasedPagedAllocator.grants_factory = staticmethod(self.grants)
        return LeasedPagedAllocator(
            ((SLABS + 1) * PAGES - 1) * 4,
            page_size=4,
            dtype=torch.float32,
            device="cpu",
            kvcache=None,
            need_sort=False,
        )

    def lease(self, allocator: Any, *slabs: int) -> None:
        for slab in slabs:
            allocator.leased.grants.lease(slab)
        allocator.apply(allocator.leased.grants.poll())

    def ask_back(self, allocator: Any, slab: int, at_least: int = 0) -> None:
        allocator.leased.grants.ask_back(slab)
        allocator.apply(allocator.leased.grants.poll())
        allocator.give_back(at_least)

    def pages(self, allocator: Any, slots: torch.Tensor) -> set[int]:
        return set((slots // allocator.page_size).tolist())


def _request(left: int, done: int = 0, **more: Any) -> Any:
    """A request that may generate `left` tokens after the `done` ones."""
    its = {
        "sampling_params": SimpleNamespace(max_new_tokens=left + done),
        "output_ids": [0] * done,
        "origin_input_ids": [0] * 30,
        "beam_group": None,
        "finished": lambda: False,
    }
    return SimpleNamespace(**(its | more))


def _batch(
    requests: list[Any], reads: bool = False, chunked: Any = None
) -> Any:
    """`reads`: prompts."""
    return SimpleNamespace(
        reqs=requests,
        forward_mode=SimpleNamespace(is_extend=lambda: reads),
        chunked_req=chunked,
        batch_is_full=False,
    )


class Demands(unittest.TestCase):
    """The demand of a running request that has 10 tokens to go, with pages of
    one token."""

    def demand(
        self, ahead: int, waiting: int = 0, beams: int | None = None
    ) -> Demand:
        group = None if beams is None else SimpleNamespace(beam_width=beams)
        request = _request(10, 10, beam_group=group)
        self.scheduler = SimpleNamespace(
            page_size=1,
            chunked_prefill_size=64,
            max_running_requests=4,
            running_batch=_batch([request]),
            last_batch=None,
            waiting_queue=[request] * waiting,
            chunked_req=None,
            _engine_paused=False,
        )
        return Demand(self.scheduler, ahead)

    def test_a_paused_engine_wants_pages_for_what_has_begun(self) -> None:
        demand = self.demand(0, waiting=1)
        self.scheduler._engine_paused = True
        self.assertEqual(demand.pages(), 4 + 1)
        self.assertEqual(demand.tokens_begun(), 10 + 2)

    def test_a_request_keeps_room_for_its_drafts(self) -> None:
        self.assertEqual(self.demand(0).tokens_begun(), 10 + 2)
        self.assertEqual(self.demand(8).tokens_begun(), 10 + 2 + 8)

    def test_drafts_are_wanted_beside_what_steps_may_accept(self) -> None:
        self.assertEqual(self.demand(0).pages(), 4 + 1)
        # Four steps of four tokens are more than the request's last 10.
        self.assertEqual(self.demand(8).pages(), 10 + 8 + 1)
        self.assertEqual(
            self.demand(8, waiting=1).pages(), 10 + 8 + 1 + 40 + 10 + 8 + 1
        )

    def test_each_beam_takes_as_much_as_a_request(self) -> None:
        self.assertEqual(self.demand(0, beams=3).tokens_begun(), 3 * 10 + 2)
        self.assertEqual(self.demand(0, beams=2).pages(), 2 * 4 + 1)
        self.assertEqual(
            self.demand(0, waiting=1, beams=2).pages(), 20 + 1 + 40 + 20 + 1
        )

    def test_requests_count_from_the_step_that_reads_their_prompt(
        self,
    ) -> None:
        demand = self.demand(0)
        (running,) = self.scheduler.running_batch.reqs
        read = _request(25)
        begun = _request(80, kv=SimpleNamespace(kv_allocated_len=20))
        for launched in (
            _batch([read, begun], reads=True, chunked=begun),
            # A step of prompts and of what runs.
            _batch([read, begun, running], reads=True, chunked=begun),
        ):
            self.scheduler.last_batch = launched
            self.scheduler.chunked_req = begun
            self.assertEqual(demand.tokens_begun(), 25 + 2 + 10 + 80 + 2)
            self.scheduler.chunked_req = None
            self.assertEqual(demand.pages(), 2 * (4 + 1))
            self.scheduler.running_batch = _batch([])
        read.finished = lambda: True
        self.assertEqual(demand.pages(), 4 + 1)


class Pipelines(_Allocators):
    """Three micro-batches: with two requests, with one, and with none."""

    def scheduler(self) -> Any:
        self.long, self.short = _request(20), _request(5)
        self.other = _request(10)
        batches = [
            _batch(requests)
            for requests in ([self.long, self.short], [], [])
        ]
        return SimpleNamespace(
            grammar_manager=_NO_GRAMMARS,
            page_size=1,
            chunked_prefill_size=64,
            max_running_requests=4,
            running_mbs=batches,
            running_batch=batches[0],
            last_batch=None,
            # The prompt of the second micro-batch's request was read just now.
            mbs=[batches[0], _batch([self.other], reads=True), None],
            waiting_queue=[],
            chunked_req=None,
            _engine_paused=False,
        )

    def test_each_micro_batch_can_end_one_of_its_requests(self) -> None:
        scheduler = self.scheduler()
        demand = Demand(scheduler, 0)
        self.assertEqual(demand.tokens_begun(), 20 + 2 + 10 + 2)
        self.assertEqual(demand.tokens_of_others(), 10 + 2)
        scheduler.running_batch = scheduler.running_mbs[2]
        self.assertEqual(demand.tokens_of_others(), 20 + 2 + 10 + 2)
        self.other.finished = lambda: True
        self.assertEqual(demand.tokens_of_others(), 20 + 2)
        self.assertTrue(demand.has_requests())
        self.long.finished = self.short.finished = lambda: True
        self.assertFalse(demand.has_requests())

    def test_a_prompt_that_is_being_read_counts_once(self) -> None:
        scheduler = self.scheduler()
        kv = SimpleNamespace(kv_allocated_len=10)
        chunked = _request(8, kv=kv)
        scheduler.mbs = [
            _batch([chunked], reads=True, chunked=chunked)
            for _ in range(3)
        ]
        scheduler.chunked_req = chunked
        demand = Demand(scheduler, 0)
        self.assertEqual(demand.tokens_begun(), 20 + 2 + 20 + 8 + 2)
        # The last part of the prompt is in the third micro-batch.
        scheduler.chunked_req = scheduler.mbs[2].chunked_req = None
        self.assertEqual(demand.tokens_begun(), 20 + 2 + 8 + 2)

    def test_wants_cover_the_pages_that_admission_keeps(self) -> None:
        scheduler = self.scheduler()
        demand = Demand(scheduler, 0)
        running = 20 + 1 + 5 + 1 + 10 + 1
        scheduler.waiting_queue = [_request(7)]
        for paused in (False, True):  # it does not stop
            scheduler._engine_paused = paused
            self.assertEqual(demand.pages(), running + 30 + 7 + 1 + 3)

    def test_others_keep_room_unless_a_request_is_alone(self) -> None:
        for allocator in self.each:
            page = allocator.page_size
            self.lease(allocator, 1)
            allocator.leased.reserved = 3
            budget = allocator.create_prefill_budget(_NoCache())
            self.assertEqual(budget.remaining_total, (PAGES - 3) * page)

            def fits(pages: int, requests: int) -> bool:
                return allocator.check_decode_capacity(
                    num_tokens=pages * page,
                    tree_cache=_NoCache(),
                    requests=[None] * requests,
                )

            self.assertTrue(fits(0, 2))
            self.assertTrue(fits(PAGES - 3, 2))
            self.assertFalse(fits(PAGES - 2, 2))
            self.assertTrue(fits(PAGES, 1))
            allocator.alloc((PAGES - 1) * page)
            self.assertTrue(fits(0, 2))
            self.assertFalse(fits(1, 2))
            allocator.clear()
            self.assertFalse(fits(PAGES + 1, 1))


class Allocator(_Allocators):
    def test_nothing_is_free_before_a_lease(self) -> None:
        for allocator in self.each:
            self.assertEqual(allocator.available_size(), 0)
            self.assertIsNone(allocator.alloc(allocator.page_size))

    def test_only_pages_of_leased_slabs_are_handed_out(self) -> None:
        for allocator in self.each:
            self.lease(allocator, 3, 1)
            size = 2 * PAGES * allocator.page_size
            self.assertEqual(allocator.available_size(), size)
            self.assertEqual(allocator.capacity, size)
            slots = allocator.alloc(size)
            self.assertEqual(
                self.pages(allocator, slots), {*range(8, 16), *range(24, 32)}
            )
            self.assertIsNone(allocator.alloc(allocator.page_size))

    def test_a_slab_goes_when_its_last_page_is_free(self) -> None:
        for allocator in self.each:
            self.lease(allocator, 1, 2)
            allocator.fill_densest_first()
            slots = allocator.alloc(3 * allocator.page_size)
            (slab,) = set(allocator.leased.slab_of_page[
                slots // allocator.page_size
            ].tolist())
            grants = allocator.leased.grants
            self.ask_back(allocator, slab)
            self.assertEqual(grants.returned, [])
            # Three pages of the leaving slab are still used; those of the other
            # slab are free.
            self.assertEqual(
                allocator.capacity, (3 + PAGES) * allocator.page_size
            )
            self.assertEqual(
                allocator.available_size(), PAGES * allocator.page_size
            )
            allocator.free(slots[: 2 * allocator.page_size])
            self.assertEqual(allocator.give_back(0), [])
            allocator.free(slots[2 * allocator.page_size :])
            self.assertEqual(allocator.give_back(0), [slab])
            self.assertEqual(grants.returned, [slab])
            self.assertEqual(allocator.capacity, PAGES * allocator.page_size)

    def test_a_slab_waits_for_the_steps_in_flight(self) -> None:
        for allocator in self.each:
            self.lease(allocator, 1)
            slots = allocator.alloc(allocator.page_size)
            fence = allocator.leased.fence
            first, second = object(), object()
            for step in first, second:
                fence.schedule_begins()
                fence.schedule_ends(step)
            fence.step_processed(first)
            allocator.free(slots)
            self.ask_back(allocator, 1)
            self.assertEqual(allocator.leased.grants.returned, [])
            self.assertEqual(allocator.available_size(), 0)
            fence.step_processed(second)
            self.assertEqual(allocator.give_back(0), [1])

    def test_pages_of_an_admitted_request_stay_free(self) -> None:
        for allocator in self.each:
            page = allocator.page_size
            self.lease(allocator, 1, 2)
            self.ask_back(allocator, 1, at_least=(PAGES + 1) * page)
            # The leaving slab's pages may still be taken, but not by a new
            # request.
            self.assertEqual(allocator.available_size(), 2 * PAGES * page)
            budget = allocator.create_prefill_budget(_NoCache())
            self.assertEqual(budget.remaining_total, PAGES * page)
            self.assertEqual(allocator.give_back(PAGES * page), [1])
            self.assertEqual(allocator.available_size(), PAGES * page)
            self.assertEqual(budget.remaining_total, PAGES * page)

    def test_wants_replace_the_free_pages_of_a_slab_that_leaves(self) -> None:
        for allocator in self.each:
            self.lease(allocator, 1, 2)
            slots = allocator.alloc((PAGES + 1) * allocator.page_size)
            used = self.pages(allocator, slots)
            (slab,) = {1, 2} - {min(used) // PAGES}
            self.ask_back(allocator, slab, at_least=2 * PAGES)
            leased = allocator.leased
            self.assertEqual(leased.withheld, PAGES - 1)
            # One page is used in the slab that leaves, all in the other.
            self.assertEqual(leased.wanted_slabs(PAGES + 1, 0), 1 + 1)
            self.assertEqual(leased.wanted_slabs(PAGES + 1, 1), 1 + 2)

    def test_a_chunk_takes_only_what_there_is(self) -> None:
        for allocator in self.each:
            page = allocator.page_size
            self.lease(allocator, 1)
            budget = allocator.create_prefill_budget(_NoCache())
            chunk = {"extend_input_len": 1000, "max_new_tokens": 1}
            self.assertEqual(
                budget.fit_chunk(chunk_limit=1000, **chunk), (PAGES - 1) * page
            )
            self.assertEqual(budget.fit_chunk(chunk_limit=page, **chunk), page)
            allocator.alloc((PAGES - 1) * page)
            self.assertIsNone(budget.fit_chunk(chunk_limit=page, **chunk))

    def test_the_densest_slab_is_filled_first(self) -> None:
        for allocator in self.each:
            self.lease(allocator, 1, 2, 3)
            slots = allocator.alloc(allocator.available_size())
            pages = slots // allocator.page_size
            # Slab 2 keeps most.
            kept = {8, 16, 17, 18, 24}
            allocator.free(slots[~torch.isin(pages, torch.tensor([*kept]))])
            allocator.fill_densest_first()
            taken = allocator.alloc(5 * allocator.page_size)
            self.assertEqual(self.pages(allocator, taken), set(range(19, 24)))

    def test_flushing_frees_what_is_held(self) -> None:
        for allocator in self.each:
            self.lease(allocator, 1, 2)
            allocator.alloc(3 * allocator.page_size)
            allocator.leased.grants.ask_back(1)
            allocator.apply(allocator.leased.grants.poll())
            allocator.clear()
            self.assertEqual(allocator.give_back(0), [1])
            self.assertEqual(
                allocator.available_size(), PAGES * allocator.page_size
            )


class _Caches(_Allocators):
    """The cache has two texts with the same beginning. The beginning is in slab
    1, the ends are in slabs 2 and 3."""

    def setUp(self) -> None:
        super().setUp()
        # There is no device.
        patch = mock.patch("torch.cuda.Event")
        patch.start()
        self.addCleanup(patch.stop)

    def cache(self, allocator: Any) -> LeasedRadixCache:
        cache = LeasedRadixCache(
            CacheInitParams(
                disable=False,
                req_to_token_pool=None,
                token_to_kv_pool_allocator=allocator,
                page_size=allocator.page_size,
                tree_components=(ComponentType.FULL,),
            )
        )
        self.lease(allocator, 1, 2, 3)
        slab = PAGES * allocator.page_size
        allocator.alloc(allocator.available_size())
        slots = torch.arange(4 * slab)
        for text, its in ((0, 2), (1, 3)):
            cache.insert(
                InsertParams(
                    key=self.text(allocator, text),
                    # The second text's beginning is already in the cache.
                    prev_prefix_len=text * slab,
                    value=torch.cat(
                        [
                            slots[slab : 2 * slab],
                            slots[its * slab : (its + 1) * slab],
                        ]
                    ),
                )
            )
        self.assertEqual(self.known(cache, 0), 2 * slab)
        self.assertEqual(self.known(cache, 1), 2 * slab)
        return cache

    def text(self, allocator: Any, end: int) -> RadixKey:
        slab = PAGES * allocator.page_size
        return RadixKey(array("q", [7] * slab + [end] * slab))

    def known(self, cache: LeasedRadixCache, end: int) -> int:
        """Returns how much of the text the cache has, in tokens."""
        return self.match(cache, end).device_prefix_len

    def scheduler(self, allocator: Any, cache: Any = None) -> Any:
        return SimpleNamespace(
            token_to_kv_pool_allocator=allocator,
            tree_cache=cache or self.cache(allocator),
            running_batch=_batch([]),
            last_batch=None,
            waiting_queue=[],
            _engine_paused=False,
            grammar_manager=_NO_GRAMMARS,
            chunked_req=None,
            chunked_prefill_size=64,
            page_size=allocator.page_size,
            max_running_requests=8,
            is_hybrid_ssm=False,
            req_to_token_pool=mock.Mock(),
            invariant_checker=SimpleNamespace(),
            pool_stats_observer=SimpleNamespace(),
        )

    def wait_for(self, scheduler: Any) -> None:
        """Has a request wait."""
        scheduler.waiting_queue.append(_request(4))

    def match(self, cache: LeasedRadixCache, end: int) -> Any:
        key = self.text(cache.token_to_kv_pool_allocator, end)
        return cache.match_prefix(MatchPrefixParams(key=key))


class RadixCache(_Caches):
    def leave(self, cache: LeasedRadixCache, slab: int) -> list[int]:
        allocator = cache.token_to_kv_pool_allocator
        allocator.leased.grants.ask_back(slab)
        allocator.apply(allocator.leased.grants.poll())
        cache.evict_leaving(allocator.leased, True)
        return allocator.give_back(0)

    def test_entries_of_a_slab_that_leaves_are_evicted(self) -> None:
        for allocator in self.each:
            cache = self.cache(allocator)
            self.assertEqual(self.leave(cache, 3), [3])
            slab = PAGES * allocator.page_size
            self.assertEqual(self.known(cache, 0), 2 * slab)
            self.assertEqual(self.known(cache, 1), slab)
            # Only the entry that had to be evicted was evicted.
            self.assertEqual(cache.evictable_size(), 2 * slab)
            self.assertEqual(allocator.available_size(), 0)

    def test_children_of_a_node_go_along(self) -> None:
        for allocator in self.each:
            cache = self.cache(allocator)
            self.assertEqual(self.leave(cache, 1), [1])
            self.assertEqual(cache.evictable_size(), 0)
            self.assertEqual(
                allocator.available_size(), 2 * PAGES * allocator.page_size
            )

    def test_an_entry_in_use_stays_until_its_request_ends(self) -> None:
        for allocator in self.each:
            cache = self.cache(allocator)
            lock = cache.lock(self.match(cache, 0).last_device_node)
            self.assertEqual(self.leave(cache, 1), [])
            self.assertEqual(self.leave(cache, 2), [])
            slab = PAGES * allocator.page_size
            self.assertEqual(self.known(cache, 0), 2 * slab)
            cache.unlock(lock)
            cache.evict_leaving(allocator.leased, False)
            self.assertEqual(sorted(allocator.give_back(0)), [1, 2])
            self.assertEqual(self.known(cache, 0), 0)

    def test_ranks_wait_for_each_others_copies_to_the_host(self) -> None:
        """Each has waited for its own when its entries are gone."""
        for policy, waits in ("write_back", 1), ("write_through", 0):
            for allocator in self.token(), self.paged():
                cache = self.cache(allocator)
                cache.cache_controller = mock.Mock(write_policy=policy)
                evicted: list[int] = []
                cache._evict_leaf = lambda node, _: evicted.append(node)
                cache._all_reduce = mock.Mock(
                    side_effect=lambda *_: self.assertTrue(evicted)
                )
                self.leave(cache, 3)
                self.assertEqual(cache._all_reduce.call_count, waits)
                cache.evict_leaving(allocator.leased, False)
                self.assertEqual(cache._all_reduce.call_count, waits)

    def test_one_rank_waits_for_none(self) -> None:
        for allocator in self.each:
            cache = self.cache(allocator)
            cache.cache_controller = mock.Mock(write_policy="write_back")
            cache._evict_leaf = mock.Mock()
            self.leave(cache, 3)
            cache._evict_leaf.assert_called_once()


class Windows(_Allocators):
    """Layers of sliding windows have a separate pool of WINDOWS pages."""

    WINDOWS = PAGES + 4

    def setUp(self) -> None:
        for name in "TokenToKVPoolAllocator", "PagedTokenToKVPoolAllocator":
            patch = mock.patch(
                f"sglang.srt.mem_cache.allocator.swa.{name}",
                LeasedTokenAllocator
                if name.startswith("T")
                else LeasedPagedAllocator,
            )
            patch.start()
            self.addCleanup(patch.stop)
        self.each = [self.windows(1), self.windows(4)]

    def windows(self, page: int) -> Any:
        """Returns an allocator of both pools. SGLang makes the leased part
        first."""
        answers = iter([InMemoryGrants.uniform(SLABS, PAGES), None])
        for kind in LeasedTokenAllocator, LeasedPagedAllocator:
            kind.grants_factory = staticmethod(lambda _: next(answers))
        pool = mock.Mock(spec=SWAKVPool)
        pool.swa_req_ring_size = None
        allocator = LeasedWindowsAllocator(
            ((SLABS + 1) * PAGES - 1) * page,
            self.WINDOWS * page,
            page,
            torch.float32,
            "cpu",
            pool,
            need_sort=False,
        )
        mapped = allocator.full_to_swa_index_mapping
        pool.full_to_swa_index_mapping = mapped
        pool.translate_loc_from_full_to_swa = lambda slots: mapped[slots]
        for part in allocator.full_attn_allocator, allocator.swa_attn_allocator:
            part.use_triton_kernels = False  # there is no device
        return allocator

    def lease(self, allocator: Any, *slabs: int) -> None:
        super().lease(allocator.full_attn_allocator, *slabs)

    def take(self, allocator: Any, tokens: int) -> torch.Tensor:
        """Allocates the tokens of one request, in whole pages."""
        if allocator.page_size == 1:
            slots = allocator.alloc(tokens)
        else:
            begin, end = torch.tensor([0]), torch.tensor([tokens])
            slots = allocator.alloc_extend(
                begin, begin, end, end, torch.tensor([-1]), tokens
            )
        self.assertIsNotNone(slots)
        return slots

    def test_a_slab_goes_without_slots_that_are_mapped(self) -> None:
        for allocator in self.each:
            page, windows = allocator.page_size, allocator.size_swa
            self.lease(allocator, 1, 2)
            slots = self.take(allocator, windows)
            mapped = allocator.full_to_swa_index_mapping
            self.assertEqual(
                sorted(mapped[slots].tolist()), [*range(page, windows + page)]
            )
            self.assertEqual(allocator.swa_available_size(), 0)
            # Slots behind the window are freed first.
            half = windows // 2
            allocator.free_swa_segment(slots[:half], start_pos=0)
            self.assertEqual(allocator.swa_available_size(), half)
            part = leased_part(allocator)
            part.leased.grants.ask_back(1)
            part.leased.grants.ask_back(2)
            part.apply(part.leased.grants.poll())
            part.give_back(0)
            allocator.free_full_segment(slots[:half], start_pos=0)
            allocator.free_segment(slots[half:], start_pos=half)
            self.assertEqual(sorted(part.give_back(0)), [1, 2])
            self.assertEqual(allocator.swa_available_size(), windows)
            self.assertEqual(mapped[:-1].count_nonzero(), 0)

    def test_its_books_count_what_is_leased(self) -> None:
        for allocator in self.each:
            self.lease(allocator, 1)
            self.take(allocator, 2 * allocator.page_size)
            page, windows = allocator.page_size, allocator.size_swa
            self.assertEqual(
                allocator.swa_capacity_and_available(
                    full_capacity=0, swa_capacity=windows
                ),
                (
                    (PAGES * page, (PAGES - 2) * page),
                    (windows, windows - 2 * page),
                ),
            )

    def test_a_begun_chunk_takes_what_others_may_not(self) -> None:
        cache = SimpleNamespace(
            full_evictable_size=lambda: 0,
            swa_evictable_size=lambda: 0,
            sliding_window_size=8,
        )
        for allocator in self.each:
            page, windows = allocator.page_size, allocator.size_swa
            self.lease(allocator, 1, 2)
            part = leased_part(allocator)
            self.ask_back(part, 1, at_least=2 * PAGES * page)
            budget = allocator.create_prefill_budget(cache)
            self.assertEqual(budget.remaining_total, PAGES * page)
            budget.total_offset = PAGES * page
            self.assertEqual(budget.available_chunk_tokens(8), 8)
            # The room in the windows' pool limits the chunk.
            self.assertEqual(
                budget.available_chunk_tokens(1000), windows - page
            )
            self.take(allocator, windows)
            self.assertIsNone(budget.available_chunk_tokens(8))

    def test_what_is_behind_a_cached_window_goes_with_its_slab(self) -> None:
        """Slab 1 has a cached text, whose beginning is behind the window."""
        patch = mock.patch("torch.cuda.Event")
        patch.start()
        self.addCleanup(patch.stop)
        for allocator in self.each:
            page = allocator.page_size
            cache = LeasedRadixCache(
                CacheInitParams(
                    disable=False,
                    req_to_token_pool=None,
                    token_to_kv_pool_allocator=allocator,
                    page_size=page,
                    sliding_window_size=page,
                    tree_components=(ComponentType.FULL, ComponentType.SWA),
                )
            )
            self.lease(allocator, 1)
            first = self.take(allocator, PAGES * page)
            behind = (PAGES - 2) * page
            allocator.free_swa_segment(first[:behind], start_pos=0)
            params = InsertParams(
                key=RadixKey(array("q", range(PAGES * page))), value=first
            )
            params.set_evicted_seqlen(ComponentType.SWA, behind)
            cache.insert(params)
            self.assertEqual(cache.swa_evictable_size(), 2 * page)
            part = leased_part(allocator)
            part.leased.grants.ask_back(1)
            part.apply(part.leased.grants.poll())
            cache.evict_leaving(part.leased, True)
            self.assertEqual(part.give_back(0), [1])
            self.assertEqual(cache.full_evictable_size(), 0)
            self.assertEqual(allocator.swa_available_size(), allocator.size_swa)


class Leaving(_Caches):
    """A scheduler that is asked to leave the GPU; its cache has all slabs."""

    def leases(self, scheduler: Any) -> Any:
        leases = SchedulerLeases(scheduler, Ranks())
        leases.step_begins()
        self.grants_of(scheduler).presence = Presence.ASKED_TO_LEAVE
        return leases

    def grants_of(self, scheduler: Any) -> Any:
        return scheduler.token_to_kv_pool_allocator.leased.grants

    def test_an_idle_scheduler_leaves_and_comes_back_for_a_request(
        self,
    ) -> None:
        for allocator in self.each:
            scheduler = self.scheduler(allocator)
            grants = self.grants_of(scheduler)
            leases = self.leases(scheduler)
            leases.step_begins()
            self.assertEqual(grants.presence, Presence.AWAY)
            self.assertEqual(grants.held, frozenset())
            scheduler.req_to_token_pool.clear.assert_called_once_with()
            self.assertEqual(scheduler.tree_cache.evictable_size(), 0)
            # SGLang finds no page lost.
            self.assertEqual(
                allocator.available_size(),
                scheduler.invariant_checker.max_total_num_tokens,
            )
            self.assertTrue(leases.is_away)
            leases.step_begins()
            self.assertEqual(grants.asked_to_come_back, 0)
            self.wait_for(scheduler)
            leases.step_begins()
            self.assertEqual(grants.asked_to_come_back, 1)
            self.assertEqual(allocator.available_size(), 0)
            self.assertGreater(grants.wanted, 0)
            grants.lease(2)
            leases.step_begins()
            self.assertEqual(
                allocator.available_size(), PAGES * allocator.page_size
            )

    def test_it_reads_messages_while_its_memory_is_away(self) -> None:
        for allocator in self.each:
            scheduler = self.scheduler(allocator)
            grants = self.grants_of(scheduler)
            leases = self.leases(scheduler)
            leases.step_begins()
            self.wait_for(scheduler)
            with mock.patch.object(grants, "come_back", return_value=False):
                for tries in 1, 2:
                    leases.step_begins()
                    self.assertTrue(leases.is_away)
                    self.assertEqual(grants.come_back.call_count, tries)
            leases.step_begins()
            self.assertFalse(leases.is_away)

    def test_it_takes_part_again_when_others_bring_it_back(self) -> None:
        for allocator in self.each:
            scheduler = self.scheduler(allocator)
            grants = self.grants_of(scheduler)
            leases = self.leases(scheduler)
            leases.step_begins()
            grants.presence = Presence.HERE
            leases.step_begins()
            self.assertFalse(grants.suspended)
            self.assertEqual(allocator.available_size(), 0)

    def test_it_stays_while_a_request_or_a_step_is_under_way(self) -> None:
        for allocator in self.each:
            scheduler = self.scheduler(allocator)
            grants = self.grants_of(scheduler)
            leases = self.leases(scheduler)
            step = object()
            leases.launching()
            leases.launched(None, step)
            leases.step_begins()
            self.assertEqual(grants.presence, Presence.ASKED_TO_LEAVE)
            leases.processed(None, step)
            lock = scheduler.tree_cache.lock(
                self.match(scheduler.tree_cache, 0).last_device_node
            )
            leases.step_begins()
            self.assertEqual(grants.presence, Presence.ASKED_TO_LEAVE)
            scheduler.tree_cache.unlock(lock)
            leases.step_begins()
            self.assertEqual(grants.presence, Presence.AWAY)


    def test_it_leaves_while_it_is_paused_with_requests_that_wait(self) -> None:
        for allocator in self.each:
            scheduler = self.scheduler(allocator)
            grants = self.grants_of(scheduler)
            leases = self.leases(scheduler)
            self.wait_for(scheduler)
            leases.step_begins()
            self.assertEqual(grants.presence, Presence.ASKED_TO_LEAVE)
            scheduler._engine_paused = True
            leases.step_begins()
            self.assertEqual(grants.presence, Presence.AWAY)
            scheduler._engine_paused = False
            leases.step_begins()
            self.assertEqual(grants.presence, Presence.HERE)


class Paused(_Caches):
    """A scheduler that is paused after a step was launched; its cache has all
    slabs."""

    def test_slabs_drain_although_its_last_result_waits(self) -> None:
        for allocator in self.each:
            scheduler = self.scheduler(allocator)
            finish = mock.Mock()
            leases = SchedulerLeases(scheduler, Ranks(), finish_device=finish)
            grants = allocator.leased.grants
            leases.step_begins()
            step = object()
            leases.launching()
            leases.launched(None, step)
            grants.ask_back(2)
            leases.step_begins()
            self.assertEqual(grants.returned, [], "the step may write it")
            finish.assert_not_called()
            scheduler._engine_paused = True
            for _ in range(2):
                leases.step_begins()
            self.assertEqual(grants.returned, [2])
            finish.assert_called_once_with()
            leases.processed(None, step)  # when it goes on


class Released(_Caches):
    """A scheduler that is called to release its memory; its cache has all
    slabs."""

    def setUp(self) -> None:
        super().setUp()
        self.now = 0.0
        self.schedulers = [self.scheduler(one) for one in self.each]
        self.leases = [
            SchedulerLeases(one, Ranks(), clock=lambda: self.now)
            for one in self.schedulers
        ]
        self.grants = [one.leased.grants for one in self.each]
        for leases in self.leases:
            leases.step_begins()

    def each_one(self) -> Any:
        return zip(self.schedulers, self.leases, self.grants)

    def test_slabs_are_gone_until_it_resumes(self) -> None:
        for scheduler, leases, grants in self.each_one():
            allocator = leases._allocator
            self.assertTrue(leases.release(None))
            self.assertTrue(leases.release(None))
            self.assertTrue(grants.suspended)
            self.assertEqual(grants.held, frozenset())
            self.assertEqual(scheduler.tree_cache.evictable_size(), 0)
            leases.step_begins()
            self.assertTrue(leases.is_away)
            leases.resume()
            self.assertFalse(grants.suspended)
            self.assertFalse(leases.is_away)
            leases.resume()
            leases.step_begins()
            self.assertEqual(allocator.available_size(), 0)
            grants.lease(2)
            leases.step_begins()
            self.assertEqual(
                allocator.available_size(), PAGES * allocator.page_size
            )

    def test_a_request_brings_them_back_unless_it_is_paused(self) -> None:
        for scheduler, leases, grants in self.each_one():
            scheduler._engine_paused = True
            self.wait_for(scheduler)
            self.assertTrue(leases.release(None))
            leases.step_begins()
            self.assertTrue(grants.suspended)
            scheduler._engine_paused = False
            leases.step_begins()
            self.assertFalse(grants.suspended)
            self.assertGreater(grants.wanted, 0)

    def test_so_does_one_whose_grammar_is_compiled(self) -> None:
        for scheduler, leases, grants in self.each_one():
            leases.release(None)
            scheduler.grammar_manager = mock.Mock()
            leases.step_begins()
            self.assertFalse(grants.suspended)

    def test_it_lets_nothing_in_until_there_is_room(self) -> None:
        for scheduler, leases, grants in self.each_one():
            leases.release(None)
            refused = KvError("fs_kv_resume", Error.REFUSED, "promised")
            with mock.patch.object(grants, "resume", side_effect=refused) as r:
                self.wait_for(scheduler)
                leases.resume()
                leases.step_begins()
                self.assertEqual(r.call_count, 1)
                self.assertEqual(leases._allocator.available_size(), 0)
                self.now += 1
                leases.step_begins()
                self.assertEqual(r.call_count, 2)
                self.assertTrue(leases.is_away)
            self.now += 1
            leases.step_begins()
            self.assertFalse(leases.is_away)

    def test_it_ends_if_they_never_come_back(self) -> None:
        for _, leases, grants in self.each_one():
            leases.release(None)
            closed = KvError("fs_kv_resume", Error.STATE, "none is suspended")
            with mock.patch.object(grants, "resume", side_effect=closed):
                with self.assertRaises(KvError):
                    leases.resume()

    def test_nothing_is_released_while_a_request_has_pages(self) -> None:
        for scheduler, leases, grants in self.each_one():
            held = grants.held
            lock = scheduler.tree_cache.lock(
                self.match(scheduler.tree_cache, 0).last_device_node
            )
            self.assertFalse(leases.release(None))
            self.assertFalse(grants.suspended)
            self.assertEqual(grants.held, held)
            scheduler.tree_cache.unlock(lock)
            self.assertTrue(leases.release(None))

    def leave(self, grants: Any) -> Any:
        """Returns what has the daemon ask, and waits until it has left."""
        left = threading.Event()

        def leaves() -> None:
            InMemoryGrants.leave(grants)
            left.set()

        def leave() -> None:
            grants.leave = leaves
            grants.presence = Presence.ASKED_TO_LEAVE
            if not left.wait(30):
                raise KvError("fs_leave_gpu", Error.REFUSED, "it stays")

        return leave

    def test_its_weights_leave_as_if_evicted(self) -> None:
        for scheduler, leases, grants in self.each_one():
            self.assertTrue(leases.release(self.leave(grants)))
            self.assertEqual(grants.presence, Presence.AWAY)
            self.assertEqual(leases._allocator.available_size(), 0)
            self.wait_for(scheduler)
            leases.step_begins()
            self.assertEqual(grants.asked_to_come_back, 1)
            self.assertFalse(leases.is_away)

    def test_its_slabs_go_even_if_its_weights_cannot(self) -> None:
        for _, leases, grants in self.each_one():
            error = KvError("fs_leave_gpu", Error.STATE, "not evictable")
            self.assertTrue(leases.release(mock.Mock(side_effect=error)))
            self.assertTrue(grants.suspended)
            self.assertEqual(grants.presence, Presence.HERE)
            leases.resume()
            self.assertFalse(leases.is_away)

    def test_an_evicted_one_stays_away(self) -> None:
        for _, leases, grants in self.each_one():
            grants.presence = Presence.ASKED_TO_LEAVE
            leases.step_begins()
            self.assertTrue(leases.release(mock.Mock()))
            leases.resume()
            leases.step_begins()
            self.assertEqual(grants.presence, Presence.AWAY)
            self.assertEqual(grants.asked_to_come_back, 0)


class HealthChecks(_Caches):
    def test_an_engine_that_is_away_is_healthy(self) -> None:
        hooks = dict(plugin._event_loop(None, None))
        (process,) = [
            hook for name, hook in hooks.items() if "process_input" in name
        ]
        check, request = (
            SimpleNamespace(rid=rid, http_worker_ipc=1)
            for rid in (HEALTH_CHECK_RID_PREFIX + "_1", "2")
        )
        for away, passed in (True, [request]), (False, [check, request]):
            scheduler = mock.Mock(return_health_check_ipcs=[])
            setattr(scheduler, plugin._LEASES, SimpleNamespace(is_away=away))
            original = mock.Mock()
            process(original, scheduler, [check, request])
            original.assert_called_once_with(scheduler, passed)
            self.assertEqual(
                scheduler.maybe_send_health_check_signal.call_count, int(away)
            )


class Counts(_Caches):
    """A scheduler's count of the pages in use."""

    def test_they_take_at_most_a_hundredth_of_the_time(self) -> None:
        for takes, period in (0.0, 0.05), (0.002, 0.2):
            now = 0.0

            def count(requests: Any) -> None:
                nonlocal now
                now += takes

            scheduler = self.scheduler(self.token())
            scheduler.running_batch.reqs.append(
                _request(4, kv=SimpleNamespace(holds_kv=True))
            )
            usage = Usage(scheduler, lambda: now)
            with mock.patch.object(usage, "_count", count):
                self.assertTrue(usage.is_due)
                usage.step_begins(counts=True)
            now = takes + 0.99 * period
            self.assertFalse(usage.is_due)
            now = takes + period
            self.assertTrue(usage.is_due)


class Admission(_Caches):
    """SGLang found no room for a request, and does not look again."""

    def setUp(self) -> None:
        super().setUp()
        self.schedulers = [self.scheduler(a, _NoCache()) for a in self.each]
        for scheduler in self.schedulers:
            allocator = scheduler.token_to_kv_pool_allocator
            for slab in 1, 2:
                allocator.leased.grants.lease(slab)
            scheduler.leases = SchedulerLeases(scheduler, Ranks())
            scheduler.leases.step_begins()
            scheduler.running_batch.batch_is_full = True

    def looks_again(self, scheduler: Any) -> bool:
        scheduler.leases.step_begins()
        looks = not scheduler.running_batch.batch_is_full
        scheduler.running_batch.batch_is_full = True
        return looks

    def test_it_looks_again_once_more_is_leased(self) -> None:
        for scheduler in self.schedulers:
            leased = scheduler.token_to_kv_pool_allocator.leased
            self.assertFalse(self.looks_again(scheduler))
            leased.grants.lease(3)
            self.assertTrue(self.looks_again(scheduler))
            leased.grants.ask_back(3)
            self.assertFalse(self.looks_again(scheduler))
            self.assertFalse(self.looks_again(scheduler))
            leased.grants.lease(3)
            self.assertTrue(self.looks_again(scheduler))

    def test_so_it_does_in_each_micro_batch(self) -> None:
        for scheduler in self.schedulers:
            scheduler.running_mbs = [scheduler.running_batch, _batch([])]
            scheduler.mbs = [None, None]
            other = scheduler.running_mbs[1]
            other.batch_is_full = True
            self.assertFalse(self.looks_again(scheduler))
            self.assertTrue(other.batch_is_full)
            scheduler.token_to_kv_pool_allocator.leased.grants.lease(3)
            self.assertTrue(self.looks_again(scheduler))
            self.assertFalse(other.batch_is_full)


class Steps(_Caches):
    def test_a_pipelines_step_is_known_by_its_batch(self) -> None:
        """A pipeline's result is another object by the time it is processed,
        because it came from the last stage; in other engines, the batch is a
        copy by then."""
        for pipeline, known_by in (True, 0), (False, 1):
            for allocator in self.each:
                ranks = Ranks()
                ranks.are_a_pipeline = pipeline
                leases = SchedulerLeases(
                    self.scheduler(allocator, _NoCache()), ranks
                )
                steps = [(object(), object()) for _ in range(2)]
                for step in steps:
                    leases.launching()
                    leases.launched(*step)
                for left, step in zip((True, False), steps):
                    other: list[object] = [object(), object()]
                    other[known_by] = step[known_by]
                    leases.processed(*other)
                    self.assertEqual(allocator.leased.fence.in_flight, left)


class Books(_Caches):
    def test_they_count_what_is_leased_where_states_are_too(self) -> None:
        """If there are states, SGLang asks its pool of requests for the
        capacity, and divides by it."""
        for allocator in self.each:
            scheduler = self.scheduler(allocator)
            pool = SimpleNamespace(free_slots=[1, 2])
            for name in "invariant_checker", "pool_stats_observer":
                book = SimpleNamespace(
                    max_total_num_tokens=0, req_to_token_pool=pool
                )
                setattr(scheduler, name, book)
            scheduler.is_hybrid_ssm = True
            leases = SchedulerLeases(scheduler, Ranks())
            checker, observer = (
                book.req_to_token_pool
                for book in (
                    scheduler.invariant_checker,
                    scheduler.pool_stats_observer,
                )
            )
            leases.step_begins()
            for book in checker, observer:
                self.assertEqual(
                    book.schedulable_token_capacity(allocator.size),
                    3 * PAGES * allocator.page_size,
                )
                self.assertEqual(book.free_slots, [1, 2])
            allocator.leases_ended()
            leases.step_begins()
            self.assertEqual(checker.schedulable_token_capacity(0), 0)
            self.assertEqual(observer.schedulable_token_capacity(0), 1)


class SeveralRanks(_Caches):
    """Two ranks, and SGLang's broadcast between them."""

    def setUp(self) -> None:
        super().setUp()
        self.shims = [mock.Mock(), mock.Mock()]
        self.ranks, self.grants = [], []
        for rank, shim in enumerate(self.shims):
            shim.slab_blocks = lambda v: range(v * PAGES, (v + 1) * PAGES)
            ranks = Ranks(SimpleNamespace(rank_in_group=rank, cpu_group=None))
            with mock.patch.object(ranks, "_gather", lambda its: [its]):
                grants = ranks.grants(
                    shim, Geometry(slab_count=SLABS), (SLABS + 1) * PAGES
                )
            self.ranks.append(ranks)
            self.grants.append(grants)
        self.next = Turn()
        self.ranks[0].begin_with(lambda: self.next)
        self.ranks[1].begin_with(mock.Mock(side_effect=AssertionError))

    def step(self, *requests: str) -> list[Turn]:
        """Sends the requests to each rank and returns the turn with which each
        rank begins the step."""
        sent = b""

        def send(receiver: Any, found: list[Any]) -> list[Any]:
            nonlocal sent
            sent = pickle.dumps(found)
            return found

        first = self.ranks[0].broadcast(send, None, list(requests))
        second = self.ranks[1].broadcast(
            lambda receiver, none: pickle.loads(sent), None, None
        )
        self.assertEqual([first, second], [list(requests)] * 2)
        return [ranks.turn() for ranks in self.ranks]

    def test_all_begin_a_step_with_what_the_first_has_found(self) -> None:
        self.assertEqual(self.step("a"), [Turn()] * 2)
        self.next = Turn(Changes(leased=[1, 3], asked_back=[2]), sorts=True)
        self.assertEqual(self.step("a", "b"), [self.next] * 2)
        self.next = Turn()
        self.assertEqual(self.step(), [Turn()] * 2)

    def test_a_stage_passes_on_what_its_step_begins_with(self) -> None:
        first, second = self.ranks
        first.are_a_pipeline = second.are_a_pipeline = True
        self.next = Turn(Changes(leased=[1]))
        first.broadcast(lambda receiver, found: found, None, ["a"])
        self.assertEqual(first.turn(), self.next)
        passed_on = pickle.loads(pickle.dumps(first.passed_on(["a"])))
        received = second.broadcast(
            lambda receiver, found: found, None, passed_on
        )
        self.assertEqual(received, ["a"])
        self.assertEqual(second.turn(), self.next)
        self.assertEqual(second.passed_on(received), [self.next, "a"])
        # The next step begins with a new turn, even if it received no requests.
        self.assertEqual(first.turn(), Turn())
        self.assertEqual(first.passed_on([]), [])

    def test_stages_have_as_many_layers(self) -> None:
        for rank in self.ranks:
            with mock.patch.object(rank, "_gather", lambda its: [its, 3]):
                rank.check_stages(3)
                with self.assertRaisesRegex(RuntimeError, "2 to 3 layers"):
                    rank.check_stages(2)

    def test_the_first_alone_speaks_to_the_daemons(self) -> None:
        for grants in self.grants:
            grants.activate()
            grants.want(2)
            grants.publish(1, 3)
            grants.return_slab(1)
        self.shims[0].return_slab.assert_called_once_with(1)
        for name in "want", "publish", "return_slab":
            getattr(self.shims[1], name).assert_not_called()

    def test_a_rank_that_returns_other_slabs_ends_the_engine(self) -> None:
        for grants in self.grants:
            grants.return_slab(1)
        self.assertEqual(
            [turn.returned for turn in self.step()], [(1,), (1,)]
        )
        self.grants[0].return_slab(2)
        with self.assertRaisesRegex(RuntimeError, r"slabs \(\), .* of \(2,\)"):
            self.step()

    def schedulers(self) -> list[Any]:
        """Makes a scheduler for each rank on the shims' leases, and returns
        their SchedulerLeases."""
        found = []
        for ranks, grants in zip(self.ranks, self.grants):
            LeasedTokenAllocator.grants_factory = staticmethod(
                lambda pages, grants=grants: grants
            )
            allocator = LeasedTokenAllocator(
                (SLABS + 1) * PAGES - 1,
                dtype=torch.float32,
                device="cpu",
                kvcache=None,
                need_sort=False,
            )
            grants.activate()
            scheduler = self.scheduler(allocator, _NoCache())
            found.append(SchedulerLeases(scheduler, ranks))
        return found

    def begin(self, leases: list[Any], *changes: tuple[int, int]) -> None:
        """Begins a step with these changes, as the shim reports them."""
        self.shims[0].poll.return_value = changes
        turns = self.step()
        for one, ranks, turn in zip(leases, self.ranks, turns):
            with mock.patch.object(ranks, "turn", lambda turn=turn: turn):
                one.step_begins()

    def free_pages(self, leases: list[Any]) -> list[list[int]]:
        return [one._allocator.free_pages.tolist() for one in leases]

    def test_free_lists_change_at_the_same_step(self) -> None:
        leases = self.schedulers()
        self.begin(leases, (1, LEASED), (3, LEASED))
        first, second = self.free_pages(leases)
        self.assertEqual(first, [*range(8, 16), *range(24, 32)])
        self.assertEqual(second, first)
        self.begin(leases, (1, ASKED_BACK))
        self.assertEqual(self.free_pages(leases), [[*range(24, 32)]] * 2)
        self.shims[0].return_slab.assert_called_once_with(1)
        self.begin(leases)

    def test_a_rank_that_is_a_step_late_ends_the_engine(self) -> None:
        leases = self.schedulers()
        self.begin(leases, (1, LEASED))
        late = [Turn()]
        original = leases[1].step_begins

        def step_begins() -> None:
            late.append(self.ranks[1].turn())
            with mock.patch.object(self.ranks[1], "turn", lambda: late.pop(0)):
                original()

        leases[1].step_begins = step_begins
        self.begin(leases, (1, ASKED_BACK))
        with self.assertRaisesRegex(RuntimeError, "has let go of slabs"):
            self.begin(leases)
