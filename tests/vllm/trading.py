"""Engines of different formats that want more than the pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine_process import EngineProcess, EngineTest
from machine import kill_9
from tiny_models import Model, random_prompts

# Some requests end at one of these: then a step of theirs is in flight.
STOPS = list(range(24))


class Trade(EngineTest):
    """They serve in turns and together. The first one's device is slow, so that
    slabs are asked back and its requests end while its steps are in flight. A
    subclass starts them, by start_one()."""

    MODELS: list[Model]
    DELAY_US = ["300", "0"]
    # Requests of a batch in turns, and of the second engine's beside the first.
    IN_TURN, SHORT = 32, 16
    # Slabs that an engine has at least when it alone served, and more than
    # which it has while it serves.
    HELD_IN_TURN, HELD_WHEN_BUSY = 12, 8

    def start_all(
        self,
        environment: dict[str, str],
        arguments: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """`arguments`: what is each engine's own."""
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

    def ask(self, i: int, requests: int) -> list[list[int]]:
        """Sends engine i a batch and returns its prompts."""
        self.seed += 1
        prompts = random_prompts(self.seed, requests, (40, 250), shared=100)
        self.engines[i].ask(
            "generate",
            prompts=prompts,
            max_tokens=[64] * requests,
            stop_token_ids=STOPS,
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
        """The other engine is idle, its slabs full of cached blocks."""
        for i in 0, 1:
            self.finish(i, self.ask(i, self.IN_TURN))
            self.assertGreaterEqual(
                max(self.slabs_held().values()), self.HELD_IN_TURN
            )

    def in_turns_then_together(self, requests: int, most: int = 0) -> None:
        """While one serves, the others are idle, their slabs full of cached
        blocks, and it gets `most` slabs at least; then all serve at once."""
        for i in range(len(self.engines)):
            self.finish(i, self.ask(i, 32))
            self.assertGreaterEqual(max(self.slabs_held().values()), most)
        prompts = [self.ask(i, requests) for i in range(len(self.engines))]
        for i, asked in enumerate(prompts):
            self.finish(i, asked)

    def together(self, requests: int) -> None:
        """The first one serves all the time, the second one now and then."""
        prompts = self.ask(0, requests)
        while not self.engines[0].has_answered():
            self.finish(1, self.ask(1, self.SHORT))
        self.finish(0, prompts)

    def together_until(self, seen: Callable[[], bool], requests: int) -> None:
        """The number of moves of slabs, and what is in flight then, depends
        on what else the machine does."""
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
        """Each engine more slabs than there are, one of them behind a step."""
        reports = self.reports()
        returned = min(report["slabs_returned"] for report in reports)
        return returned > self.pool_slabs and reports[0]["fence_waits"] > 0

    def has_strayed(self) -> bool:
        return any(report["stray_writes"] for report in self.reports())

    def trade_until_the_first_is_killed(self) -> None:
        """Its slabs go to the other, which notices nothing else."""
        self.start_all({})
        self.in_turns()
        self.together_until(self.has_traded, 64)
        self.assertTrue(self.has_traded())
        reports = self.reports()
        for report in reports:
            self.check(report)
        self.kill_the_first(reports[0]["pid"])

    def kill_the_first(self, pid: int) -> None:
        """`pid`: of its process that holds the view."""
        prompts = self.ask(1, 32)
        kill_9(pid)
        self.finish(1, prompts)
        self.assertEqual(self.wrong[1], 0)
        self.assertTrue(
            self.eventually(lambda: len(self.slabs_held().keys() - {0}) == 1),
            self.slabs_held(),
        )

    def note_pids(self) -> None:
        """The processes that hold the engines' views, for engine_of()."""
        self.pids = [engine.run("stats")["pid"] for engine in self.engines]

    def engine_of(self, i: int) -> dict[str, Any]:
        """fsctl's view of an engine: they start together, so either may be
        the first."""
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
