"""Engines with different formats that together want more than the pool has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine_process import EngineProcess, EngineTest
from machine import kill_9
from tiny_models import Model, random_prompts

# Some requests stop at one of these tokens, while one of their steps is in
# flight.
STOPS = list(range(24))


class Trade(EngineTest):
    """Engines serve in turns and together. The first engine's device is slow,
    so that slabs are asked back and requests end while its steps are in flight.
    A subclass defines start_one(), which starts an engine."""

    MODELS: list[Model]
    DELAY_US = ["300", "0"]
    # Requests per batch when engines serve in turns, and per batch of the
    # second engine beside the first.
    IN_TURN, SHORT = 32, 16
    # Least number of slabs that an engine has after serving alone, and the
    # number that it exceeds while it serves.
    HELD_IN_TURN, HELD_WHEN_BUSY = 12, 8

    def start_all(
        self,
        environment: dict[str, str],
        arguments: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Starts the daemon and all engines. `arguments`: the additional
        arguments of each engine."""
        self.daemon = self.start_daemon()
        own = arguments or [{}] * len(self.MODELS)
        self.engines: list[EngineProcess] = [
            self.start_one(
                i,
                environment | {"EMUCUDA_STREAM_DELAY_US": self.DELAY_US[i]},
                **own[i],
            )
            for i in range(len(self.MODELS))
        ]
        for engine in self.engines:
            print("start", engine.answer()["seconds"], flush=True)
        self.counts = [0] * len(self.engines)
        self.wrong = [0] * len(self.engines)
        self.seed = 0

    def ask(self, i: int, requests: int, **more: Any) -> list[list[int]]:
        """Sends engine i a batch and returns its prompts. `more`: further
        arguments of its generate()."""
        self.seed += 1
        prompts = random_prompts(self.seed, requests, (40, 250), shared=100)
        self.engines[i].ask(
            "generate",
            prompts=prompts,
            max_tokens=[64] * requests,
            stop_token_ids=STOPS,
            **more,
        )
        return prompts

    def finish(self, i: int, prompts: list[list[int]]) -> None:
        self.judge(i, prompts)
        print(f"slabs: {self.slabs_held()}", flush=True)

    def judge(self, i: int, prompts: list[list[int]]) -> None:
        """Counts the tokens of engine i's answer and those that are wrong."""
        answer = self.engines[i].answer()
        count = sum(map(len, answer["tokens"]))
        wrong = self.reference(self.MODELS[i]).wrong(prompts, answer["tokens"])
        print(
            f"engine {i}: {count} tokens, {wrong} wrong, "
            f"{count / answer['seconds']:.0f} tokens/s",
            flush=True,
        )
        self.counts[i] += count
        self.wrong[i] += wrong

    def in_turns(self) -> None:
        """Lets each engine serve while the other is idle with its slabs full of
        cached blocks."""
        for i in 0, 1:
            self.finish(i, self.ask(i, self.IN_TURN))
            self.assertGreaterEqual(
                max(self.slabs_held().values()), self.HELD_IN_TURN
            )

    def in_turns_then_together(self, requests: int, most: int = 0) -> None:
        """Lets each engine serve while the others are idle with their slabs
        full of cached blocks; the most slabs that an engine then has are at
        least `most`. Then all serve at once."""
        for i in range(len(self.engines)):
            self.finish(i, self.ask(i, 32))
            self.assertGreaterEqual(max(self.slabs_held().values()), most)
        prompts = [self.ask(i, requests) for i in range(len(self.engines))]
        for i, asked in enumerate(prompts):
            self.finish(i, asked)

    def together(self, requests: int) -> None:
        """The first engine serves all the time, the second one in short
        batches."""
        prompts = self.ask(0, requests)
        while not self.engines[0].has_answered():
            self.finish(1, self.ask(1, self.SHORT))
        self.finish(0, prompts)

    def together_until(self, seen: Callable[[], bool], requests: int) -> None:
        """Serves together until `seen`, five times at most: how many slabs
        move, and what is then in flight, depends on the load of the machine."""
        for _ in range(5):
            self.together(requests)
            if seen():
                return

    def reports(self) -> list[dict[str, Any]]:
        found = [
            {"wrong": self.wrong[i], "count": self.counts[i]}
            | engine.run("stats")
            for i, engine in enumerate(self.engines)
        ]
        print(*found, sep="\n", flush=True)
        return found

    def check_all(self) -> None:
        for report in self.reports():
            self.check(report)

    def has_traded(self) -> bool:
        """True if each engine returned more slabs than the pool has, and the
        first had to wait for a step."""
        reports = self.reports()
        returned = min(report["slabs_returned"] for report in reports)
        return returned > self.pool_slabs and reports[0]["fence_waits"] > 0

    def has_strayed(self) -> bool:
        return any(report["stray_writes"] for report in self.reports())

    def trade_until_the_first_is_killed(self) -> None:
        """Trades slabs, then kills the first engine: its slabs go to the
        second, which is not disturbed."""
        self.start_all({})
        self.in_turns()
        self.together_until(self.has_traded, 64)
        self.assertTrue(self.has_traded())
        reports = self.reports()
        for report in reports:
            self.check(report)
        self.kill_the_first(reports[0]["pid"])

    def kill_the_first(self, pid: int) -> None:
        """Kills the first engine. `pid`: its process that holds the view."""
        prompts = self.ask(1, 32)
        kill_9(pid)
        self.finish(1, prompts)
        self.assertEqual(self.wrong[1], 0)
        self.assertTrue(
            self.eventually(lambda: len(self.slabs_held().keys() - {0}) == 1),
            self.slabs_held(),
        )

    def note_pids(self) -> None:
        """Notes the processes that hold the engines' views, for engine_of()."""
        self.pids = [engine.run("stats")["pid"] for engine in self.engines]

    def engine_of(self, i: int) -> dict[str, Any]:
        """Returns fsctl's entry of engine i. The engines start together, so the
        entries may be in any order."""
        (found,) = [
            engine
            for engine in self.fsctl("engines")["engines"]
            if engine["view"] and engine["view"]["pid"] == self.pids[i]
        ]
        return found

    def view_of(self, i: int) -> dict[str, Any]:
        return self.engine_of(i)["view"]

    def held(self, i: int) -> int:
        return self.slabs_held().get(self.engine_of(i)["id"], 0)
