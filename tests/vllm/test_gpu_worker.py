"""Stock vLLM's own GPU worker on the emulated device gives the tokens that
transformers gives on the CPU: alone, on a view of the pool, and while two
engines trade slabs.

On vLLM itself (label vllm). PyTorch's operators run on the host but on the
device's memory and in its streams' order (tests/vllm/host_device).
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Sequence
from typing import Any

from gpu_machine import (
    REAL_GPU,
    EngineEnded,
    Model,
    VllmEngine,
    VllmMachine,
    kill_9,
    random_prompts,
)

LARGE = Model(layers=4, seed=1)  # 128 KiB a block: 16 in a slab
SMALL = Model(layers=3, seed=2)  # 96 KiB a block: 21 in a slab
# Some requests end at one of these: then a step of theirs is in flight.
STOPS = list(range(24))


class GpuWorkerTest(VllmMachine):
    def serve(
        self, engine: VllmEngine, model: Model, seed: int
    ) -> dict[str, Any]:
        """Generates 512 tokens and returns the count of those that are wrong."""
        prompts = random_prompts(seed, 16, (5, 100), shared=48)
        answer = engine.run("generate", prompts=prompts, max_tokens=[32] * 16)
        tokens = answer["tokens"]
        count = sum(map(len, tokens))
        wrong = self.reference(model).wrong(prompts, tokens)
        print(
            f"{count} tokens, {wrong} wrong, "
            f"{count / answer['seconds']:.0f} tokens/s"
        )
        self.assertEqual(count, 512)
        return {"wrong": wrong} | engine.run("stats")

    def check(self, report: dict[str, Any]) -> None:
        self.assertEqual(report["wrong"], 0)
        self.assertEqual(report.get("driver_calls_serving", 0), 0)
        if REAL_GPU is not None:
            return  # no host device observes its operators
        self.assertEqual(report["skipped_kernels"], 0)
        # Steps are in flight while the scheduler goes on.
        waited = sum(report["waited"].values())
        self.assertGreater(report["enqueued"], 100 * waited)
        self.assertEqual(report["stray_writes"], 0)
        self.assertEqual(report["dirty_parts"], 0)

    def serve_alone(
        self, model: Model, view: bool, runner: int, **arguments: Any
    ) -> None:
        engine = self.start_vllm(model, view=view, runner=runner, **arguments)
        print("start", engine.answer()["seconds"])
        report = self.serve(engine, model, seed=runner)
        print(report)
        self.check(report)
        engine.kill()
        if view:
            self.assertGreater(report["leased_slabs"], 0)


class Plain(GpuWorkerTest):
    def test_tokens_are_those_of_transformers(self) -> None:
        for runner in 1, 2:
            with self.subTest(runner=runner):
                self.serve_alone(LARGE, view=False, runner=runner)

    def test_a_stale_block_id_is_noticed(self) -> None:
        engine = self.start_vllm(
            LARGE, view=False, runner=1, environment=broken("stale block")
        )
        engine.answer()
        self.assertGreater(self.serve(engine, LARGE, seed=1)["wrong"], 0)


class OnAView(GpuWorkerTest):
    def test_tokens_are_those_of_transformers(self) -> None:
        self.start_daemon()
        for runner in 1, 2:
            with self.subTest(runner=runner):
                self.serve_alone(LARGE, view=True, runner=runner)


def broken(what: str) -> dict[str, str]:
    return {"HOST_DEVICE_BREAK": what}


class Trade(GpuWorkerTest):
    """Engines of different formats want more than the pool, in turns and
    together. The first one's device is slow, so that slabs are asked back and
    its requests end while its steps are in flight."""

    MODELS = [LARGE, SMALL]
    RUNNERS = [1, 2]
    DELAY_US = ["300", "0"]

    def start_all(
        self,
        environment: dict[str, str],
        arguments: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """`arguments`: what is vLLM's own of each engine's."""
        self.daemon = self.start_daemon()
        self.engines = [
            self.start_vllm(
                model,
                view=True,
                runner=runner,
                environment=environment | {"EMUCUDA_STREAM_DELAY_US": delay},
                **own,
            )
            for model, runner, delay, own in zip(
                self.MODELS,
                self.RUNNERS,
                self.DELAY_US,
                arguments or [{}] * len(self.MODELS),
            )
        ]
        for engine in self.engines:
            print("start", engine.answer()["seconds"])
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
            self.finish(i, self.ask(i, 32))
            self.assertGreaterEqual(max(self.slabs_held().values()), 12)

    def together(self, requests: int) -> None:
        """The first one serves all the time, the second one now and then."""
        prompts = self.ask(0, requests)
        while not self.engines[0].has_answered():
            self.finish(1, self.ask(1, 16))
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
        print(*found, sep="\n")
        return found


class TwoEngines(Trade):
    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({})
        self.in_turns()
        self.together_until(self._has_traded, 64)
        self.assertTrue(self._has_traded())
        reports = self.reports()
        for report in reports:
            self.check(report)
        self._kill_engine_core(reports[0]["pid"])

    def _has_traded(self) -> bool:
        """Each engine more slabs than there are, one of them behind a step."""
        reports = self.reports()
        returned = min(report["slabs_returned"] for report in reports)
        return returned > self.pool_slabs and reports[0]["fence_waits"] > 0

    def _kill_engine_core(self, pid: int) -> None:
        """Its slabs go to the other, which notices nothing else."""
        prompts = self.ask(1, 32)
        kill_9(pid)
        self.finish(1, prompts)
        self.assertEqual(self.wrong[1], 0)
        self.assertTrue(
            self.eventually(lambda: len(self.slabs_held().keys() - {0}) == 1),
            self.slabs_held(),
        )


class Controls(Trade):
    """Breakages that must turn the test above red."""

    def test_a_step_that_no_fence_waits_for_is_noticed(self) -> None:
        self.start_all(broken("fence"))
        self.together_until(self._has_strayed, 64)
        self.assertTrue(self._has_strayed())

    def _has_strayed(self) -> bool:
        return any(report["stray_writes"] for report in self.reports())

    def test_a_slab_returned_in_use_is_noticed(self) -> None:
        self.start_all(broken("undrained"))
        try:
            self.together(64)
        except EngineEnded as error:
            # Its own checks were first.
            self.assertIn("was leased twice", str(error))
            return
        self.assertGreater(sum(self.wrong), 0)


if __name__ == "__main__":
    unittest.main()
