"""Two engines of different formats that want more than the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang_machine import EngineProcess, SglangMachine, WideModel
from tiny_models import Model, random_prompts

# Some requests end at one of these: then a step of theirs is in flight.
STOPS = list(range(24))


class Trade(SglangMachine):
    """The first one's device is slow, so that slabs are asked back and its
    requests end while its steps are in flight."""

    MODELS: list[Model] = [WideModel(), WideModel(seed=2, heads=12)]
    DELAY_US = ["300", "0"]

    def start_all(self, environment: dict[str, str]) -> None:
        self.daemon = self.start_daemon("--planes", "4")
        self.engines = [
            self.start_one(
                i, environment | {"EMUCUDA_STREAM_DELAY_US": delay}
            )
            for i, delay in enumerate(self.DELAY_US)
        ]
        for engine in self.engines:
            print("start", engine.answer()["seconds"], flush=True)
        self.counts = [0] * len(self.engines)
        self.wrong = [0] * len(self.engines)
        self.seed = 0

    def start_one(
        self, i: int, environment: dict[str, str], **arguments: Any
    ) -> EngineProcess:
        """The first with pages of one token, the others of 16."""
        return self.start_sglang(
            self.MODELS[i],
            view=True,
            environment=environment,
            page_size=16 if i else 1,
            **arguments,
        )

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
        """Counts the tokens of engine i's answer and those that are wrong."""
        answer = self.engines[i].answer()
        count = sum(map(len, answer["tokens"]))
        wrong = self.reference(self.MODELS[i]).wrong(prompts, answer["tokens"])
        print(
            f"engine {i}: {count} tokens, {wrong} wrong, "
            f"{count / answer['seconds']:.0f} tokens/s; "
            f"slabs: {self.slabs_held()}",
            flush=True,
        )
        self.counts[i] += count
        self.wrong[i] += wrong

    def in_turns(self) -> None:
        """The other engine is idle, its slabs full of cached pages."""
        for i in 0, 1:
            self.finish(i, self.ask(i, 48))
            self.assertGreaterEqual(max(self.slabs_held().values()), 9)

    def together(self, requests: int) -> None:
        """The first one serves all the time, the second one now and then."""
        prompts = self.ask(0, requests)
        while not self.engines[0].has_answered():
            self.finish(1, self.ask(1, 24))
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

    def check(self, report: dict[str, Any]) -> None:
        self.assertEqual(report["wrong"], 0)
        self.assertEqual(report["driver_calls_serving"], 0)
        self.assertEqual(report["skipped_kernels"], 0)
        # Steps are in flight while the scheduler goes on.
        waited = sum(report["waited"].values())
        self.assertGreater(report["enqueued"], 20 * waited)
        self.assertEqual(report["stray_writes"], 0)
        self.assertEqual(report["dirty_parts"], 0)

    def has_traded(self) -> bool:
        """Each engine more slabs than there are, one of them behind a step."""
        reports = self.reports()
        returned = min(report["slabs_returned"] for report in reports)
        return returned > self.pool_slabs and reports[0]["fence_waits"] > 0
