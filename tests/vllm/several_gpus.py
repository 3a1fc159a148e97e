"""Engines on several emulated GPUs: without FineServe, and with a separate pool
and daemon for each GPU."""

from __future__ import annotations

import os
from typing import Any

from engine_process import EngineProcess, EngineTest
from machine import kill_9
from tiny_models import Model, random_prompts
from trading import Trade


class RanksAlone(EngineTest):
    """An engine with a rank on each GPU, without FineServe."""

    MODEL: Model
    PROMPTS, TOKENS = 16, 16  # TOKENS: of each answer

    def serve(self, engine: EngineProcess, seed: int) -> int:
        """Generates 256 tokens; returns how many of them are wrong."""
        prompts = random_prompts(seed, self.PROMPTS, (5, 100), shared=48)
        answer = engine.run(
            "generate",
            prompts=prompts,
            max_tokens=[self.TOKENS] * self.PROMPTS,
        )
        tokens = answer["tokens"]
        count = sum(map(len, tokens))
        wrong = self.reference(self.MODEL).wrong(prompts, tokens)
        print(
            f"{count} tokens, {wrong} wrong, "
            f"{count / answer['seconds']:.0f} tokens/s",
            flush=True,
        )
        self.assertEqual(count, self.PROMPTS * self.TOKENS)
        return wrong

    def check_ranks(
        self, engine: EngineProcess, ranks: int
    ) -> list[dict[str, Any]]:
        """Checks that all tokens are right, and that every rank's operators
        really ran while the program went on. Returns the ranks' figures."""
        self.assertEqual(self.serve(engine, seed=ranks), 0)
        stats: list[dict[str, Any]] = engine.run("stats_of_all")
        print(*stats, sep="\n", flush=True)
        self.assertEqual(len({rank["pid"] for rank in stats}), ranks)
        self.assertEqual(
            {rank["device"] for rank in stats}, set(range(ranks))
        )
        for rank in stats:
            self.assertEqual(rank["skipped_kernels"], 0)
            waited = sum(rank["waited"].values())
            self.assertGreater(rank["enqueued"], self.STEPS_AHEAD * waited)
        return stats


class PoolsOfGpus(EngineTest):
    """`SLABS`: the slabs of each GPU's pool."""

    SLABS = [16, 12]

    def start_daemon(self, *arguments: str, **more: Any) -> Any:
        self.environment["EMUCUDA_DEVICES"] = str(len(self.SLABS))
        self.daemons = []
        self.gpus: list[str] = []  # their names, in the order of the devices
        folder = self.environment["FINESERVE_RUNTIME_DIR"]
        for device, slabs in enumerate(self.SLABS):
            daemon = super().start_daemon(
                *arguments, device=device, slabs=slabs
            )
            self.daemons.append(daemon)
            names = [f[:-5] for f in os.listdir(folder) if f.endswith(".sock")]
            (name,) = set(names) - set(self.gpus)
            self.gpus.append(name)
        return self.daemons[0]

    def of_gpu(self, gpu: str, *arguments: str) -> Any:
        return self.fsctl("--gpu", gpu, *arguments)

    def views(self) -> list[dict[str, Any]]:
        """Returns the views of the engine that spans GPUs, each with the
        engine's number."""
        return [
            engine["view"] | {"id": engine["id"]}
            for gpu in self.gpus
            for engine in self.of_gpu(gpu, "engines")["engines"]
            if engine["view"] and engine["view"]["spans_gpus"]
        ]


class SeveralGpus(PoolsOfGpus, Trade):
    """`ON`: the GPUs of each engine."""

    ON: list[list[int]] = []

    def gpus_of(self, i: int) -> dict[str, str]:
        """Returns the environment in which engine i sees only its GPUs."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.ON[i]))}

    def returned(self) -> list[int]:
        """Returns the number of returned slabs of each GPU."""
        return [
            self.of_gpu(gpu, "slabs")["counters"]["slabs_returned"]
            for gpu in self.gpus
        ]

    def slabs_held(self) -> dict[int, int]:
        held: dict[int, int] = {}
        for gpu in self.gpus:
            for engine in self.of_gpu(gpu, "engines")["engines"]:
                view = engine["view"]
                if view is None:  # its process has ended
                    continue
                print(gpu[-4:], engine["name"], view["leased"],
                      view["spans_gpus"], flush=True)
                held[len(held) + 1] = view["leased"]
        return held

    def reports(self) -> list[dict[str, Any]]:
        """One of each rank."""
        found = [
            {"wrong": self.wrong[i], "count": self.counts[i]} | rank
            for i, engine in enumerate(self.engines)
            for rank in engine.run("stats_of_all")
        ]
        # The daemons count the returned slabs in these tests.
        for rank in found:
            print({k: v for k, v in rank.items() if k != "slabs_returned"})
        print({
            "pid": self.daemons[0].pid,
            "slabs_returned": sum(self.returned()),
        })
        return found

    def trade_until(self, returned: int) -> None:
        """Serves until more than `returned` slabs have come back on each
        GPU."""
        for _ in range(6):
            self.in_turns_then_together(32)
            print("returned", self.returned(), flush=True)
            if min(self.returned()) > returned:
                break
        self.assertGreater(min(self.returned()), returned)
        self.check_all()

    def kill_a_rank(self) -> None:
        """Kills a rank of the first engine, which runs on two GPUs. The engine
        ends and its slabs on both GPUs are freed; the other engine, on the
        second GPU, is not disturbed."""
        pids = [rank["pid"] for rank in self.engines[0].run("stats_of_all")]
        prompts = self.ask(1, 32)
        kill_9(pids[1])
        self.finish(1, prompts)
        self.assertEqual(self.wrong[1], 0)
        self.assertTrue(
            self.eventually(
                lambda: not self.of_gpu(self.gpus[0], "engines")["engines"]
                and len(self.of_gpu(self.gpus[1], "engines")["engines"]) == 1
            )
        )
        self.assertEqual(
            self.of_gpu(self.gpus[0], "slabs")["states"]["free"]["slabs"],
            self.SLABS[0],
        )
