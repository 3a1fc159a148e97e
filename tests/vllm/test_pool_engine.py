"""The plugin in vLLM's scheduler: what is replaced, refused, woken, counted.

Runs on vLLM where it is installed, else on the doubles.
"""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import subprocess
import sys
import threading
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import doubles
from doubles import build
from fineserve_vllm import grants, plugin, support
from fineserve_vllm.demand import Demand
from fineserve_vllm.engine_leases import AskBackOptions
from fineserve_vllm.grants import InMemoryGrants
from fineserve_vllm.kv_abi import Error, KvError, Presence
from fineserve_vllm.kv_groups import Taken
from fineserve_vllm.pool import LeasedBlockPool
from vllm.v1.core import kv_cache_coordinator
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import core as engine_core

SLABS, PER_SLAB = 4, 16
NUM_BLOCKS = (SLABS + 1) * PER_SLAB
SLABS_OF_MANY = 40
AT_ONCE = AskBackOptions(deadline_s=0, preempt=True)


class EngineTest(unittest.TestCase):
    """Tests with a pool of which slabs 1 and 2 are leased."""

    def setUp(self) -> None:
        self.grants = InMemoryGrants.uniform(SLABS, PER_SLAB, leased=[1, 2])
        self.addCleanup(plugin.uninstall)
        plugin._engines.clear()  # of other tests

    def install(self, **arguments: Any) -> None:
        plugin.install(lambda num_blocks: self.grants, **arguments)

    def scheduler(self, **changed: Any) -> Any:
        return build.scheduler(NUM_BLOCKS, **changed)

    def installed(self) -> Any:
        """Installs the plugin and returns a scheduler whose slabs are
        leased."""
        self.install()
        return self.scheduler()


class InstallTest(EngineTest):
    def test_a_scheduler_built_after_install_lives_on_leases(self) -> None:
        scheduler = self.installed()
        pool = scheduler.kv_cache_manager.block_pool
        self.assertIsInstance(pool, LeasedBlockPool)
        self.assertEqual(pool.get_num_free_blocks(), 2 * PER_SLAB)

    def test_installing_twice_wraps_once_and_uninstalling_restores(
        self,
    ) -> None:
        before = dict(vars(Scheduler))
        self.install()
        scheduler = self.installed()
        build.step(scheduler)
        fence = scheduler.kv_cache_manager.block_pool.fence
        self.assertEqual((fence.scheduled, fence.processed), (1, 1))
        plugin.uninstall()
        self.assertEqual(dict(vars(Scheduler)), before)
        self.assertIs(kv_cache_coordinator.BlockPool, BlockPool)
        self.assertIs(
            type(self.scheduler().kv_cache_manager.block_pool), BlockPool
        )

    def test_schedulers_have_leases_of_their_own(self) -> None:
        plugin.install(InMemoryGrants.everything)
        first, second = self.scheduler(), self.scheduler()
        self.assertIsNot(plugin.leases_of(first), plugin.leases_of(second))
        self.assertIsNot(
            first.kv_cache_manager.block_pool.grants,
            second.kv_cache_manager.block_pool.grants,
        )

    def test_a_version_without_the_name_is_refused_and_left_alone(self) -> None:
        before = dict(vars(Scheduler))
        del kv_cache_coordinator.BlockPool
        self.addCleanup(setattr, kv_cache_coordinator, "BlockPool", BlockPool)
        with self.assertRaisesRegex(RuntimeError, "defines no BlockPool"):
            self.install()
        self.assertEqual(dict(vars(Scheduler)), before)

    def test_a_scheduler_that_got_another_pool_is_refused(self) -> None:
        self.install()
        kv_cache_coordinator.BlockPool = BlockPool  # as if built elsewhere
        with self.assertRaisesRegex(RuntimeError, "instead of the leased pool"):
            self.scheduler()

    def test_register_without_the_preload_leaves_vllm_alone(self) -> None:
        before = dict(vars(Scheduler))
        plugin.register()
        self.assertEqual(dict(vars(Scheduler)), before)
        self.assertIs(kv_cache_coordinator.BlockPool, BlockPool)


def drafting(method: str | None, **model: bool) -> Any:
    """Returns a configuration with this method of speculative decoding."""
    kinds = {"is_hybrid": False, "is_attention_free": False, **model}
    return types.SimpleNamespace(
        kv_transfer_config=None,
        speculative_config=method and types.SimpleNamespace(method=method),
        model_config=types.SimpleNamespace(**kinds),
        parallel_config=types.SimpleNamespace(
            distributed_executor_backend="uni"
        ),
    )


class RefusalTest(EngineTest):
    def test_unsupported_feature_is_refused_with_the_flag_to_set(
        self,
    ) -> None:
        self.install()
        for flag, path, value in (
            (
                "--distributed-executor-backend mp",
                "vllm_config__parallel_config__world_size",
                2,
            ),
            (
                "--nnodes 1",
                "vllm_config__parallel_config__nnodes",
                2,
            ),
            (
                "connector MooncakeConnector .* remove --kv-transfer-config",
                "vllm_config__kv_transfer_config",
                types.SimpleNamespace(kv_connector="MooncakeConnector"),
            ),
            (
                "NixlPushConnector .* another process .* set NixlConnector",
                "vllm_config__kv_transfer_config",
                types.SimpleNamespace(kv_connector="NixlPushConnector"),
            ),
            (
                "remove kv_buffer_device",
                "vllm_config__kv_transfer_config",
                types.SimpleNamespace(
                    kv_connector="NixlConnector", kv_buffer_device="cpu"
                ),
            ),
        ):
            with self.subTest(flag), self.assertRaisesRegex(RuntimeError, flag):
                self.scheduler(**{path: value})

    def test_a_sleep_mode_that_frees_the_kv_cache_itself_is_refused(
        self,
    ) -> None:
        model = types.SimpleNamespace(
            enable_sleep_mode=True, sleep_mode_backend="criu"
        )
        parallel = types.SimpleNamespace(
            world_size=1,
            nnodes=1,
            data_parallel_size=1,
            distributed_executor_backend="uni",
        )
        config = types.SimpleNamespace(
            model_config=model, parallel_config=parallel, kv_transfer_config=None
        )
        with self.assertRaisesRegex(RuntimeError, "backend criu"):
            support.refuse(config)
        model.sleep_mode_backend = "cumem"
        support.refuse(config)
        config.kv_transfer_config = types.SimpleNamespace(
            kv_connector="OffloadingConnector"
        )
        with self.assertRaisesRegex(RuntimeError, "--enable-sleep-mode"):
            support.refuse(config)
        model.enable_sleep_mode = False
        support.refuse(config)
        parallel.distributed_executor_backend = "mp"
        support.refuse(config)
        config.kv_transfer_config.kv_connector = "NixlConnector"
        with self.assertRaisesRegex(RuntimeError, "NixlConnector of workers"):
            support.refuse(config)
        config.kv_transfer_config = None
        model.enable_sleep_mode = True
        support.refuse(config)

    def test_ranks_that_step_together_are_refused_what_one_does_alone(
        self,
    ) -> None:
        parallel = types.SimpleNamespace(
            world_size=1,
            nnodes=1,
            data_parallel_size=2,
            distributed_executor_backend="uni",
            enable_elastic_ep=False,
            enable_fault_tolerance=False,
        )
        model = types.SimpleNamespace(
            is_moe=True,
            is_hybrid=True,
            is_attention_free=False,
            enable_sleep_mode=False,
        )
        config = types.SimpleNamespace(
            model_config=model,
            parallel_config=parallel,
            kv_transfer_config=None,
            speculative_config=types.SimpleNamespace(method="ngram"),
            use_v2_model_runner=True,
        )
        connector = types.SimpleNamespace(kv_connector="OffloadingConnector")
        drafts = types.SimpleNamespace(method="mtp")
        support.refuse(config)
        for owner, name, value, flag in (
            (model, "enable_sleep_mode", True, "--enable-sleep-mode"),
            (config, "speculative_config", drafts, "--speculative-config"),
            (config, "kv_transfer_config", connector, "--kv-transfer-config"),
            (parallel, "enable_elastic_ep", True, "--enable-elastic-ep"),
            (parallel, "enable_fault_tolerance", True, "--enable-fault-tol"),
            (config, "use_v2_model_runner", False, "VLLM_USE_V2_MODEL_RUNNER"),
        ):
            with self.subTest(flag), mock.patch.object(owner, name, value):
                self.refused(config, flag)
        with mock.patch.dict(os.environ, {"FINESERVE_EVICT": "auto"}):
            self.refused(config, "FINESERVE_EVICT")
        model.is_moe = False  # each rank is an engine of its own
        parallel.enable_elastic_ep = True
        support.refuse(config)
        model.is_moe, parallel.data_parallel_size = True, 1
        support.refuse(config)

    def refused(self, config: Any, flag: str) -> None:
        with self.assertRaisesRegex(RuntimeError, f"step together .*{flag}"):
            support.refuse(config)

    def test_only_drafts_from_tokens_write_no_kv_behind_their_step(
        self,
    ) -> None:
        for method, writes in (
            (None, False),
            ("ngram", False),
            ("ngram_gpu", False),
            ("suffix", False),
            ("draft_model", True),
            ("eagle", True),
            ("mtp", True),
        ):
            with self.subTest(method):
                self.assertEqual(
                    support.step_writes_after_its_tokens(drafting(method)),
                    writes,
                )

    def test_a_state_moves_behind_a_step_with_drafts_of_any_kind(self) -> None:
        for method, writes in (
            (None, False),
            ("ngram", True),
            ("ngram_gpu", True),
            ("suffix", True),
            ("mtp", True),
        ):
            for kind in ("is_hybrid", "is_attention_free"):
                config = drafting(method, **{kind: True})
                with self.subTest(method, kind=kind):
                    self.assertEqual(
                        support.step_writes_after_its_tokens(config), writes
                    )

    def test_a_slab_waits_for_the_state_that_moves_behind_its_step(
        self,
    ) -> None:
        for hybrid in (False, True):
            config = drafting("ngram", is_hybrid=hybrid)
            with self.subTest(hybrid=hybrid):
                fence = plugin._fence_for(config, None)
                steps = [
                    types.SimpleNamespace(total_num_scheduled_tokens=1)
                    for _ in range(2)
                ]
                for step in steps:
                    fence.schedule_begins()
                    fence.schedule_ends(step)
                fence.step_processed(steps[0])
                self.assertEqual(fence.passed(1), not hybrid)
                fence.step_processed(steps[1])
                self.assertTrue(fence.passed(1))

    def test_a_scheduler_class_that_bypasses_the_step_is_refused(self) -> None:
        class Bypassing(Scheduler):
            def schedule(self, *args: Any, **kwargs: Any) -> None:
                raise NotImplementedError

        with self.assertRaisesRegex(RuntimeError, "--scheduler-cls"):
            support.refuse_scheduler_class(Bypassing, Scheduler)

    def test_without_leases_nothing_is_refused(self) -> None:
        self.scheduler(vllm_config__parallel_config__nnodes=2)


def held_blocks(scheduler: Any) -> set[int]:
    pool = scheduler.kv_cache_manager.block_pool
    return {b.block_id for b in pool.blocks if b.ref_cnt and not b.is_null}


def from_another_thread(call: Any) -> None:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(timeout=120)
    assert not thread.is_alive()


class WantTest(EngineTest):
    def test_an_idle_engine_wants_what_it_uses_without_room_for_steps(
        self,
    ) -> None:
        scheduler = self.installed()
        build.add_request(scheduler, "a", 20)
        build.step(scheduler)
        self.assertEqual(self.grants.wanted, 1)  # 2 blocks, and 2 soon
        build.finish_request(scheduler, "a")
        build.step(scheduler)
        self.assertEqual(self.grants.wanted, 0)

    def test_a_step_that_wakes_an_idle_engine_wants_nothing(self) -> None:
        scheduler = self.installed()
        plugin.leases_of(scheduler).attach(lambda: None)
        plugin.wake_all()
        build.step(scheduler)
        self.assertEqual(self.grants.wanted, 0)

    def test_a_request_that_is_aborted_between_steps_is_no_longer_wanted(
        self,
    ) -> None:
        scheduler = self.installed()
        build.add_request(scheduler, "a", 20)
        build.step(scheduler)
        build.finish_request(scheduler, "a")
        while scheduler.has_requests():  # as an engine does before it sleeps
            build.step(scheduler)
        self.assertEqual(self.grants.wanted, 0)

    def test_leaving_slabs_are_wanted_besides_what_is_needed(self) -> None:
        self.grants = InMemoryGrants.uniform(40, PER_SLAB, leased=[1, 2, 3])
        self.install()
        scheduler = build.scheduler(41 * PER_SLAB)
        # Two slabs with a used block each.
        for name, blocks in (("a", 15), ("b", 1), ("c", 1)):
            build.add_request(scheduler, name, blocks * build.BLOCK_TOKENS)
        build.step(scheduler)
        build.finish_request(scheduler, "a")
        build.step(scheduler)
        pool = scheduler.kv_cache_manager.block_pool
        used = held_blocks(scheduler)
        index = min(used) // PER_SLAB
        staying = {i for i in used if i // PER_SLAB != index}
        self.grants.ask_back(index)
        build.step(scheduler)
        groups = [Taken(build.BLOCK_TOKENS, 2048 // build.BLOCK_TOKENS)]
        room = Demand(scheduler, groups).blocks()
        self.assertEqual(
            self.grants.wanted, 1 + pool.slabs_for(len(staying) + room)
        )


    def grow(self, scheduler: Any, steps: int) -> None:
        """Runs steps of an engine that gets leases for all slabs that it
        wants."""
        for _ in range(steps):
            free = range(1, SLABS_OF_MANY + 1)
            for index in free[len(self.grants.held) : self.grants.wanted]:
                self.grants.lease(index)
            build.step(scheduler)

    @unittest.skipUnless(build.REAL, "the doubles let every request in")
    def test_a_prompt_of_many_steps_is_let_in_beside_others(self) -> None:
        self.grants = InMemoryGrants.uniform(SLABS_OF_MANY, PER_SLAB, [1])
        self.install()
        scheduler = build.scheduler(
            (SLABS_OF_MANY + 1) * PER_SLAB,
            vllm_config__scheduler_config__max_num_scheduled_tokens=64,
        )
        build.add_request(scheduler, "short", 20)
        self.grow(scheduler, 3)
        build.add_request(scheduler, "long", 1000)
        self.grow(scheduler, 3)
        self.assertEqual(
            [r.request_id for r in scheduler.running], ["short", "long"]
        )

    @unittest.skipUnless(build.REAL, "the doubles let every request in")
    def test_blocks_of_the_watermark_are_wanted_for_waiting_requests(
        self,
    ) -> None:
        self.grants = InMemoryGrants.uniform(SLABS_OF_MANY, PER_SLAB, [1, 2])
        self.install()
        scheduler = build.scheduler(
            (SLABS_OF_MANY + 1) * PER_SLAB,
            vllm_config__scheduler_config__watermark=0.25,
        )
        build.add_request(scheduler, "first", 20)
        self.grow(scheduler, 3)
        build.add_request(scheduler, "second", 25 * build.BLOCK_TOKENS)
        self.grow(scheduler, 5)
        self.assertEqual(
            [r.request_id for r in scheduler.running], ["first", "second"]
        )


class SleepTest(EngineTest):
    def test_a_sleeping_engine_holds_and_wants_nothing(self) -> None:
        scheduler = self.installed()
        pool = scheduler.kv_cache_manager.block_pool
        build.add_request(scheduler, "a", 40)
        build.step(scheduler)
        self.assertGreater(self.grants.wanted, 0)
        build.finish_request(scheduler, "a")
        self.grants.ask_back(2)
        build.step(scheduler)
        plugin.suspend_all()
        self.assertTrue(self.grants.suspended)
        self.assertEqual(self.grants.held, frozenset())
        self.assertEqual(pool.linked | pool.leaving, frozenset())
        self.assertEqual(pool.get_num_free_blocks(), 0)
        self.assertEqual(pool.num_gpu_blocks, 1)
        self.assertEqual(len(pool.cached_block_hash_to_block), 0)
        self.assertEqual(plugin.leases_of(scheduler).counters.returned, 2)
        build.step(scheduler)
        plugin.wake_all()
        plugin.leases_of(scheduler).attach(lambda: None)
        plugin.wake_all()
        self.assertFalse(scheduler.has_requests(), "a step would touch weights")

        plugin.suspend_all()  # again: nothing happens
        self.assertEqual(plugin.leases_of(scheduler).counters.returned, 2)
        self.assertTrue(plugin.resume_all())
        self.assertFalse(plugin.resume_all())
        self.assertFalse(self.grants.suspended)
        self.grants.lease(2)
        build.step(scheduler)
        build.add_request(scheduler, "b", 40)
        build.step(scheduler)
        self.assertEqual(pool.linked, {2})
        used = held_blocks(scheduler)
        self.assertEqual({block // PER_SLAB for block in used}, {2})
        self.assertGreater(self.grants.wanted, 0)

    def test_blocks_in_use_keep_an_engine_awake(self) -> None:
        scheduler = self.installed()
        build.add_request(scheduler, "a", 40)
        build.step(scheduler)
        with self.assertRaisesRegex(RuntimeError, "in use"):
            plugin.suspend_all()
        self.assertFalse(self.grants.suspended)
        self.assertEqual(self.grants.held, {1, 2})

    def test_a_grants_refusal_changes_nothing(self) -> None:
        scheduler = self.installed()
        pool = scheduler.kv_cache_manager.block_pool
        with (
            mock.patch.object(
                self.grants, "suspend", side_effect=RuntimeError
            ),
            self.assertRaises(RuntimeError),
        ):
            plugin.suspend_all()
        self.assertEqual(pool.linked, {1, 2})
        plugin.suspend_all()
        with (
            mock.patch.object(self.grants, "resume", side_effect=RuntimeError),
            self.assertRaises(RuntimeError),
        ):
            plugin.resume_all()
        self.assertEqual(pool.linked, frozenset())


class EvictionTest(EngineTest):
    def asked(self) -> None:
        self.grants.presence = Presence.ASKED_TO_LEAVE

    def test_an_idle_engine_leaves_when_asked_and_forgets_its_prefixes(
        self,
    ) -> None:
        scheduler = self.installed()
        pool = scheduler.kv_cache_manager.block_pool
        build.add_request(scheduler, "a", 40)
        build.step(scheduler)
        build.finish_request(scheduler, "a")
        build.step(scheduler)
        self.assertFalse(scheduler.has_requests())
        self.assertEqual(self.grants.presence, Presence.HERE, "it was not asked")
        self.asked()
        self.assertFalse(scheduler.has_requests())
        self.assertEqual(self.grants.presence, Presence.AWAY)
        self.assertEqual(pool.linked | pool.leaving, frozenset())
        self.assertEqual(len(pool.cached_block_hash_to_block), 0)
        plugin.leases_of(scheduler).attach(lambda: None)
        plugin.wake_all()
        self.assertFalse(scheduler.has_requests(), "a step would touch weights")

    def test_an_engine_whose_steps_others_share_neither_leaves_nor_sleeps(
        self,
    ) -> None:
        self.install(refuse_unsupported=False)
        with mock.patch.object(
            support, "steps_with_other_engines", lambda config: True
        ):
            scheduler = self.scheduler()
        self.asked()
        self.assertFalse(scheduler.has_requests())
        self.assertEqual(self.grants.presence, Presence.ASKED_TO_LEAVE)
        with self.assertRaisesRegex(RuntimeError, "sleep one at a time"):
            plugin.suspend_all()
        self.assertEqual(self.grants.held, {1, 2})

    def test_an_engine_with_requests_stays_and_leaves_after_the_last(
        self,
    ) -> None:
        scheduler = self.installed()
        build.add_request(scheduler, "a", 40)
        self.asked()
        for _ in range(3):
            plugin.wake_all()
            build.step(scheduler)
            self.assertTrue(scheduler.has_requests())
        self.assertEqual(self.grants.presence, Presence.ASKED_TO_LEAVE)
        build.finish_request(scheduler, "a")
        build.step(scheduler)
        scheduler.has_requests()
        self.assertEqual(self.grants.presence, Presence.AWAY)

    def test_a_step_brings_the_engine_back_before_its_first_block(
        self,
    ) -> None:
        scheduler = self.installed()
        self.asked()
        scheduler.has_requests()
        with mock.patch.object(
            self.grants,
            "come_back",
            side_effect=self.returns_at_the_third_time(),
        ) as come_back:
            build.step(scheduler)
        self.assertEqual(come_back.call_count, 3)
        self.assertFalse(self.grants.suspended)
        self.grants.lease(2)
        build.step(scheduler)
        build.add_request(scheduler, "b", 40)
        build.step(scheduler)
        used = held_blocks(scheduler)
        self.assertEqual({block // PER_SLAB for block in used}, {2})

    def test_an_engine_core_reads_its_queue_between_tries(self) -> None:
        for name in ("step", "step_with_batch_queue"):
            with self.subTest(name):
                self.setUp()
                self.reads_its_queue_between_tries(name)

    def reads_its_queue_between_tries(self, name: str) -> None:
        core = idle_engine_core(self.installed())
        core.batch_queue, core.batch_queue_size = collections.deque(), 2
        step = getattr(core, name)
        scheduler = core.scheduler
        self.asked()
        scheduler.has_requests()
        with (
            mock.patch.object(
                scheduler, "has_unfinished_requests", return_value=True
            ) as unfinished,
            mock.patch.object(
                self.grants, "come_back", return_value=False
            ) as come_back,
        ):
            for tries in (1, 2):
                self.assertTrue(scheduler.has_requests())
                self.assertEqual(step(), ({}, False))
                self.assertEqual(come_back.call_count, tries)
            unfinished.return_value = False  # all were aborted
            self.assertFalse(scheduler.has_requests())
            # vLLM may have a batch of no tokens in its queue.
            with mock.patch.object(
                scheduler, "has_requests", return_value=False
            ) as asked:
                step()
            self.assertEqual(asked.call_count, 1)
            self.assertEqual(come_back.call_count, 2)
            unfinished.return_value = True
            come_back.side_effect = self.returns_at_the_third_time()
            can_step = plugin.leases_of(scheduler).can_step
            self.assertEqual([can_step() for _ in range(3)], [False, False, True])
        self.assertFalse(self.grants.suspended)

    def test_a_step_waits_for_the_end_of_a_leave_before_it_asks(self) -> None:
        scheduler = self.installed()
        leases = plugin.leases_of(scheduler)
        found: list[bool] = []
        step = threading.Thread(target=lambda: found.append(leases.can_step()))

        def leave() -> None:
            scheduler.has_unfinished_requests.return_value = True
            step.start()
            step.join(timeout=0.05)
            InMemoryGrants.leave(self.grants)

        self.asked()
        with (
            mock.patch.object(
                scheduler, "has_unfinished_requests", return_value=False
            ),
            mock.patch.object(self.grants, "leave", leave),
            mock.patch.object(self.grants, "come_back", return_value=False),
        ):
            plugin.wake_all()
            step.join()
        self.assertEqual(found, [False])

    def test_requests_that_were_aborted_leave_no_tries_behind(self) -> None:
        scheduler = self.installed()
        leases = plugin.leases_of(scheduler)
        self.asked()
        scheduler.has_requests()
        with (
            mock.patch.object(
                scheduler, "has_unfinished_requests", return_value=True
            ) as unfinished,
            mock.patch.object(self.grants, "come_back", return_value=False),
        ):
            for tries in (9, 9, 10):
                with self.subTest(tries=tries), self.warnings() as warnings:
                    for _ in range(tries):
                        self.assertFalse(leases.can_step())
                    self.assertEqual(len(warnings), tries == 10)
                unfinished.return_value = False
                self.assertTrue(leases.can_step())
                unfinished.return_value = True

    @contextlib.contextmanager
    def warnings(self) -> Iterator[list[str]]:
        with mock.patch.object(grants, "_log") as log:
            found: list[str] = []
            log.warning = found.append
            yield found

    @unittest.skipUnless(build.REAL, "vLLM is not installed")
    def test_an_engine_core_whose_only_request_is_aborted_falls_idle(
        self,
    ) -> None:
        def abort(core: Any) -> None:
            core.input_queue.put(
                (engine_core.EngineCoreRequestType.ABORT, ["a"])
            )
            # The loop ends once it is idle.
            core._idle_state_callbacks.append(self.shut_down)

        self.runs_until(abort)

    @unittest.skipUnless(build.REAL, "vLLM is not installed")
    def test_an_engine_core_whose_memory_is_away_shuts_down(self) -> None:
        self.runs_until(self.shut_down)

    @staticmethod
    def shut_down(core: Any) -> None:
        core.shutdown_state = engine_core.EngineShutdownState.REQUESTED
        core.input_queue.put((engine_core.EngineCoreRequestType.WAKEUP, None))

    def runs_until(self, event: Callable[[Any], None]) -> None:
        """Runs vLLM's loop with a request whose memory stays away. `event`, at
        the second try, must make it end without a third one."""
        scheduler = self.installed()
        core = idle_engine_core(scheduler)
        core.vllm_config = types.SimpleNamespace(shutdown_timeout=0)
        core.publish_dp_lb_stats = False
        core.output_queue = queue.Queue()
        core.post_step = lambda model_executed: None
        core.step_fn = core.step
        self.asked()
        scheduler.has_requests()
        build.add_request(scheduler, "a", 40)
        tries = iter((lambda: None, lambda: event(core)))

        def come_back(timeout_s: float) -> bool:
            next(tries)()
            return False

        with mock.patch.object(self.grants, "come_back", come_back):
            with self.assertRaises(SystemExit):
                core.run_busy_loop()
        self.assertIsNone(next(tries, None), "both were made")
        self.assertFalse(scheduler.has_unfinished_requests())
        self.assertEqual(self.grants.presence, Presence.AWAY)

    def test_an_engine_core_has_one_wake_up_in_its_queue(self) -> None:
        core = idle_engine_core(self.installed())
        scheduler = core.scheduler
        plugin.leases_of(scheduler).attach(lambda: posted.append(True))
        posted: list[bool] = []
        for looks in (1, 2):
            plugin.wake_all()
            plugin.wake_all()
            self.assertEqual(len(posted), looks)
            scheduler.has_requests()

    def test_sleep_gives_up_soon_while_the_memory_is_away(self) -> None:
        scheduler = self.installed()
        self.asked()
        scheduler.has_requests()
        for then in (plugin.suspend_all, plugin.resume_all):
            with (
                mock.patch.object(
                    self.grants, "come_back", return_value=False
                ) as come_back,
                self.assertRaisesRegex(RuntimeError, "fsctl status"),
            ):
                then()
            self.assertEqual(come_back.call_count, 10)
        self.assertEqual(self.grants.presence, Presence.AWAY)
        plugin.suspend_all()
        self.assertEqual(self.grants.presence, Presence.HERE)

    @unittest.skipUnless(build.REAL, "vLLM is not installed")
    def test_requests_that_were_aborted_do_not_bring_it_back(self) -> None:
        scheduler = self.installed()
        self.asked()
        scheduler.has_requests()
        build.add_request(scheduler, "a", 40)
        self.assertTrue(scheduler.has_requests())
        build.finish_request(scheduler, "a")
        self.assertTrue(scheduler.has_finished_requests())
        self.assertFalse(scheduler.has_requests())
        self.assertEqual(self.grants.asked_to_come_back, 0)
        build.add_request(scheduler, "b", 40)
        build.step(scheduler)
        self.assertFalse(scheduler.has_finished_requests())

    def returns_at_the_third_time(self) -> Iterator[bool]:
        yield False
        yield False
        self.grants.presence = Presence.HERE
        yield True

    def test_an_engine_that_was_brought_back_takes_part_without_a_request(
        self,
    ) -> None:
        scheduler = self.installed()
        pool = scheduler.kv_cache_manager.block_pool
        self.asked()
        scheduler.has_requests()
        self.grants.presence = Presence.HERE
        self.assertFalse(scheduler.has_requests())
        self.assertFalse(self.grants.suspended)
        self.grants.lease(3)
        plugin.wake_all()
        self.assertEqual(pool.linked, {3})

    def test_vllms_own_sleep_brings_it_back_first(self) -> None:
        scheduler = self.installed()
        for then in (plugin.suspend_all, plugin.resume_all):
            self.asked()
            scheduler.has_requests()
            self.assertEqual(self.grants.presence, Presence.AWAY)
            then()
            self.assertEqual(self.grants.presence, Presence.HERE)
            plugin.resume_all()

    def test_a_block_in_use_and_a_refusal_keep_it_here(self) -> None:
        scheduler = self.installed()
        pool = scheduler.kv_cache_manager.block_pool
        self.asked()
        blocks = pool.get_new_blocks(1)
        self.assertFalse(scheduler.has_requests())
        self.assertEqual(self.grants.presence, Presence.ASKED_TO_LEAVE)
        pool.free_blocks(blocks)
        too_late = KvError("fs_kv_leave", Error.STATE, "no longer asked")
        with mock.patch.object(self.grants, "leave", side_effect=too_late):
            self.assertFalse(scheduler.has_requests())
        self.assertEqual(pool.linked, {1, 2})
        build.add_request(scheduler, "a", 40)
        build.step(scheduler)
        self.assertTrue(held_blocks(scheduler))


def sent_whole(output: Any) -> dict[str, list[int]]:
    """Returns all tokens of each request that a model runner starts again: the
    first runner gets them with resumed requests, the second with new ones."""
    resumed = output.scheduled_cached_reqs.all_token_ids
    return resumed | {
        new.req_id: new.prefill_token_ids
        for new in output.scheduled_new_reqs
        if new.prefill_token_ids is not None
    }


class AskBackTest(EngineTest):
    def both(self) -> list[bool]:
        return [False, True] if build.REAL else [False]

    @contextlib.contextmanager
    def engine(
        self, async_scheduling: bool, **arguments: Any
    ) -> Iterator[Any]:
        """Runs a subtest with a separate scheduler and separate leases."""
        with self.subTest(async_scheduling=async_scheduling):
            self.setUp()
            self.install(**arguments)
            yield self.scheduler(async_scheduling=async_scheduling)

    def test_an_idle_scheduler_returns_a_slab_in_one_step_when_woken(
        self,
    ) -> None:
        scheduler = self.installed()
        plugin.leases_of(scheduler).attach(lambda: None)
        self.grants.ask_back(2)
        self.assertFalse(scheduler.has_requests())
        plugin.wake_all()
        self.assertTrue(scheduler.has_requests())
        output = build.step(scheduler)
        self.assertEqual(output.total_num_scheduled_tokens, 0)
        self.assertFalse(scheduler.has_requests())
        self.assertEqual(self.grants.returned, [2])

    def test_a_blocked_engine_core_is_woken_from_another_thread(self) -> None:
        self.install()
        core = idle_engine_core(self.scheduler())
        waiting = threading.Thread(
            target=core._process_input_queue, daemon=True
        )
        waiting.start()
        # The thread first attaches the leases to its queue, and then sleeps on
        # the queue.
        while not plugin.leases_of(core.scheduler).attached:
            waiting.join(timeout=0.001)
        self.grants.ask_back(2)
        plugin.wake_all()
        waiting.join(timeout=120)
        self.assertFalse(waiting.is_alive(), "the engine slept on")
        build.step(core.scheduler)
        self.assertEqual(self.grants.returned, [2])

    def test_an_engine_that_is_not_stepped_answers_by_the_waking_thread(
        self,
    ) -> None:
        scheduler = self.installed()
        build.add_request(scheduler, "a", 16)
        output = scheduler.schedule()
        (held,) = {
            index
            for index in (1, 2)
            if held_blocks(scheduler).intersection(
                range(index * PER_SLAB, (index + 1) * PER_SLAB)
            )
        }
        for index in (1, 2):
            self.grants.ask_back(index)
        from_another_thread(plugin.wake_all)
        self.assertEqual(
            self.grants.returned, [], "the step in flight may write it"
        )
        build.process(scheduler, output)
        self.assertEqual(self.grants.returned, [3 - held])
        build.finish_request(scheduler, "a")
        from_another_thread(plugin.wake_all)
        self.assertEqual(self.grants.returned, [3 - held, held])

    def test_the_waking_thread_waits_for_the_end_of_schedule(self) -> None:
        scheduler = self.installed()
        pool = scheduler.kv_cache_manager.block_pool
        waking = threading.Thread(target=plugin.wake_all, daemon=True)

        def while_it_schedules(*args: Any) -> None:
            self.grants.ask_back(2)
            waking.start()
            waking.join(timeout=0.1)
            self.assertEqual(pool.linked, {1, 2})

        with mock.patch.object(
            plugin.leases_of(scheduler), "schedule_ends", while_it_schedules
        ):
            scheduler.schedule()
        waking.join(timeout=120)
        self.assertFalse(waking.is_alive())
        self.assertEqual(pool.linked, {1})

    def test_a_request_that_ends_between_steps_waits_for_the_waking_thread(
        self,
    ) -> None:
        scheduler = self.installed()
        pool = scheduler.kv_cache_manager.block_pool
        for name, after in ("a", self.steps), ("b", self.fails_in_a_step):
            with self.subTest(after=after.__name__):
                build.add_request(scheduler, name, 16)
                after(scheduler)
                held = held_blocks(scheduler)
                ending = threading.Thread(
                    target=build.finish_request,
                    args=(scheduler, name),
                    daemon=True,
                )
                with pool.lock:  # as the waking thread does
                    ending.start()
                    ending.join(timeout=0.1)
                    self.assertEqual(held_blocks(scheduler), held)
                ending.join(timeout=120)
                self.assertEqual(held_blocks(scheduler), set())

    def steps(self, scheduler: Any) -> None:
        build.step(scheduler)

    def fails_in_a_step(self, scheduler: Any) -> None:
        build.step(scheduler)
        with mock.patch.object(
            plugin.leases_of(scheduler), "schedule_begins", side_effect=OSError
        ):
            self.assertRaises(OSError, scheduler.schedule)

    def test_a_slab_of_a_running_request_waits_for_its_end_and_steps(
        self,
    ) -> None:
        for async_scheduling in self.both():
            with self.engine(async_scheduling) as scheduler:
                build.add_request(scheduler, "a", 100)
                first = scheduler.schedule()
                self.grants.ask_back(1)
                self.grants.ask_back(2)
                second = scheduler.schedule()
                self.assertEqual(self.grants.returned, [])
                build.finish_request(scheduler, "a")
                build.process(scheduler, first)
                if second.total_num_scheduled_tokens:  # it writes
                    self.assertEqual(self.grants.returned, [])
                build.process(scheduler, second)
                self.assertEqual(sorted(self.grants.returned), [1, 2])

    def test_at_the_deadline_the_holders_can_be_preempted(self) -> None:
        for async_scheduling in self.both():
            with self.engine(async_scheduling, ask_back=AT_ONCE) as scheduler:
                build.add_request(scheduler, "in slab 1", 16 * PER_SLAB)
                build.step(scheduler)
                self.assertEqual(len(scheduler.running), 1)
                build.add_request(scheduler, "in slab 2", 8 * PER_SLAB)
                build.step(scheduler)
                pool = scheduler.kv_cache_manager.block_pool
                # One step is in flight while the request is preempted.
                in_flight = scheduler.schedule()
                before = scheduler.kv_cache_manager.get_block_ids("in slab 2")
                self.grants.ask_back(1)
                output = scheduler.schedule()
                engine = plugin.leases_of(scheduler)
                self.assertEqual(engine.counters.preempted, 1)
                self.assertEqual(engine.counters.stuck, 1)
                self.assertEqual(
                    scheduler.kv_cache_manager.get_block_ids("in slab 2")[0][
                        : len(before[0])
                    ],
                    before[0],
                    "a request outside the slab was touched",
                )
                self.assertEqual(self.grants.returned, [])
                build.process(scheduler, in_flight)
                if output.total_num_scheduled_tokens:  # it writes
                    self.assertEqual(self.grants.returned, [])
                build.process(scheduler, output)
                self.assertEqual(self.grants.returned, [1])
                # The preempted request can continue in another slab.
                self.grants.lease(3)
                for _ in range(3):
                    build.step(scheduler)
                if build.REAL:
                    self.assertEqual(len(scheduler.running), 2)
                    for request in scheduler.running:
                        (ids,) = scheduler.kv_cache_manager.get_block_ids(
                            request.request_id
                        )
                        self.assertTrue(min(ids) >= 2 * PER_SLAB, ids)
                self.assertEqual(pool.linked, {2, 3})

    @unittest.skipUnless(build.REAL, "the doubles do not resume requests")
    def test_a_request_preempted_and_resumed_in_one_step_is_sent_whole(
        self,
    ) -> None:
        """The model runner must get all its tokens again, as if the request had
        not run in the previous step."""
        for async_scheduling in self.both():
            with self.engine(async_scheduling, ask_back=AT_ONCE) as scheduler:
                build.add_request(scheduler, "a", 100)
                build.step(scheduler)
                build.step(scheduler)
                self.grants.lease(3)
                self.grants.ask_back(1)
                output = scheduler.schedule()
                self.assertIn("a", output.num_scheduled_tokens)
                self.assertIn("a", output.preempted_req_ids)
                self.assertEqual(len(sent_whole(output)["a"]), 102)

    def test_without_preemption_the_slab_stays_stuck_and_counted(self) -> None:
        self.install(ask_back=AskBackOptions(deadline_s=0))
        scheduler = self.scheduler()
        build.add_request(scheduler, "a", 100)
        build.step(scheduler)
        self.grants.ask_back(1)
        for _ in range(3):
            build.step(scheduler)
        engine = plugin.leases_of(scheduler)
        self.assertEqual(engine.counters.stuck, 1)
        self.assertEqual(engine.counters.preempted, 0)
        self.assertEqual(self.grants.returned, [])


def idle_engine_core(scheduler: Any) -> Any:
    """Returns as much of an EngineCoreProc as its wait for input needs."""
    if not build.REAL:
        return engine_core.EngineCoreProc(scheduler)
    core = object.__new__(engine_core.EngineCoreProc)
    core.scheduler = scheduler
    core.input_queue = queue.Queue()
    core.aborts_queue = queue.Queue()
    core.batch_queue = None
    core.engines_running = False
    core.process_input_queue_block = True
    core.shutdown_state = engine_core.EngineShutdownState.RUNNING
    core._idle_state_callbacks = []
    return core


@unittest.skipUnless(build.REAL, "vLLM is not installed")
class DiscoveryTest(unittest.TestCase):
    def is_loaded(self, **environment: str) -> bool:
        program = (
            "import sys; from vllm.plugins import load_general_plugins; "
            "load_general_plugins(); "
            "print('loaded', 'fineserve_vllm.plugin' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ
            | {"PYTHONPATH": str(doubles.PLUGIN)}
            | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return "loaded True" in done.stdout

    def test_vllms_loader_finds_the_plugin_through_pythonpath(self) -> None:
        self.assertTrue(self.is_loaded())

    def test_the_users_choice_of_plugins_is_respected(self) -> None:
        self.assertFalse(self.is_loaded(VLLM_PLUGINS=""))
