"""Data-parallel ranks of stock SGLang (without attention DP): each rank is a
separate engine with its own pages and a view of its GPU's pool (label
sglang)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang_machine import WideModel  # sets the path, too
from engine_process import EngineEnded
from machine import kill_9
from test_sglang_ranks import Ranks


class DataParallel(Ranks):
    """An engine with a rank on each of two GPUs, and one on the second."""

    SLABS = [12, 9]
    MODELS = [WideModel(), WideModel(seed=2, heads=12)]
    PARALLEL: list[dict[str, Any]] = [{"dp_size": 2}, {}]

    def trade_on_the_second(self, returned: int) -> None:
        for _ in range(6):
            self.in_turns_then_together(32)
            print("returned", self.returned(), flush=True)
            if self.returned()[1] > returned:
                break
        self.assertGreater(self.returned()[1], returned)
        self.check_all()

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({})
        self.trade_on_the_second(returned=12)
        first, second = self.engines[0].run("stats_of_all")
        self.assertNotEqual(first["pid"], second["pid"])
        # Each rank has served, and only the second had to share.
        self.assertGreater(first["writes"], 0)
        self.assertGreater(second["slabs_returned"], first["slabs_returned"])
        self.kill_the_second(second["pid"])

    def kill_the_second(self, pid: int) -> None:
        """Kills the second rank. Its slabs go to the other engine, which
        notices nothing else. SGLang goes on without the rank. When SGLang ends,
        the first rank's slabs become free."""
        prompts = self.ask(1, 32)
        kill_9(pid)
        self.finish(1, prompts)
        self.assertEqual(self.wrong[1], 0)
        self.expect(lambda: self.engines_on(1), 1)
        self.engines[0].kill()
        self.expect(lambda: self.engines_on(0), 0)
        slabs = self.of_gpu(self.gpus[0], "slabs")["states"]
        self.assertEqual(slabs["free"]["slabs"], self.SLABS[0])

    def engines_on(self, gpu: int) -> int:
        return len(self.of_gpu(self.gpus[gpu], "engines")["engines"])

    def expect(self, found: Callable[[], int], value: int) -> None:
        self.assertTrue(self.eventually(lambda: found() == value), found())


class WithoutDraining(DataParallel):
    """The breakage must make the test above fail."""

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({"HOST_DEVICE_BREAK": "undrained"})
        try:
            for _ in range(8):
                self.in_turns_then_together(48)
                if any(self.wrong):
                    return
        except EngineEnded as error:
            self.assertIn("leak", str(error))
            return
        self.fail("no token was wrong")
