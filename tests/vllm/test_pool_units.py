"""Free queue, fence, pool and lease bookkeeping, case by case.

Runs on vLLM where it is installed, else on the doubles.
"""

from __future__ import annotations

import random
import types
import unittest
from typing import Any

import doubles

REAL = doubles.prepare()

from fineserve_vllm.engine_leases import AskBackOptions, EngineLeases  # noqa: E402
from fineserve_vllm.fence import StepFence  # noqa: E402
from fineserve_vllm.free_queue import LeasedFreeQueue  # noqa: E402
from fineserve_vllm.grants import Changes, InMemoryGrants, Slab  # noqa: E402
from fineserve_vllm.pool import LeasedBlockPool  # noqa: E402
from vllm.v1.core.kv_cache_utils import (  # noqa: E402
    FreeKVCacheBlockQueue,
    KVCacheBlock,
)


def new_queue(slabs: int, per_slab: int, on_left: Any = None) -> Any:
    """Returns a queue with every slab linked; slab i holds the ids from i *
    per_slab on."""
    blocks = [KVCacheBlock(i) for i in range((slabs + 1) * per_slab)]
    layout = [
        Slab(i, range(i * per_slab, (i + 1) * per_slab))
        for i in range(1, slabs + 1)
    ]
    queue = LeasedFreeQueue(blocks, layout, on_left or (lambda block: None))
    for slab in layout:
        queue.link(slab.index)
    return queue


def ids(blocks: Any) -> list[int]:
    return [block.block_id for block in blocks]


class FreeQueueTest(unittest.TestCase):
    def test_a_new_slab_serves_its_lowest_ids_first(self) -> None:
        self.assertEqual(ids(new_queue(2, 4).popleft_n(6)), [4, 5, 6, 7, 8, 9])

    def test_prepended_blocks_come_back_in_the_order_given(self) -> None:
        queue = new_queue(1, 8)
        taken = queue.popleft_n(4)
        queue.prepend_n([taken[2], taken[0]])
        self.assertEqual(ids(queue.popleft_n(3)), [10, 8, 12])

    def test_appended_blocks_come_last_and_oldest_first(self) -> None:
        queue = new_queue(1, 4)
        taken = queue.popleft_n(3)
        queue.append_n([taken[1], taken[0]])
        queue.append(taken[2])
        self.assertEqual(ids(queue.popleft_n(4)), [7, 5, 4, 6])
        self.assertEqual(queue.num_free_blocks, 0)

    def test_after_settling_the_densest_slab_serves_first(self) -> None:
        queue = new_queue(3, 4)
        slab1, slab2, slab3 = (queue.popleft_n(4) for _ in range(3))
        queue.prepend_n(slab1[:3] + slab2[:1] + slab3[:2])
        queue.settle()
        taken = ids(queue.popleft_n(6))
        self.assertEqual([i // 4 for i in taken], [2, 3, 3, 1, 1, 1])

    def test_cached_blocks_count_as_occupied_when_density_is_ranked(
        self,
    ) -> None:
        queue = new_queue(2, 4)
        slab1, slab2 = queue.popleft_n(4), queue.popleft_n(4)
        queue.append_n(slab1[:3])  # three cached, one free
        queue.prepend_n(slab2[:2] + slab1[3:])
        queue.settle()
        self.assertEqual(ids(queue.popleft_n(1)), [7])

    def test_popping_more_than_there_is_fails_and_takes_nothing(self) -> None:
        queue = new_queue(2, 3)
        with self.assertRaises(AssertionError):
            queue.popleft_n(7)
        self.assertEqual(queue.num_free_blocks, 6)
        self.assertEqual(queue.popleft_n(0), [])
        queue.popleft_n(6)
        with self.assertRaises(ValueError):
            queue.popleft()

    def test_any_free_block_can_be_removed(self) -> None:
        for position in range(8):
            queue = new_queue(2, 4)
            taken = queue.popleft_n(4)
            queue.append_n(taken[:2])  # linked
            queue.prepend_n(taken[2:])  # recent
            free = queue.get_all_free_blocks()
            removed = free.pop(position)
            queue.remove(removed)
            self.assertEqual(queue.num_free_blocks, 7)
            self.assertEqual(ids(queue.popleft_n(7)), ids(free))
            with self.assertRaises(RuntimeError):
                queue.remove(removed)

    def test_iteration_continues_after_any_cursor(self) -> None:
        queue = new_queue(2, 3)
        queue.append_n(queue.popleft_n(2))
        free = queue.get_all_free_blocks()
        self.assertEqual(ids(queue.iter_blocks_after(None)), ids(free))
        for position, cursor in enumerate(free):
            self.assertEqual(
                ids(queue.iter_blocks_after(cursor)), ids(free[position + 1 :])
            )

    def test_an_unlinked_slab_is_neither_counted_nor_served(self) -> None:
        left: list[int] = []
        queue = new_queue(2, 4, lambda block: left.append(block.block_id))
        used, cached = queue.popleft_n(2)
        queue.append_n([cached])
        self.assertEqual(ids(queue.unlink(1)), [6, 7, 5])
        self.assertEqual(queue.num_free_blocks, 4)
        self.assertEqual(left, [])
        queue.prepend_n([used])
        self.assertEqual(left, [4])
        self.assertEqual(ids(queue.popleft_n(4)), [8, 9, 10, 11])

    def test_with_one_slab_random_use_equals_vllms_queue(self) -> None:
        seed = random.SystemRandom().getrandbits(32)
        with self.subTest(seed=seed):
            rng = random.Random(seed)
            ours = new_queue(1, 30)
            stock = FreeKVCacheBlockQueue(
                [KVCacheBlock(i) for i in range(30, 60)]
            )
            used: list[int] = []
            blocks = {
                id(queue): {b.block_id: b for b in queue.get_all_free_blocks()}
                for queue in (ours, stock)
            }
            for _ in range(3000):
                call = rng.choice(
                    ["popleft_n", "prepend_n", "append_n", "remove"]
                )
                picked = rng.sample(used, rng.randint(0, len(used)))
                count = rng.randint(0, stock.num_free_blocks)
                free = ids(stock.get_all_free_blocks())
                victim = rng.choice(free) if free else None
                for queue in (ours, stock):
                    own = blocks[id(queue)]
                    if call == "popleft_n":
                        taken = ids(queue.popleft_n(count))
                    elif call != "remove":
                        getattr(queue, call)([own[i] for i in picked])
                    elif victim is not None:
                        queue.remove(own[victim])
                if call == "popleft_n":
                    used += taken
                elif call != "remove":
                    used = [i for i in used if i not in picked]
                elif victim is not None:
                    used.append(victim)
                if rng.random() < 0.3:
                    ours.settle()
                self.assertEqual(
                    ids(ours.get_all_free_blocks()),
                    ids(stock.get_all_free_blocks()),
                )
                self.assertEqual(ours.num_free_blocks, stock.num_free_blocks)


class FenceTest(unittest.TestCase):
    def setUp(self) -> None:
        self.fence = StepFence()

    def schedule(self) -> object:
        output = object()
        self.fence.schedule_begins()
        self.fence.schedule_ends(output)
        return output

    def test_without_steps_in_flight_a_barrier_has_passed(self) -> None:
        self.assertTrue(self.fence.passed(self.fence.barrier()))

    def test_a_barrier_waits_for_every_step_scheduled_before_it(self) -> None:
        first, second = self.schedule(), self.schedule()
        barrier = self.fence.barrier()
        third = self.schedule()
        self.assertFalse(self.fence.passed(barrier))
        self.fence.step_processed(first)
        self.assertFalse(self.fence.passed(barrier))
        self.fence.step_processed(second)
        self.assertTrue(self.fence.passed(barrier))
        self.fence.step_processed(third)

    def test_a_barrier_within_schedule_waits_for_that_step(self) -> None:
        self.fence.schedule_begins()
        barrier = self.fence.barrier()
        self.assertFalse(self.fence.passed(barrier))
        output = object()
        self.fence.schedule_ends(output)
        self.assertFalse(self.fence.passed(barrier))
        self.fence.step_processed(output)
        self.assertTrue(self.fence.passed(barrier))

    def test_a_result_out_of_order_does_not_open_the_fence(self) -> None:
        first, second = self.schedule(), self.schedule()
        barrier = self.fence.barrier()
        self.fence.step_processed(second)
        self.assertFalse(self.fence.passed(barrier))
        self.fence.step_processed(first)
        self.assertTrue(self.fence.passed(barrier))

    def test_a_result_of_no_scheduled_step_counts_for_nothing(self) -> None:
        self.schedule()
        barrier = self.fence.barrier()
        self.fence.step_processed(object())
        self.assertFalse(self.fence.passed(barrier))


def new_pool(grants: Any, num_blocks: int = 40) -> Any:
    return LeasedBlockPool(num_blocks, True, 16, True, grants=grants)


def cache(pool: Any, block: Any, key: bytes) -> None:
    block.set_block_hash(key, 16)
    pool.cached_block_hash_to_block.insert(key, block)


class DrafterFenceTest(unittest.TestCase):
    """The drafter may still run after its step has been processed."""

    def setUp(self) -> None:
        self.finished = 0
        self.fence = StepFence(finish=self.finish)

    def finish(self) -> None:
        self.finished += 1

    def schedule(self, tokens: int = 1) -> Any:
        output = types.SimpleNamespace(total_num_scheduled_tokens=tokens)
        self.fence.schedule_begins()
        self.fence.schedule_ends(output)
        return output

    def test_a_later_step_shows_that_a_drafter_has_ended(self) -> None:
        first = self.schedule()
        barrier = self.fence.barrier()
        second = self.schedule()
        self.fence.step_processed(first)
        self.assertFalse(self.fence.passed(barrier))
        self.schedule()
        self.fence.step_processed(second)
        self.assertTrue(self.fence.passed(barrier))
        self.assertEqual(self.finished, 0)

    def test_a_later_step_without_tokens_shows_nothing(self) -> None:
        first = self.schedule()
        barrier = self.fence.barrier()
        second, _third = self.schedule(tokens=0), self.schedule()
        self.fence.step_processed(first)
        self.fence.step_processed(second)
        self.assertFalse(self.fence.passed(barrier))

    def test_without_a_step_in_flight_the_device_is_waited_for_once(
        self,
    ) -> None:
        first = self.schedule()
        barrier = self.fence.barrier()
        self.assertFalse(self.fence.passed(barrier))
        self.assertEqual(self.finished, 0)
        self.fence.step_processed(first)
        for _ in range(2):
            self.assertTrue(self.fence.passed(barrier))
        self.assertEqual(self.finished, 1)


def key(number: int) -> bytes:
    return number.to_bytes(36, "big")


class PoolTest(unittest.TestCase):
    def setUp(self) -> None:
        self.grants = InMemoryGrants.uniform(3, 10, leased=[1, 2])
        self.pool = new_pool(self.grants)

    def shrink(self, index: int) -> None:
        self.grants.ask_back(index)
        self.pool.apply(self.grants.poll())

    def test_only_leased_blocks_are_had(self) -> None:
        blocks = self.pool.get_new_blocks(20)
        self.assertEqual(sorted(ids(blocks)), list(range(10, 30)))
        with self.assertRaises(ValueError):
            self.pool.get_new_blocks(1)

    def test_usage_counts_leased_blocks_and_not_the_view(self) -> None:
        self.assertEqual(self.pool.get_usage(), 0)
        self.pool.get_new_blocks(5)
        self.assertAlmostEqual(self.pool.get_usage(), 0.25)
        self.shrink(2)  # unused
        self.assertAlmostEqual(self.pool.get_usage(), 0.5)
        self.shrink(1)  # half used: the used blocks still count
        self.assertAlmostEqual(self.pool.get_usage(), 1.0)

    def test_a_pool_without_leases_is_empty_and_not_an_error(self) -> None:
        pool = new_pool(InMemoryGrants.uniform(3, 10))
        self.assertEqual(pool.get_num_free_blocks(), 0)
        self.assertEqual(pool.get_usage(), 0)
        self.assertTrue(pool.reset_prefix_cache())

    def test_a_new_lease_can_be_used_after_the_next_schedule_entry(
        self,
    ) -> None:
        self.grants.lease(3)
        self.assertEqual(self.pool.get_num_free_blocks(), 20)
        self.pool.apply(self.grants.poll())
        self.assertEqual(self.pool.get_num_free_blocks(), 30)

    def test_after_a_schedule_entry_the_densest_slab_serves_first(self) -> None:
        blocks = self.pool.get_new_blocks(20)
        self.pool.free_blocks(blocks[15:] + blocks[:2])
        self.pool.apply(Changes())
        self.assertEqual(
            set(ids(self.pool.get_new_blocks(2))), set(ids(blocks[:2]))
        )

    def test_a_cached_block_of_a_slab_asked_back_is_evicted_by_event(
        self,
    ) -> None:
        first, second = self.pool.get_new_blocks(2)
        cache(self.pool, first, key(1))
        cache(self.pool, second, key(2))
        self.pool.free_blocks([first])  # cached and free; the other is in use
        self.pool.take_events()
        self.shrink(1)
        kinds = [type(event).__name__ for event in self.pool.take_events()]
        self.assertEqual(kinds, ["BlockRemoved", "BlockRemoved"])
        self.assertEqual(len(self.pool.cached_block_hash_to_block), 0)

    def test_a_block_cached_while_its_slab_leaves_is_evicted(self) -> None:
        (block,) = self.pool.get_new_blocks(1)
        self.shrink(1)
        cache(self.pool, block, key(1))
        self.pool.apply(Changes())
        self.assertIsNone(block.block_hash)
        cache(self.pool, block, key(2))
        self.pool.free_blocks([block])
        self.assertIsNone(block.block_hash)
        self.assertEqual(self.pool.return_drained(), [1])

    def test_a_slab_with_used_blocks_is_not_returned(self) -> None:
        blocks = self.pool.get_new_blocks(3)
        self.shrink(1)
        self.assertEqual(self.pool.return_drained(), [])
        self.pool.free_blocks(blocks[:2])
        self.assertEqual(self.pool.return_drained(), [])
        self.assertEqual(self.pool.used_in_leaving(1), {blocks[2].block_id})
        self.pool.free_blocks(blocks[2:])
        self.assertEqual(self.pool.return_drained(), [1])
        self.assertEqual(self.grants.returned, [1])

    def test_a_block_held_twice_holds_its_slab_until_both_let_go(self) -> None:
        (block,) = self.pool.get_new_blocks(1)
        self.pool.touch([block])
        self.shrink(1)
        self.pool.free_blocks([block])
        self.assertEqual(self.pool.return_drained(), [])
        self.pool.free_blocks([block])
        self.assertEqual(self.pool.return_drained(), [1])

    def test_a_drained_slab_waits_for_the_steps_in_flight(self) -> None:
        blocks = self.pool.get_new_blocks(3)
        output = object()
        self.pool.fence.schedule_begins()
        self.pool.fence.schedule_ends(output)
        self.shrink(1)
        self.pool.free_blocks(blocks)
        self.assertEqual(self.pool.return_drained(), [])
        self.pool.fence.step_processed(output)
        self.assertEqual(self.pool.return_drained(), [1])

    def test_steps_scheduled_after_the_ask_back_are_waited_for(self) -> None:
        blocks = self.pool.get_new_blocks(3)
        outputs = [object(), object()]
        self.shrink(1)
        for output in outputs:
            self.pool.fence.schedule_begins()
            self.pool.fence.schedule_ends(output)
        self.pool.free_blocks(blocks[:1])
        self.pool.fence.step_processed(outputs[0])
        self.pool.free_blocks(blocks[1:])
        self.assertEqual(self.pool.return_drained(), [])
        self.pool.fence.step_processed(outputs[1])
        self.assertEqual(self.pool.return_drained(), [1])

    def test_blocks_freed_before_the_ask_back_are_fenced_too(self) -> None:
        blocks = self.pool.get_new_blocks(3)
        output = object()
        self.pool.fence.schedule_begins()
        self.pool.fence.schedule_ends(output)
        self.pool.free_blocks(blocks)
        self.shrink(1)
        self.assertEqual(self.pool.return_drained(), [])
        self.pool.fence.step_processed(output)
        self.assertEqual(self.pool.return_drained(), [1])

    def test_a_slab_returned_can_be_leased_and_used_again(self) -> None:
        used = self.pool.get_new_blocks(20)
        self.shrink(1)
        self.pool.free_blocks(used)
        self.assertEqual(self.pool.return_drained(), [1])
        self.grants.lease(1)
        self.pool.apply(self.grants.poll())
        self.assertEqual(sorted(ids(self.pool.get_new_blocks(20))), ids(used))

    def test_asking_again_changes_nothing(self) -> None:
        block = self.pool.get_new_blocks(1)
        self.shrink(1)
        self.shrink(1)
        self.pool.free_blocks(block)
        self.assertEqual(self.pool.return_drained(), [1])
        self.pool.apply(Changes(asked_back=[1]))  # crossed with the return
        self.assertEqual(self.grants.returned, [1])

    def test_resetting_the_cache_succeeds_while_slabs_are_unleased(
        self,
    ) -> None:
        (block,) = self.pool.get_new_blocks(1)
        self.assertFalse(self.pool.reset_prefix_cache())
        self.shrink(1)
        self.assertFalse(self.pool.reset_prefix_cache())
        self.pool.free_blocks([block])
        self.assertTrue(self.pool.reset_prefix_cache())

    def test_watcher_of_an_unpinned_block_hears_of_its_slab_leaving(
        self,
    ) -> None:
        heard: list[int] = []
        unpinned, used = self.pool.get_new_blocks(2)
        self.pool.unpin_blocks([unpinned], lambda b: heard.append(b.block_id))
        self.shrink(1)
        self.assertEqual(heard, [unpinned.block_id])
        self.pool.unpin_blocks([used], lambda b: heard.append(b.block_id))
        self.assertEqual(heard, [unpinned.block_id, used.block_id])
        self.assertEqual(self.pool.return_drained(), [1])

    def test_slabs_that_cannot_be_are_refused(self) -> None:
        for name, slabs in {
            "null block": [Slab(1, range(0, 4))],
            "overlap": [Slab(1, range(1, 5)), Slab(2, range(4, 8))],
            "beyond the view": [Slab(1, range(30, 41))],
        }.items():
            with self.subTest(name), self.assertRaises(ValueError):
                new_pool(InMemoryGrants(slabs, leased=[]))

    def test_a_second_lease_of_a_held_slab_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            self.pool.apply(Changes(leased=[1]))

    def test_a_view_of_the_null_block_alone_has_no_blocks(self) -> None:
        pool = new_pool(InMemoryGrants.everything(1), num_blocks=1)
        self.assertEqual(pool.get_num_free_blocks(), 0)
        self.assertEqual(pool.slabs_for(5), 1)


class EngineLeasesTest(unittest.TestCase):
    def setUp(self) -> None:
        self.grants = InMemoryGrants.uniform(4, 10, leased=[1, 2])
        self.pool = new_pool(self.grants, 50)
        self.now = 0.0
        self.unfinished = False
        self.finished = 0
        self.watermark = 0  # blocks, as vLLM computes them from the view

    def engine(self, **options: Any) -> EngineLeases:
        self.manager = types.SimpleNamespace(watermark_blocks=self.watermark)
        scheduler = types.SimpleNamespace(
            running=[],
            has_unfinished_requests=lambda: self.unfinished,
            kv_cache_manager=self.manager,
        )
        return EngineLeases(
            scheduler,
            self.pool,
            room=lambda: 5,
            options=AskBackOptions(**options),
            clock=lambda: self.now,
            finish_device=self.finish_device,
        )

    def finish_device(self) -> None:
        self.finished += 1

    def build_step(self, engine: EngineLeases, tokens: int = 0) -> Any:
        output = types.SimpleNamespace(
            total_num_scheduled_tokens=tokens,
            new_block_ids_to_zero=None,
            kv_cache_block_copies=None,
            kv_connector_metadata=None,
        )
        engine.schedule_begins()
        engine.schedule_ends(output)
        return output

    def step(self, engine: EngineLeases) -> None:
        engine.step_processed(self.build_step(engine))

    def test_a_step_that_writes_nothing_holds_no_slab(self) -> None:
        """vLLM may keep such a step in its queue of batches until it is called
        again."""
        engine = self.engine()
        self.build_step(engine)
        self.grants.ask_back(1)
        engine.wake()
        self.assertEqual(self.grants.returned, [1])
        self.assertEqual(self.finished, 0)

    def test_a_step_that_copies_or_loads_blocks_writes(self) -> None:
        for name in (
            "new_block_ids_to_zero",
            "kv_cache_block_copies",
            "kv_connector_metadata",
        ):
            engine = self.engine()
            output = self.build_step(engine)
            setattr(output, name, [1])
            engine.schedule_begins()
            engine.schedule_ends(output)
            self.assertTrue(self.pool.fence.in_flight, name)
            engine.step_processed(output)

    def test_the_last_step_of_an_engine_at_rest_is_waited_for(self) -> None:
        """The caller may never step the engine again, so the device says when
        the step has ended."""
        engine = self.engine()
        last = self.build_step(engine, tokens=1)
        self.grants.ask_back(1)
        engine.wake()
        self.assertEqual(self.grants.returned, [], "it may not be launched")
        engine.steps_launched()
        self.assertEqual(self.grants.returned, [1])
        self.grants.ask_back(2)
        engine.wake()
        self.assertEqual((self.grants.returned, self.finished), ([1, 2], 1))
        engine.step_processed(last)  # its caller has called again

    def test_a_busy_engine_does_not_wait_for_its_device(self) -> None:
        engine = self.engine()
        self.unfinished = True
        output = self.build_step(engine, tokens=1)
        engine.steps_launched()
        self.grants.ask_back(1)
        engine.wake()
        self.assertEqual((self.grants.returned, self.finished), ([], 0))
        engine.step_processed(output)
        self.assertEqual(self.grants.returned, [1])

    def test_wants_cover_used_blocks_and_the_room(self) -> None:
        engine = self.engine()
        self.step(engine)
        self.assertEqual(self.grants.wanted, 1)
        self.pool.get_new_blocks(16)
        self.step(engine)
        self.assertEqual(self.grants.wanted, 3)
        self.grants.want(-1)
        self.step(engine)
        self.assertEqual(self.grants.wanted, -1, "an unchanged want repeated")

    def test_a_step_that_ends_says_wants_if_no_other_will_follow(self) -> None:
        engine = self.engine()
        self.unfinished = True

        def step(blocks: int) -> None:
            output = self.build_step(engine, tokens=1)
            self.pool.get_new_blocks(blocks)
            engine.step_processed(output)

        step(8)
        self.assertEqual(self.grants.wanted, 1, "the next step says it")
        self.unfinished = False
        step(0)
        self.assertEqual(self.grants.wanted, 2)  # 8 used, room for 5

    def test_a_slab_that_a_step_returns_is_no_longer_wanted(self) -> None:
        engine = self.engine()
        self.unfinished = True
        blocks = self.pool.get_new_blocks(10)
        (slab,) = {block.block_id // 10 for block in blocks}
        self.grants.ask_back(slab)
        output = self.build_step(engine, tokens=1)
        self.assertEqual(self.grants.wanted, 2)  # it, and room for 5
        self.pool.free_blocks(blocks)
        engine.step_processed(output)
        self.assertEqual(self.grants.returned, [slab])
        self.assertEqual(self.grants.wanted, 1)

    def test_the_watermark_is_a_fraction_of_what_is_leased(self) -> None:
        self.watermark = 25  # half of the view
        engine = self.engine()
        self.step(engine)
        self.assertEqual(self.manager.watermark_blocks, 10)  # of 1 + 20
        self.grants.lease(3)
        self.step(engine)
        self.assertEqual(self.manager.watermark_blocks, 15)

    def test_an_unused_slab_is_back_one_step_after_it_is_asked_for(
        self,
    ) -> None:
        engine = self.engine()
        self.grants.ask_back(2)
        self.step(engine)
        self.assertEqual(self.grants.returned, [2])
        self.assertEqual(engine.counters.returned, 1)

    def test_a_missed_deadline_is_counted_once(self) -> None:
        engine = self.engine(deadline_s=5)
        block = self.pool.get_new_blocks(1)
        self.grants.ask_back(1)
        self.step(engine)
        self.now = 4.9
        self.step(engine)
        self.assertEqual(engine.counters.stuck, 0)
        self.now = 5.0
        with self.assertLogs("vllm.fineserve_vllm.engine_leases", "WARNING"):
            self.step(engine)
        self.now = 50.0
        self.step(engine)
        self.assertEqual(engine.counters.stuck, 1)
        self.pool.free_blocks(block)
        self.step(engine)
        self.assertEqual(engine.counters.returned, 1)

    def test_a_deadline_begins_again_for_a_slab_leased_again(self) -> None:
        engine = self.engine(deadline_s=5)
        for times in (1, 2):
            blocks = self.pool.get_new_blocks(20)
            self.grants.ask_back(1)
            self.step(engine)
            self.assertEqual(engine.counters.stuck, times - 1)
            self.now += 100.0
            self.step(engine)
            self.assertEqual(engine.counters.stuck, times)
            self.pool.free_blocks(blocks)
            self.step(engine)
            self.grants.lease(1)
            self.step(engine)
        self.assertEqual(engine.counters.asked_back, 2)

    def test_a_wake_asks_for_exactly_one_step(self) -> None:
        engine = self.engine()
        posted: list[bool] = []
        engine.attach(lambda: posted.append(engine.has_work(False)))
        engine.wake()
        self.assertEqual(posted, [True], "work must be visible when posted")
        self.step(engine)
        self.assertFalse(engine.has_work(False))
