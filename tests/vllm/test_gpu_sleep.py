"""Stock vLLM's sleep mode on a view: its slabs serve others while it sleeps.

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import kill_9, random_prompts
from test_gpu_worker import LARGE, Trade


class Sleep(Trade):
    """The first engine sleeps; the second one uses its slabs."""

    def start_sleepers(self, *own: dict[str, Any]) -> None:
        # Both could sleep, though the second never does.
        self.start_all({}, [{"enable_sleep_mode": True} | its for its in own])
        self.note_pids()

    def all_serve(self, requests: int = 32) -> None:
        prompts = [self.ask(i, requests) for i in range(2)]
        for i in range(2):
            self.finish(i, prompts[i])

    def fall_asleep(self, level: int) -> None:
        self.assertEqual(self.engines[0].run("sleep", level=level), ["asleep"])
        self.assertEqual(self.held(0), 0)
        view = self.view_of(0)
        self.assertTrue(view["suspended"])
        self.assertEqual((view["wanted"], view["target"]), (0, 0))

    def serve_beside_the_sleeper(self) -> None:
        """Serves with all slabs, including those of the sleeper's floor."""
        self.finish(1, self.ask(1, 48))
        self.assertEqual(self.held(1), self.pool_slabs)

    def wake(self, level: int) -> None:
        first = self.engines[0]
        if level == 1:
            self.assertEqual(first.run("wake_up"), [])
            return
        # The weights wake up first: there is room for both only at the end.
        self.assertEqual(first.run("wake_up", tags=["weights"]), ["asleep"])
        self.assertEqual(self.held(0), 0)
        first.run("reload_weights")
        self.assertEqual(first.run("wake_up", tags=["kv_cache"]), [])


class TwoLevels(Sleep):
    def test_slabs_of_a_sleeper_serve_another_and_its_tokens_are_right(
        self,
    ) -> None:
        self.start_sleepers({}, {})
        for level in 1, 2, 1:
            with self.subTest(level=level):
                self.all_serve()
                self.assertGreater(self.held(0), 0)
                self.fall_asleep(level)
                # The engine is already asleep: vLLM says so and does nothing.
                self.engines[0].run("sleep", level=level)
                self.serve_beside_the_sleeper()
                self.wake(level)
                self.assertEqual(self.engines[0].run("wake_up"), [])
                self.assertFalse(self.view_of(0)["suspended"])
        self.all_serve()
        self.check_all()

    def test_sleep_with_the_prefix_cache_full_forgets_it(self) -> None:
        self.start_sleepers({"disable_log_stats": False}, {})
        prompts = random_prompts(1, 8, (100, 200), shared=64)
        hits = []
        for _ in range(3):
            answer = self.engines[0].run(
                "generate", prompts=prompts, max_tokens=[16] * 8
            )
            wrong = self.reference(self.MODELS[0]).wrong(
                prompts, answer["tokens"]
            )
            self.assertEqual(wrong, 0)
            hits.append(self.engines[0].run("metrics")["prefix_cache_hits"])
            if len(hits) == 2:
                self.fall_asleep(1)
                self.serve_beside_the_sleeper()
                self.wake(1)
        print("prefix cache hits", hits)
        # The second time, all prompts hit the cache; after the sleep, only the
        # part that they share does.
        self.assertGreater(hits[1] - hits[0], 8 * 96)
        self.assertLess(hits[2] - hits[1], 8 * 96)


class Failing(Sleep):
    """A sleeper that cannot copy its weights stays awake and reports it through
    vLLM."""

    MODELS = [LARGE]

    def test_an_engine_that_cannot_fall_asleep_serves_again(self) -> None:
        self.start_all(
            {"HOST_DEVICE_BREAK": "sleep"}, [{"enable_sleep_mode": True}]
        )
        self.note_pids()
        self.finish(0, self.ask(0, 8))
        (failure,) = self.engines[0].run("sleep", level=1)
        self.assertIn("no memory for the weights", failure)
        self.assertFalse(self.view_of(0)["suspended"])
        self.assertEqual(self.engines[0].run("wake_up"), [])
        self.finish(0, self.ask(0, 8))
        self.check_all()


class FullPool(Sleep):
    """Waking up needs the floor of 2 slabs, which may have been promised to
    another engine in the meantime."""

    pool_slabs = 5

    def test_waking_up_is_refused_in_one_line_until_the_floor_is_free(
        self,
    ) -> None:
        self.start_sleepers({}, {})
        self.all_serve(8)
        self.fall_asleep(1)
        third = self.start_vllm(
            self.MODELS[1],
            view=True,
            runner=1,
            environment={"FINESERVE_ENGINE": "third"},
        )
        third.answer()
        self.finish(1, self.ask(1, 8))
        (error,) = self.engines[0].run("wake_up")
        print(error)
        self.assertRegex(
            error,
            r"FineServe: the view cannot be taken up again: its floor of 2 "
            r"slabs \(32 blocks\) does not fit: .* \(fs_kv_resume\)",
        )
        self.assertTrue(self.view_of(0)["suspended"])
        third.kill()
        self.assertTrue(
            self.eventually(lambda: self.engines[0].run("wake_up") == [])
        )
        self.all_serve(8)
        self.check_all()


class NextDaemon(Sleep):
    """The daemon dies while an engine sleeps, and the engine wakes up under the
    next daemon."""

    pool_slabs = 5
    MODELS = [LARGE]
    RUNNERS = [2]
    DELAY_US = ["0"]

    def test_a_sleeper_wakes_up_under_the_next_daemon(self) -> None:
        self.start_sleepers({})
        self.finish(0, self.ask(0, 8))
        self.fall_asleep(2)
        kill_9(self.daemon.pid)
        self.daemon.wait()
        (error,) = self.engines[0].run("wake_up", tags=["kv_cache"])
        print(error)
        self.assertRegex(error, "FineServe: no daemon serves this GPU: .*")
        self.start_daemon()
        self.assertTrue(
            self.eventually(
                lambda: self.engines[0].run("wake_up", tags=["kv_cache"])
                == ["asleep"]
            )
        )
        self.assertEqual(self.engines[0].run("wake_up"), [])
        self.engines[0].run("reload_weights")
        before = self.counts[0]
        self.finish(0, self.ask(0, 8))
        self.assertGreater(self.counts[0], before)
        self.assertEqual(self.wrong, [0])
        self.assertGreaterEqual(self.held(0), 2)
