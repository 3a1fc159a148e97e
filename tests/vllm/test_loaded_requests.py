"""Requests whose KV came from the host do not stop an engine for good.

Runs on vLLM's block pool where it is installed, else on the doubles.
"""

from __future__ import annotations

import random
import types
import unittest
from typing import Any

import doubles

REAL = doubles.prepare()

from doubles import build  # noqa: E402
from fineserve_vllm import plugin  # noqa: E402
from fineserve_vllm.demand import Demand  # noqa: E402
from fineserve_vllm.engine_leases import AskBackOptions, EngineLeases  # noqa: E402
from fineserve_vllm.grants import InMemoryGrants  # noqa: E402
from fineserve_vllm.kv_groups import Taken  # noqa: E402
from fineserve_vllm.loaded_requests import LoadedRequests, watch  # noqa: E402
from fineserve_vllm.pool import LeasedBlockPool  # noqa: E402
from loading_scheduler import (  # noqa: E402
    BLOCK_TOKENS,
    LoadingScheduler,
    Request,
    status,
)

SLABS = 8
PER_SLAB = 16
FLOOR = 2  # slabs: the longest request
MOST_TOKENS = FLOOR * PER_SLAB * BLOCK_TOKENS
GROUPS = [Taken(BLOCK_TOKENS, FLOOR * PER_SLAB)]
SEEDS = 400
PATIENCE_S = 0.125
STEP_S = 0.03125
# An engine counts as stuck after this many steps without a token: many times
# its patience and the duration of a load.
STUCK = 300


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def new_pool(leased: Any) -> tuple[InMemoryGrants, LeasedBlockPool]:
    grants = InMemoryGrants.uniform(SLABS, PER_SLAB, leased)
    blocks = (SLABS + 1) * PER_SLAB
    return grants, LeasedBlockPool(blocks, True, BLOCK_TOKENS, grants=grants)


class Engine:
    """One engine, and a daemon that takes slabs back, down to the engine's
    floor, when a neighbour needs them. From some step on the daemon keeps them
    for good."""

    def __init__(self, seed: int, mended: bool) -> None:
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.grants, pool = new_pool(range(1, SLABS + 1))
        self.scheduler = LoadingScheduler(pool, self.rng)
        self.leases = EngineLeases(
            self.scheduler,
            pool,
            Demand(self.scheduler, GROUPS).blocks,
            AskBackOptions(),
            self.clock,
            loaded=(
                LoadedRequests(self.scheduler, pool, self.clock, PATIENCE_S)
                if mended
                else None
            ),
        )
        self.asked: set[int] = set()
        self.crowded_from = self.rng.randrange(40)
        for i in range(16):
            tokens = self.rng.randrange(100, 400)
            loaded = (tokens - self.rng.randrange(1, 100)) // BLOCK_TOKENS
            if self.rng.random() < 0.2:
                loaded = 0
            generated = self.rng.randrange(1, MOST_TOKENS - tokens)
            self.scheduler.add(
                Request(
                    f"r{i}", tokens, loaded * BLOCK_TOKENS, min(generated, 60)
                )
            )

    def is_stuck(self) -> bool:
        """Runs until all requests have ended or nothing moves; returns True
        in the second case."""
        idle = steps = 0
        while self.scheduler.has_unfinished_requests() and idle < STUCK:
            self.lessor(steps >= self.crowded_from)
            idle = 0 if self.step() else idle + 1
            steps += 1
        return idle == STUCK

    def step(self) -> int:
        self.clock.now += STEP_S
        self.leases.schedule_begins()
        output = self.scheduler.schedule()
        self.leases.schedule_ends(output)
        self.scheduler.update_from_output(output)
        self.leases.step_processed(output)
        tokens: int = output.total_num_scheduled_tokens
        return tokens

    def lessor(self, crowded: bool) -> None:
        held = self.grants.held
        self.asked &= held
        target = FLOOR if crowded else SLABS
        staying = list(held - self.asked)
        staying.sort(key=self.used, reverse=True)
        for index in staying[target:]:  # those with the fewest used blocks
            self.asked.add(index)
            self.grants.ask_back(index)
        most = max(FLOOR, min(self.grants.wanted, target))
        free = sorted(set(range(1, SLABS + 1)) - held)
        if len(held) < most and free and self.rng.random() < 0.5:
            self.grants.lease(self.rng.choice(free))

    def used(self, index: int) -> int:
        """Blocks of requests in a slab."""
        ids = range(index * PER_SLAB, (index + 1) * PER_SLAB)
        return sum(self.leases.pool.blocks[i].ref_cnt for i in ids)


class SeededTest(unittest.TestCase):
    def test_no_engine_is_stuck(self) -> None:
        let_go = 0
        for seed in range(SEEDS):
            engine = Engine(seed, mended=True)
            self.assertFalse(engine.is_stuck(), f"seed {seed}")
            let_go += engine.leases.counters.let_go
            self.assertEqual(engine.leases.pool.used_blocks, 0)
        print(f"{let_go} times a request let its blocks go, {SEEDS} seeds")
        self.assertGreater(let_go, 0)

    def test_engines_are_stuck_if_requests_keep_their_blocks(self) -> None:
        seeds = SEEDS // 4
        stuck = sum(
            Engine(seed, mended=False).is_stuck() for seed in range(seeds)
        )
        print(f"{stuck} of {seeds} seeds are stuck")
        self.assertGreater(stuck, 0)


EMPTY = types.SimpleNamespace(total_num_scheduled_tokens=0)
BUSY = types.SimpleNamespace(total_num_scheduled_tokens=1)


class LoadedRequestsTest(unittest.TestCase):
    """Two requests of a slab and a half each, in three slabs; then only slabs 1
    and 2 stay."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.grants, self.pool = new_pool([1, 2, 3])
        self.scheduler = LoadingScheduler(self.pool, random.Random(0))
        self.loaded = LoadedRequests(
            self.scheduler, self.pool, self.clock, PATIENCE_S
        )

    def hold(self, name: str, blocks: int, state: str = "WAITING") -> Request:
        """Adds a request of which `blocks` blocks have been loaded and which
        needs more."""
        request = Request(name, 30 * BLOCK_TOKENS, blocks * BLOCK_TOKENS, 1)
        self.scheduler.requests[name] = request
        request.blocks = self.pool.get_new_blocks(blocks)
        request.num_computed_tokens = request.on_host
        request.status = status(state)
        self.scheduler.kv_holding_waiting.append(request)
        self.scheduler._inflight_prefills.add(request)
        return request

    def ask_back(self, *indices: int) -> None:
        for index in indices:
            self.grants.ask_back(index)
        self.pool.apply(self.grants.poll())

    def after(self, seconds: float, output: Any = EMPTY) -> int:
        self.clock.now += seconds
        return self.loaded.step_built(output)

    def out_of_patience(self) -> int:
        self.assertEqual(self.after(0), 0)
        return self.after(PATIENCE_S)

    def test_the_last_one_goes_back_to_be_loaded_again(self) -> None:
        first = self.hold("first", 24)
        last = self.hold("last", 24, "WAITING_FOR_REMOTE_KVS")
        self.scheduler.finished_recving_kv_req_ids.add("last")
        self.ask_back(3)
        self.assertEqual(self.out_of_patience(), 1)
        self.assertEqual(list(self.scheduler.kv_holding_waiting), [first])
        self.assertEqual(list(self.scheduler.waiting), [last])
        self.assertEqual(last.num_computed_tokens, 0)
        self.assertEqual(last.status.name, "WAITING")
        self.assertEqual(last.num_preemptions, 0, "no worker knows of it")
        self.assertEqual(last.blocks, [])
        self.assertEqual(self.scheduler._inflight_prefills, {first})
        self.assertEqual(self.pool.return_drained(), [3])

    def test_a_request_that_has_run_before_stays_preempted(self) -> None:
        self.hold("first", 24)
        last = self.hold("last", 24, "PREEMPTED")
        self.ask_back(3)
        self.assertEqual(self.out_of_patience(), 1)
        self.assertEqual(last.status.name, "PREEMPTED")

    def test_wanted_slabs_are_waited_for_first(self) -> None:
        for name in "first", "second", "last":
            self.hold(name, 16)
        self.ask_back(3)
        self.assertEqual(self.after(0), 0)
        self.assertEqual(self.after(PATIENCE_S / 2), 0)
        self.assertEqual(self.after(0, BUSY), 0)
        self.assertEqual(self.after(PATIENCE_S), 0, "a new wait")
        self.assertEqual(self.after(PATIENCE_S), 1)
        self.assertEqual(self.after(0), 1, "and so on until something moves")

    def test_a_load_under_way_is_waited_for(self) -> None:
        self.hold("first", 24)
        self.hold("last", 20, "WAITING_FOR_REMOTE_KVS")
        self.ask_back(3)
        self.assertEqual(self.out_of_patience(), 0)
        self.scheduler.finished_recving_kv_req_ids.add("last")
        self.assertEqual(self.out_of_patience(), 1)

    def test_a_running_request_can_be_preempted_instead(self) -> None:
        self.hold("first", 20)
        self.hold("last", 20)
        self.scheduler.running.append(Request("running", 1, 0, 1))
        self.ask_back(3)
        self.assertEqual(self.out_of_patience(), 0)

    def test_the_only_one_goes_if_it_keeps_a_slab_from_leaving(self) -> None:
        self.hold("only", 24)
        self.assertEqual(self.out_of_patience(), 0)
        self.ask_back(1)
        self.assertEqual(self.out_of_patience(), 1)
        self.assertEqual(self.pool.return_drained(), [1])

    def test_a_paused_session_is_left_alone(self) -> None:
        self.hold("session", 24, "WAITING_FOR_STREAMING_REQ")
        self.ask_back(1)
        self.assertEqual(self.out_of_patience(), 0)

    def test_a_scheduler_that_loads_nothing_is_not_watched(self) -> None:
        self.assertIsInstance(watch(self.scheduler, self.pool), LoadedRequests)
        self.scheduler.connector = None
        self.assertIsNone(watch(self.scheduler, self.pool))

    def test_remaining_blocks_are_wanted(self) -> None:
        room = Demand(self.scheduler, GROUPS).blocks
        self.assertEqual(room(), 0)
        self.hold("first", 24)  # 4 tokens more, and a block that is not full
        self.assertEqual(room(), 6 + 1 + 1)


class OffloadingConnector:
    """A connector that finds all but the last 40 tokens of each request on the
    host."""

    def __getattr__(self, name: str) -> Any:
        """Answers all other calls."""
        answers = {
            "get_loaded_kv_cache_group_ids": (),
            "request_finished": (False, None),
            "take_events": (),
        }
        return lambda *_arguments: answers.get(name)

    def get_num_new_matched_tokens(
        self, request: Any, computed: int
    ) -> tuple[int, bool]:
        found = (request.num_tokens - 40) // BLOCK_TOKENS * BLOCK_TOKENS
        return max(0, found - computed), found > computed


@unittest.skipUnless(REAL, "the doubles load no requests")
class InVllmTest(unittest.TestCase):
    def setUp(self) -> None:
        self.grants = InMemoryGrants.uniform(SLABS, PER_SLAB, leased=[1, 2, 3])
        self.addCleanup(plugin.uninstall)
        plugin.install(lambda num_blocks: self.grants)
        self.scheduler = build.scheduler((SLABS + 1) * PER_SLAB)
        self.scheduler.connector = OffloadingConnector()
        self.leases = plugin.leases_of(self.scheduler)
        self.leases._loaded = LoadedRequests(
            self.scheduler, self.leases.pool, Clock(), patience_s=0
        )

    def finish_loads(self) -> None:
        for request in self.scheduler.kv_holding_waiting:
            if request.status.name == "WAITING_FOR_REMOTE_KVS":
                self.scheduler.finished_recving_kv_req_ids.add(
                    request.request_id
                )

    def test_a_request_that_let_its_blocks_go_is_loaded_again_and_runs(
        self,
    ) -> None:
        # Each request loads 20 blocks from the host and needs 3 more.
        for name in "a", "b":
            build.add_request(self.scheduler, name, 23 * BLOCK_TOKENS - 8)
        build.step(self.scheduler)
        self.assertEqual(self.leases.pool.used_blocks, 40)
        self.finish_loads()
        self.grants.ask_back(3)  # with the only free blocks
        build.step(self.scheduler)
        self.assertEqual(self.leases.counters.let_go, 1)
        output = self.scheduler.schedule()
        self.assertEqual(list(output.num_scheduled_tokens), ["a"])
        build.process(self.scheduler, output)
        self.assertEqual(self.grants.returned, [3])
        self.grants.lease(4)
        build.step(self.scheduler)
        self.finish_loads()
        output = self.scheduler.schedule()
        self.assertEqual(set(output.num_scheduled_tokens), {"a", "b"})
        (new,) = output.scheduled_new_reqs
        self.assertEqual((new.req_id, new.num_computed_tokens), ("b", 320))
        build.process(self.scheduler, output)
