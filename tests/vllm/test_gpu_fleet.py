"""A fleet of stock `vllm serve` that is larger than its GPU (design note 0042):
`fsctl up` starts all of it, and the models that clients ask for take turns.

On vLLM itself (label vllm), as test_gpu_worker.py.
"""

from __future__ import annotations

import os
import pathlib
import threading
import unittest
from typing import Any

from gpu_machine import Model, VllmMachine, engine_environment, random_prompts
from serving_site import ServingSite, before_fsctl_up, served_by_vllm

# Each model has 56 MiB of weights, and 1.9 MiB per block.
MODELS = {f"model-{seed}": Model(layers=60, seed=seed) for seed in range(4)}
ROUNDS = int(os.environ.get("FINESERVE_TEST_ROUNDS", "3"))
TOKENS = 20


class FleetTest(VllmMachine):
    slab_bytes = 8 << 20
    pool_slabs = 12
    device_memory = 300 << 20  # room for three models beside the pool

    def setUp(self) -> None:
        super().setUp()
        served = [
            served_by_vllm(name, model.make(self._models))
            for name, model in MODELS.items()
        ]
        for one in served:
            one.engine["evict"] = "auto"
            arguments = one.engine["arguments"]
            arguments[arguments.index("--max-model-len") + 1] = "64"
        environment = engine_environment(
            self.environment, shim=True, runner=2
        )
        self.site = ServingSite(
            pathlib.Path(self.folder),
            served,
            self.environment,
            before_fsctl_up(environment),
        )
        self.addCleanup(self.site.close)
        self.site.start_all(self.pool_slabs, self.slab_bytes)

    def ask(self, name: str, seed: int, wrong: list[int]) -> None:
        prompts = random_prompts(seed, 4, (30, 40))
        answers = self.site.complete_all(name, prompts, TOKENS)
        for answer in answers:
            self.assertEqual(answer.status, 200, answer.body)
        wrong.append(
            self.reference(MODELS[name]).wrong(
                prompts, [answer.tokens for answer in answers]
            )
        )

    def engines(self) -> list[dict[str, Any]]:
        engines: list[dict[str, Any]] = self.site.report("engines")["engines"]
        return engines

    def test_every_model_answers_whichever_is_asked(self) -> None:
        away = [engine for engine in self.engines() if engine["memory"]["evicted_bytes"]]
        print(f"{len(away)} of {len(MODELS)} are away", flush=True)
        self.assertGreater(len(away), 0, "the GPU holds them all")
        wrong: list[int] = []
        for round_ in range(ROUNDS):
            for name in MODELS:
                self.ask(name, round_, wrong)
        clients = [
            threading.Thread(target=self.ask, args=(name, 100 + c, wrong))
            for c in range(2)
            for name in MODELS
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        print(self.site.report("store"), flush=True)
        self.assertEqual(
            wrong, [0] * len(MODELS) * (ROUNDS + 2), self.site.logs()
        )
