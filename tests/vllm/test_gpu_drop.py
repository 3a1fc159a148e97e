"""Two stock vLLM replicas on two GPUs, of which one drops its parameters and
reads the other's (fsctl drop, restore; design note 0048).

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import dataclasses
import os
import re
import unittest
from typing import Any

from gpu_machine import (
    MIB,
    REAL_GPU,
    EngineEnded,
    Model,
    VllmEngine,
    VllmMachine,
    kill_9,
    random_prompts,
)

NAME = "chat"


@dataclasses.dataclass(frozen=True)
class Wide(Model):
    """With 24 MiB of weights in a layer: some have a segment of PyTorch's of
    their own, others share one."""

    def sizes(self) -> dict[str, Any]:
        return super().sizes() | {
            "hidden_size": 256,
            "intermediate_size": 8192,
        }


MODEL = Wide(layers=4, seed=21, deviation=0.05)


class Replicas(VllmMachine):
    slab_bytes = 8 * MIB
    device_memory = 768 * MIB

    def setUp(self) -> None:
        super().setUp()
        self.environment |= {
            "EMUCUDA_DEVICES": "2",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        self.gpus: list[str] = []
        self.daemons: list[Any] = [None, None]
        self.engines: list[VllmEngine] = []
        self.seed = 0
        self.count = 0
        for gpu in range(2):
            self.start_daemon_of(gpu)

    def start_daemon_of(self, gpu: int) -> None:
        self.daemons[gpu] = self.machine.start_daemon(
            *("--gpu", f"emulated:{gpu}", "--slab", self.slab_bytes),
            *("--pool", "auto", "--reserve", "448MiB", "--headroom", "32MiB"),
        )
        folder = self.environment["FINESERVE_RUNTIME_DIR"]
        names = {f[:-5] for f in os.listdir(folder) if f.endswith(".sock")}
        self.gpus += names - set(self.gpus)

    def start_replica(self, gpu: int, model: Model = MODEL, **own: Any) -> None:
        self.engines[gpu:gpu + 1] = [self.start_vllm(
            model,
            view=True,
            environment={
                "FINESERVE_ENGINE": NAME,
                "FINESERVE_EVICT": "auto",
                "CUDA_VISIBLE_DEVICES": f"{gpu},{1 - gpu}",
            },
            **own,
        )]

    def order(self, gpu: int, verb: str) -> tuple[int, str]:
        done = self.machine.fsctl("--gpu", self.gpus[gpu], verb, NAME)
        print(verb, gpu, done.returncode, done.stdout + done.stderr, flush=True)
        return done.returncode, done.stdout + done.stderr


class First(Replicas):
    def test_first(self) -> None:
        for gpu in range(2):
            self.start_replica(gpu)
        for engine in self.engines:
            print(engine.answer())
        for gpu in range(2):
            print(re.findall(".*replica.*", self.engines[gpu].stderr()))
            prompts = random_prompts(gpu, 8, (40, 100))
            tokens = self.engines[gpu].run("generate", prompts=prompts, max_tokens=[16]*8)["tokens"]
            print(self.reference(MODEL).wrong(prompts, tokens))
        self.order(0, "drop")
        print(self.machine.fsctl("engines").stdout)
        for gpu in range(2):
            prompts = random_prompts(gpu, 8, (40, 100))
            tokens = self.engines[gpu].run("generate", prompts=prompts, max_tokens=[16]*8)["tokens"]
            print(self.reference(MODEL).wrong(prompts, tokens))
        self.order(0, "restore")
