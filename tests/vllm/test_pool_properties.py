"""The leased pool against vLLM's own, on random operation sequences.

Needs the real vLLM. FINESERVE_SEED sets the seed (printed with every failure),
FINESERVE_POOL_STEPS the operations per sequence.
"""

from __future__ import annotations

import collections
import logging
import os
import random
import sys
import unittest
from typing import Any

import doubles

REAL = doubles.prepare()

SEED = int(
    os.environ.get("FINESERVE_SEED", random.SystemRandom().getrandbits(32))
)
STEPS = int(os.environ.get("FINESERVE_POOL_STEPS", "1500"))
BLOCK = 16  # tokens

if REAL:
    from fineserve_vllm.grants import Changes, InMemoryGrants, Slab
    from fineserve_vllm.pool import LeasedBlockPool
    from vllm import __version__ as VLLM_VERSION
    from vllm.distributed.kv_events import BlockRemoved, BlockStored
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core import kv_cache_coordinator
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_metrics import KVCacheMetricsCollector
    from vllm.v1.core.kv_cache_utils import (
        get_block_hash,
        get_request_block_hasher,
        init_none_hash,
        maybe_convert_block_hash,
    )
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
    )
    from vllm.v1.request import Request

    logging.getLogger("vllm.v1.core.block_pool").setLevel(logging.ERROR)
    init_none_hash(sha256)
    _HASHER = get_request_block_hasher(BLOCK, sha256)


def new_request(name: str, tokens: list[int]) -> Any:
    return Request(
        request_id=name,
        prompt_token_ids=tokens,
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        block_hasher=_HASHER,
    )


def prompt(rng: random.Random) -> list[int]:
    """Returns a prompt of one of a few families, which share prefixes of random
    length."""
    family = rng.randrange(4)
    shared = rng.randrange(0, 12) * BLOCK
    tokens = [family * 1000 + i for i in range(shared)]
    return tokens + [
        rng.randrange(50) for _ in range(rng.randrange(1, 5 * BLOCK))
    ]


def content(events: list[Any]) -> collections.Counter[str]:
    """Returns the events as a multiset; they contain no block ids."""
    return collections.Counter(repr(event) for event in events)


class Holding:
    """A request and its blocks in each of the pools, position by position."""

    def __init__(self, request: Any, blocks: list[list[Any]]) -> None:
        self.request = request
        self.blocks = blocks
        self.cached = 0


class Lockstep:
    """Drives pools through the same operations; all must act alike."""

    def __init__(
        self, test: unittest.TestCase, rng: random.Random, pools: list[Any]
    ):
        self.test = test
        self.rng = rng
        self.pools = pools
        self.held: list[Holding] = []
        self.count = 0

    def same(self, values: list[Any]) -> Any:
        for value in values[1:]:
            self.test.assertEqual(values[0], value)
        return values[0]

    def attempt(self, call: Any) -> list[Any] | None:
        """Returns the results, or None if every pool raised the same
        exception."""
        results, errors = [], []
        for index, pool in enumerate(self.pools):
            try:
                results.append(call(index, pool))
            except Exception as error:
                errors.append(repr(error))
        if not errors:
            return results
        self.test.assertEqual(len(errors), len(self.pools), errors)
        self.same(errors)
        return None

    def step(self) -> None:
        operation = self.rng.choices(
            [
                self.admit,
                self.take,
                self.finish,
                self.grow,
                self.evict,
                self.reset,
            ],
            weights=[30, 15, 35, 15, 4, 1],
        )[0]
        operation()
        self.compare()

    def admit(self) -> None:
        self.count += 1
        request = new_request(str(self.count), prompt(self.rng))
        hits: list[list[Any]] = [[] for _ in self.pools]
        if self.pools[0].enable_caching:
            for block_hash in request.block_hashes:
                found = [
                    p.get_cached_block(block_hash, [0]) for p in self.pools
                ]
                if not self.same([f is not None for f in found]):
                    break
                for mine, blocks in zip(hits, found):
                    mine.extend(blocks)
        for pool, blocks in zip(self.pools, hits):
            pool.touch(blocks)
        total = -(-request.num_tokens // BLOCK)
        fresh = self.attempt(
            lambda _, pool: pool.get_new_blocks(total - len(hits[0]))
        )
        if fresh is None:
            for pool, blocks in zip(self.pools, hits):
                pool.free_blocks(reversed(blocks))
            return
        holding = Holding(request, [h + f for h, f in zip(hits, fresh)])
        holding.cached = len(hits[0])
        self.held.append(holding)
        self.cache(holding)

    def take(self) -> None:
        n = self.rng.choice([0, 1, 1, 2, 7, 40])
        blocks = self.attempt(lambda _, pool: pool.get_new_blocks(n))
        if blocks is not None:
            self.held.append(Holding(None, blocks))

    def grow(self) -> None:
        if not self.held:
            return
        holding = self.rng.choice(self.held)
        fresh = self.attempt(lambda _, pool: pool.get_new_blocks(1))
        if fresh is None:
            return
        for mine, blocks in zip(holding.blocks, fresh):
            mine.extend(blocks)
        if holding.request is not None:
            tokens = [self.rng.randrange(50) for _ in range(BLOCK)]
            holding.request.append_output_token_ids(tokens)
            self.cache(holding)

    def used_ids(self) -> set[int]:
        """In the first pool."""
        return {b.block_id for h in self.held for b in h.blocks[0]}

    def cache(self, holding: Holding) -> None:
        full = holding.request.num_tokens // BLOCK
        if not self.pools[0].enable_caching or full <= holding.cached:
            return
        for pool, blocks in zip(self.pools, holding.blocks):
            pool.cache_full_blocks(
                request=holding.request,
                blocks=blocks,
                num_cached_blocks=holding.cached,
                num_full_blocks=full,
                block_size=BLOCK,
                kv_cache_group_id=0,
            )
        holding.cached = full

    def finish(self) -> None:
        if not self.held:
            return
        holding = self.held.pop(self.rng.randrange(len(self.held)))
        for pool, blocks in zip(self.pools, holding.blocks):
            pool.free_blocks(reversed(blocks))

    def evict(self) -> None:
        if not self.held:
            return
        holding = self.rng.choice(self.held)
        count = len(holding.blocks[0])
        picked = self.rng.sample(range(count), min(count, 3))
        for pool, blocks in zip(self.pools, holding.blocks):
            pool.evict_blocks({blocks[i].block_id for i in picked})

    def reset(self) -> None:
        if self.rng.random() < 0.5:
            while self.held:
                self.finish()
        self.same([pool.reset_prefix_cache() for pool in self.pools])

    def compare(self) -> None:
        self.same([pool.get_num_free_blocks() for pool in self.pools])
        self.same([pool.get_usage() for pool in self.pools])
        self.same([cached_hashes(pool) for pool in self.pools])
        self.same([content(pool.take_events()) for pool in self.pools])


def sampled(pool: Any) -> set[int]:
    """Returns the blocks whose residency is measured. This depends on ids: a
    reused block has a history, a fresh one has none."""
    return set(pool.metrics_collector.block_metrics)


def cached_hashes(pool: Any) -> collections.Counter[bytes]:
    """Returns the number of blocks cached under each hash."""
    cached: collections.Counter[bytes] = collections.Counter()
    for key, blocks in pool.cached_block_hash_to_block._cache.items():
        cached[key] = len(blocks) if isinstance(blocks, dict) else 1
    return cached


def external(key: Any) -> Any:
    return maybe_convert_block_hash(get_block_hash(key))


def make_pool(cls: Any, num_blocks: int, caching: bool, **kwargs: Any) -> Any:
    return cls(
        num_gpu_blocks=num_blocks,
        enable_caching=caching,
        hash_block_size=BLOCK,
        enable_kv_cache_events=True,
        metrics_collector=KVCacheMetricsCollector(sample_rate=1.0),
        **kwargs,
    )


@unittest.skipUnless(REAL, "vLLM is not installed")
class PoolPropertiesTest(unittest.TestCase):
    def setUp(self) -> None:
        self.rng = random.Random(SEED)
        self.seeded = self.subTest(seed=SEED)
        self.seeded.__enter__()
        self.addCleanup(self.seeded.__exit__, None, None, None)

    def test_with_everything_leased_as_one_slab_ids_equal_vllms(self) -> None:
        for caching in (False, True):
            with self.subTest(caching=caching, seed=SEED):
                n = 180
                pools = [
                    make_pool(BlockPool, n, caching),
                    make_pool(
                        LeasedBlockPool,
                        n,
                        caching,
                        grants=InMemoryGrants.everything(n),
                    ),
                ]
                lockstep = Lockstep(self, self.rng, pools)
                for _ in range(STEPS):
                    lockstep.step()
                    pools[1].apply(Changes())  # a schedule entry
                    for holding in lockstep.held:
                        ids = [
                            [b.block_id for b in bs] for bs in holding.blocks
                        ]
                        self.assertEqual(ids[0], ids[1])
                    free = [
                        [
                            b.block_id
                            for b in p.free_block_queue.get_all_free_blocks()
                        ]
                        for p in pools
                    ]
                    self.assertEqual(free[0], free[1])
                    lockstep.same([sampled(pool) for pool in pools])

    def test_with_many_slabs_fully_leased_all_but_ids_equals_vllms(
        self,
    ) -> None:
        for caching in (False, True):
            with self.subTest(caching=caching, seed=SEED):
                slabs, per_slab = 9, 20
                grants = InMemoryGrants.uniform(
                    slabs, per_slab, range(1, slabs + 1)
                )
                view = (slabs + 1) * per_slab
                ours = make_pool(LeasedBlockPool, view, caching, grants=grants)
                stock = make_pool(BlockPool, slabs * per_slab + 1, caching)
                lockstep = Lockstep(self, self.rng, [stock, ours])
                for _ in range(STEPS):
                    lockstep.step()
                    if self.rng.random() < 0.3:
                        ours.apply(Changes())
                    self.check_queue(ours)

    def test_moving_leases_break_nothing(self) -> None:
        for caching in (False, True):
            with self.subTest(caching=caching, seed=SEED):
                self.move_leases(caching)

    def move_leases(self, caching: bool) -> None:
        rng = self.rng
        slabs, per_slab = 8, 12
        # Slabs of unequal size have holes between them, as ids of straddling
        # blocks leave.
        layout = [
            Slab(i, range(i * per_slab + (i % 3), (i + 1) * per_slab))
            for i in range(1, slabs + 1)
        ]
        grants = InMemoryGrants(layout, leased=[1, 2, 3])
        pool = make_pool(
            LeasedBlockPool, (slabs + 1) * per_slab, caching, grants=grants
        )
        lockstep = Lockstep(self, rng, [pool])
        in_flight: list[tuple[object, set[int]]] = []  # what each may write

        def return_slab() -> None:
            for index in pool.return_drained():
                for _, written in in_flight:
                    self.assertTrue(
                        written.isdisjoint(layout[index - 1].ids),
                        f"slab {index} was given back under a step in flight",
                    )

        cached: collections.Counter[bytes] = collections.Counter()
        # The checks below must see every event, so compare() must not drain
        # them first.
        lockstep.compare = lambda: None
        for _ in range(2 * STEPS):
            action = rng.random()
            if action < 0.08 and len(grants.held) < slabs:
                grants.lease(
                    rng.choice(
                        [s.index for s in layout if s.index not in grants.held]
                    )
                )
            elif action < 0.16 and grants.held:
                grants.ask_back(rng.choice(sorted(grants.held)))
            elif action < 0.40:
                pool.fence.schedule_begins()
                pool.apply(grants.poll())
                return_slab()
                # Copies within the step read and write blocks that the step
                # frees.
                written = lockstep.used_ids()
                if rng.random() < 0.3:
                    lockstep.step()  # frees and takes within schedule()
                written |= lockstep.used_ids()
                output = object()
                pool.fence.schedule_ends(output)
                in_flight.append((output, written))
            elif action < 0.60 and in_flight:
                pool.fence.step_processed(in_flight.pop(0)[0])
                return_slab()
            else:
                lockstep.step()
            self.check_leases(pool, grants, lockstep)
            self.check_queue(pool)
            for event in pool.take_events():
                if isinstance(event, BlockStored):
                    cached.update(event.block_hashes)
                elif isinstance(event, BlockRemoved):
                    cached.subtract(event.block_hashes)
                else:
                    cached.clear()
            known = collections.Counter(
                {external(key): n for key, n in cached_hashes(pool).items()}
            )
            self.assertEqual(+cached, known, "a cached block was lost silently")
        self.assertGreater(len(grants.returned), 10, "the test moved nothing")
        # All slabs come back once no block is used.
        while lockstep.held:
            lockstep.finish()
        for index in sorted(grants.held):
            grants.ask_back(index)
        pool.apply(grants.poll())
        while in_flight:
            pool.fence.step_processed(in_flight.pop(0)[0])
            return_slab()
        return_slab()
        self.assertEqual(grants.held, frozenset())
        self.assertEqual(pool.get_num_free_blocks(), 0)
        self.assertEqual(pool.num_gpu_blocks, 1)
        self.assertEqual(pool.get_usage(), 0)
        self.assertFalse(cached_hashes(pool))
        self.assertFalse(pool.metrics_collector.block_metrics)

    def check_queue(self, pool: Any) -> None:
        free = pool.free_block_queue.get_all_free_blocks()
        ids = [block.block_id for block in free]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(len(ids), pool.get_num_free_blocks())
        linked = {i for index in pool.linked for i in pool._slabs[index].ids}
        self.assertLessEqual(set(ids), linked)
        for block in pool.blocks:
            free_now = block.block_id in linked and block.ref_cnt == 0
            self.assertEqual(block.block_id in set(ids), free_now, block)

    def check_leases(self, pool: Any, grants: Any, lockstep: Lockstep) -> None:
        leased = {
            i
            for slab in grants.slabs()
            if slab.index in grants.held
            for i in slab.ids
        }
        used = lockstep.used_ids()
        self.assertLessEqual(used, leased, "a used block outside the lease")
        for block in pool.blocks:
            if block.block_id not in leased:
                self.assertIsNone(block.block_hash, "cached outside the lease")
        self.assertEqual(
            pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(), len(used)
        )
        self.assertTrue(0 <= pool.get_usage() <= 1)

    def test_allocation_never_raises_where_vllm_returns_none(self) -> None:
        slabs, per_slab = 6, 16
        grants = InMemoryGrants.uniform(slabs, per_slab, [1, 2])
        manager = new_manager((slabs + 1) * per_slab, lambda _: grants)
        rng, running, refused = self.rng, [], 0
        for i in range(STEPS):
            if rng.random() < 0.2:
                index = rng.randrange(1, slabs + 1)
                (grants.ask_back if index in grants.held else grants.lease)(
                    index
                )
            manager.block_pool.apply(grants.poll())
            manager.block_pool.return_drained()
            request = new_request(str(i), prompt(rng))
            hit, hit_tokens = manager.get_computed_blocks(request)[:2]
            blocks = manager.allocate_slots(
                request,
                request.num_tokens - hit_tokens,
                num_new_computed_tokens=hit_tokens,
                new_computed_blocks=hit,
            )
            if blocks is None:
                refused += 1
            else:
                running.append(request)
            while running and (blocks is None or rng.random() < 0.4):
                manager.free(running.pop(rng.randrange(len(running))))
                blocks = hit
            self.check_queue(manager.block_pool)
        self.assertGreater(refused, 0, "the test never ran dry")

    def test_prefix_hit_rate_while_slabs_are_taken_back(self) -> None:
        slabs, per_slab = 16, 32
        view = (slabs + 1) * per_slab
        grants = InMemoryGrants.uniform(slabs, per_slab, range(1, slabs + 1))
        managers = {
            "stock, all": new_manager(slabs * per_slab + 1, None),
            "stock, half": new_manager(slabs // 2 * per_slab + 1, None),
            "leased": new_manager(view, lambda _: grants),
        }
        hits: dict[tuple[str, str], list[int]] = collections.defaultdict(
            lambda: [0, 0]
        )
        rounds = 3000
        phases = ["full", "shrinking", "half", "regrown"]
        for i in range(rounds):
            phase = phases[i * len(phases) // rounds]
            if (
                phase == "shrinking"
                and i % 90 == 0
                and len(grants.held) > slabs // 2
            ):
                # For the cache, it is worst to ask the fullest slab back.
                grants.ask_back(min(managers["leased"].block_pool.linked))
            if phase == "regrown" and len(grants.held) < slabs:
                grants.lease(min(set(range(1, slabs + 1)) - grants.held))
            managers["leased"].block_pool.apply(grants.poll())
            managers["leased"].block_pool.return_drained()
            document = int(self.rng.paretovariate(0.8)) % 60
            tokens = [document * 100 + j for j in range(8 * BLOCK)]
            tokens += [self.rng.randrange(50) for _ in range(24)]
            for name, manager in managers.items():
                request = new_request(str(i), tokens)
                hit, hit_tokens = manager.get_computed_blocks(request)[:2]
                self.assertIsNotNone(
                    manager.allocate_slots(
                        request,
                        request.num_tokens - hit_tokens,
                        num_new_computed_tokens=hit_tokens,
                        new_computed_blocks=hit,
                    )
                )
                manager.free(request)
                rate = hits[name, phase]
                rate[0] += hit_tokens
                rate[1] += request.num_tokens
        print(
            f"\nprefix hit rate, vLLM {VLLM_VERSION}, seed {SEED}",
            file=sys.stderr,
        )
        rate_of = {key: hit / total for key, (hit, total) in hits.items()}
        for name in managers:
            row = "  ".join(f"{p} {rate_of[name, p]:.3f}" for p in phases)
            print(f"  {name:12} {row}", file=sys.stderr)
        self.assertEqual(
            rate_of["leased", "full"], rate_of["stock, all", "full"]
        )
        self.assertGreaterEqual(
            rate_of["leased", "half"], rate_of["stock, half", "half"] - 0.05
        )
        self.assertGreaterEqual(
            rate_of["leased", "regrown"],
            rate_of["stock, half", "regrown"] - 0.05,
        )


def new_manager(num_blocks: int, factory: Any) -> Any:
    """Returns vLLM's KVCacheManager, on leased slabs if `factory` makes
    grants."""
    import torch

    spec = FullAttentionSpec(
        block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    config = KVCacheConfig(
        num_blocks=num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
    original = kv_cache_coordinator.BlockPool
    if factory is not None:
        kv_cache_coordinator.BlockPool = LeasedBlockPool
        LeasedBlockPool.grants_factory = staticmethod(factory)
    try:
        return KVCacheManager(
            config,
            max_model_len=4096,
            scheduler_block_size=BLOCK,
            hash_block_size=BLOCK,
            enable_caching=True,
            enable_kv_cache_events=True,
        )
    finally:
        kv_cache_coordinator.BlockPool = original
        LeasedBlockPool.grants_factory = None
