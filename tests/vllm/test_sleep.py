"""A worker's sleep on a view: what happens in which order, and after failures.

Runs on vLLM where it is installed, else on the doubles.
"""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

import doubles

REAL = doubles.prepare()

from fineserve_vllm import kv_abi, ranks, sleep  # noqa: E402
from fineserve_vllm.grants import try_to_come_back  # noqa: E402
from fineserve_vllm.shim_grants import GroupGrants  # noqa: E402


class Refused(Exception):
    pass


class SleepTest(unittest.TestCase):
    def setUp(self) -> None:
        self.calls: list[Any] = []
        self.failing: dict[str, BaseException] = {}
        self.suspended = True
        self.worker = Worker(self)
        sleep.wrap(
            self.worker,
            sleep.Kv(
                lambda: self.happens("suspend"), lambda: self.resume()
            ),
        )

    def resume(self) -> bool:
        self.happens("resume")
        return self.suspended

    def happens(self, name: str, *arguments: Any) -> None:
        if name in self.failing:
            raise self.failing[name]
        self.calls.append((name, *arguments) if arguments else name)

    def test_the_kv_cache_goes_first_and_comes_back_first(self) -> None:
        self.worker.sleep(level=2)
        self.worker.wake_up(tags=["weights"])
        self.worker.wake_up(["kv_cache"])
        self.assertEqual(
            self.calls,
            [
                "suspend",
                ("sleep", 2),
                ("wake_up", ["weights"]),
                "resume",
                ("wake_up", ["kv_cache"]),
            ],
        )

    def test_an_executor_whose_weights_sleep_keeps_its_kv_cache(self) -> None:
        self.worker.sleeping_tags = {"weights"}
        self.worker.sleep()
        self.assertEqual(self.calls, [("sleep", 1)])
        self.worker.sleeping_tags = {"kv_cache"}
        self.worker.sleep()
        self.assertEqual(self.calls[1:], ["suspend", ("sleep", 1)])

    def test_an_executor_that_is_awake_asks_for_no_kv_cache(self) -> None:
        """The memory of an engine that is only paused may have left the GPU."""
        self.worker.is_sleeping = False
        self.failing["resume"] = Refused()
        self.worker.wake_up()
        self.assertEqual(self.calls, [("wake_up", None)])

    def test_without_tags_all_wakes_up(self) -> None:
        self.worker.sleep()
        self.worker.wake_up()
        self.assertEqual(
            self.calls, ["suspend", ("sleep", 1), "resume", ("wake_up", None)]
        )

    def test_only_the_kv_cache_is_discarded_by_us(self) -> None:
        self.worker.discard(("kv_cache",))
        self.worker.discard(("weights",))
        self.assertEqual(
            self.calls,
            ["suspend", ("discard", ("kv_cache",)), ("discard", ("weights",))],
        )

    def test_a_kv_cache_that_cannot_sleep_keeps_the_worker_awake(self) -> None:
        self.failing["suspend"] = Refused()
        with self.assertRaises(Refused):
            self.worker.sleep()
        self.assertEqual(self.calls, [])

    def test_a_refused_wake_up_leaves_all_asleep(self) -> None:
        self.failing["resume"] = Refused()
        with self.assertRaises(Refused):
            self.worker.wake_up()
        self.assertEqual(self.calls, [])

    def test_weights_for_which_there_is_no_memory_send_the_kv_cache_back(
        self,
    ) -> None:
        self.failing["wake_up"] = MemoryError()
        with self.assertRaises(MemoryError):
            self.worker.wake_up()
        self.assertEqual(self.calls, ["resume", "suspend"])

    def test_a_kv_cache_that_was_awake_stays_awake_without_the_weights(
        self,
    ) -> None:
        self.suspended = False
        self.failing["wake_up"] = MemoryError()
        with self.assertRaises(MemoryError):
            self.worker.wake_up()
        self.assertEqual(self.calls, ["resume"])

    def test_memory_that_others_took_in_between_is_no_failure(self) -> None:
        self.failing["sleep"] = AssertionError(
            "Memory usage increased after sleeping."
        )
        self.worker.sleep()
        self.assertEqual(self.calls, ["suspend"])

    def test_a_worker_that_cannot_fall_asleep_has_its_kv_cache_back(
        self,
    ) -> None:
        for error in (AssertionError("something else"), MemoryError()):
            self.calls.clear()
            self.failing["sleep"] = error
            with self.assertRaises(type(error)):
                self.worker.sleep()
            self.assertEqual(self.calls, ["suspend", "resume"])

    def test_a_worker_whose_kv_cache_cannot_come_back_ends(self) -> None:
        """Otherwise the engine would look healthy, but would accept requests
        and run none."""
        self.failing["sleep"] = MemoryError("no host memory")
        self.failing["resume"] = Refused("the floor is taken")
        with self.assertRaisesRegex(
            SystemExit, "FineServe: .*no host memory.*the floor is taken"
        ):
            self.worker.sleep()

    @unittest.skipUnless(REAL, "needs vLLM")
    def test_the_assertion_is_the_workers(self) -> None:
        import inspect

        from vllm.v1.worker.gpu_worker import Worker as GpuWorker

        self.assertIn(
            f'"{sleep._OTHERS_TOOK}"', inspect.getsource(GpuWorker.sleep)
        )

    def test_a_worker_that_cannot_sleep_is_left_alone(self) -> None:
        worker = object()
        sleep.wrap(worker, sleep.Kv(lambda: None, lambda: False))
        self.assertFalse(hasattr(worker, "sleep"))


class Rank:
    """A worker's process with its view, which it suspends and resumes like
    fs_kv_suspend and fs_kv_resume."""

    def __init__(self, refusal: kv_abi.KvError | None = None) -> None:
        self.refusal = refusal  # of either
        self.is_suspended = self.stays_away = False
        self.waited_ms = -1

    def suspend(self) -> None:
        self._change(to=True)

    def resume(self) -> None:
        self._change(to=False)

    leave = suspend

    def come_back(self, timeout_ms: int) -> bool:
        self.waited_ms = timeout_ms
        self.is_suspended = self.stays_away  # its view is active, too
        return not self.stays_away

    def _change(self, to: bool) -> None:
        if self.is_suspended == to:
            raise kv_abi.KvError("fs_kv", kv_abi.Error.STATE, "as it was")
        if self.refusal is not None:
            raise self.refusal
        self.is_suspended = to


class BlockPool(Rank):
    """The process that runs the block pool of ranks."""

    place = kv_abi.Presence.HERE

    def come_back(self, timeout_ms: int) -> bool:
        return True

    def presence(self) -> kv_abi.Presence:
        return self.place


class Executor:
    def __init__(self, ranks: list[Rank]) -> None:
        self._ranks = ranks

    def collective_rpc(
        self, function: Any, args: tuple[Any, ...] = ()
    ) -> list[Any]:
        answers = []
        for rank in self._ranks:
            with mock.patch.object(kv_abi, "Shim", lambda rank=rank: rank):
                answers.append(function(None, *args))
        return answers


class SleepOfRanksTest(unittest.TestCase):
    def setUp(self) -> None:
        self.ranks = [Rank(), Rank()]
        self.workers = ranks.Ranks()
        self.workers._executor = Executor(self.ranks)
        self.refusal = kv_abi.KvError(
            "fs_kv_resume", kv_abi.Error.REFUSED, "its floor does not fit"
        )

    def suspended(self) -> list[bool]:
        return [rank.is_suspended for rank in self.ranks]

    def test_all_sleep_and_all_wake_up(self) -> None:
        self.workers.suspend()
        self.assertEqual(self.suspended(), [True, True])
        self.workers.resume()
        self.assertEqual(self.suspended(), [False, False])

    def test_none_wakes_up_if_one_is_refused(self) -> None:
        for refused in range(2):
            with self.subTest(refused=refused):
                self.workers.suspend()
                self.ranks[refused].refusal = self.refusal
                with self.assertRaisesRegex(RuntimeError, "does not fit"):
                    self.workers.resume()
                self.assertEqual(self.suspended(), [True, True])
                self.ranks[refused].refusal = None
                self.workers.resume()

    def grants(self) -> GroupGrants:
        self.now, self.pauses = 100.0, list[float]()
        self.block_pool = BlockPool()
        return GroupGrants(
            self.block_pool,
            kv_abi.Geometry(),
            0,
            self.workers,
            clock=lambda: self.now,
            pause=self.pause,
        )

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def test_the_engine_ends_if_one_cannot_fall_asleep(self) -> None:
        self.ranks[1].refusal = self.refusal
        with self.assertRaisesRegex(SystemExit, "could not fall asleep"):
            self.grants().suspend()

    def test_an_engine_whose_blocks_are_refused_tries_again_after_a_pause(
        self,
    ) -> None:
        grants = self.grants()
        grants.leave()
        self.block_pool.refusal = self.refusal
        for tries in range(3):
            self.assertFalse(try_to_come_back(grants, 1 + tries))
            self.assertEqual(self.pauses, [0.0] + [1.0] * tries)
        self.block_pool.refusal = None
        self.assertFalse(grants.came_back(), "it is idle, and looks too early")
        self.assertTrue(try_to_come_back(grants, 4))

    def test_an_engine_whose_worker_is_not_back_looks_without_waiting(
        self,
    ) -> None:
        grants = self.grants()
        grants.leave()
        self.ranks[1].stays_away = True
        self.assertFalse(grants.came_back())
        self.assertEqual(self.ranks[1].waited_ms, 0)
        self.assertFalse(try_to_come_back(grants, 1))
        self.assertEqual(self.ranks[1].waited_ms, 1000)
        self.ranks[1].stays_away = False
        self.assertTrue(grants.came_back())

    def test_an_engine_that_waits_for_a_worker_leaves_again_when_asked(
        self,
    ) -> None:
        grants = self.grants()
        grants.leave()
        self.ranks[1].stays_away = True
        self.block_pool.place = kv_abi.Presence.ASKED_TO_LEAVE
        with mock.patch.object(self.block_pool, "leave") as leave:
            self.assertFalse(try_to_come_back(grants, 1))
        leave.assert_called_once_with()
        self.assertEqual(self.suspended(), [True, True])

    def test_an_engine_whose_blocks_are_refused_for_good_ends(self) -> None:
        grants = self.grants()
        grants.leave()
        self.block_pool.refusal = kv_abi.KvError(
            "fs_kv_resume", kv_abi.Error.INVALID, "too few blocks in common: restart"
        )
        with self.assertRaisesRegex(kv_abi.KvError, "restart"):
            try_to_come_back(grants, 1)


class Worker:
    def __init__(self, test: SleepTest) -> None:
        self._happens = test.happens

    def sleep(self, level: int = 1) -> None:
        self._happens("sleep", level)

    def wake_up(self, tags: list[str] | None = None) -> None:
        self._happens("wake_up", tags)

    def discard(self, tags: tuple[str, ...]) -> None:
        self._happens("discard", tags)
