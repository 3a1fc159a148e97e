"""Two stock `vllm serve` replicas on two GPUs behind the proxy: in a burst each
drops half of its parameters for KV, by the daemons' own decision, and gets them
back when it is over (design note 0047), whatever dies.

On vLLM itself (label vllm), as test_gpu_worker.py. FINESERVE_TEST_ROUNDS sets
the number of deaths, in eights.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import unittest
from typing import Any

from gpu_machine import MIB, REAL_GPU, VllmMachine, engine_environment
from gpu_machine import random_prompts
from machine import kill_9, stage
from serving_site import RECOVERY_S, Answer, Served, ServingSite
from serving_site import before_fsctl_up, served_by_vllm
from test_gpu_drop import Wide

MODEL = Wide(layers=4, seed=21, deviation=0.05)
NAME = "chat"
REPLICAS = [f"{NAME}-0", f"{NAME}-1"]  # each on the GPU of its number
PROMPTS = 64  # whose KV needs the memory of parameters on both GPUs
TOKENS = 40  # of each answer
ROUNDS = int(os.environ.get("FINESERVE_TEST_ROUNDS", "8"))
DEATHS = ("engine", *("daemon",) * 7)  # in each burst


class Client(concurrent.futures.ThreadPoolExecutor):
    """Sends a burst of requests, all at once."""

    def __init__(self, site: ServingSite, seed: int) -> None:
        super().__init__(PROMPTS)
        self.prompts = random_prompts(seed, PROMPTS, (300, 440))
        self._answers = [
            self.submit(site.complete, NAME, prompt, TOKENS)
            for prompt in self.prompts
        ]

    def under_way(self) -> bool:
        return self.done() < PROMPTS

    def done(self) -> int:
        return sum(answer.done() for answer in self._answers)

    def answers(self) -> list[Answer]:
        return [answer.result() for answer in self._answers]


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class Burst(VllmMachine):
    slab_bytes = 4 * MIB
    device_memory = 288 * MIB

    def setUp(self) -> None:
        super().setUp()
        self.environment |= {
            "EMUCUDA_DEVICES": str(len(REPLICAS)),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        path = MODEL.make(self._models)
        self.site = ServingSite(
            pathlib.Path(self.folder),
            [self.replica(number, path) for number in range(len(REPLICAS))],
            self.environment,
            before_fsctl_up(
                engine_environment(self.environment, shim=True, runner=2)
            ),
            overload={"link_gb_s": 400, "rereads": 1},
        )
        self.addCleanup(self.site.close)
        self.seed = self.right = self.lost = 0
        self.site.start_all(
            *(0, self.slab_bytes, "--supervise"),
            *("--headroom", "24MiB", "--reserve", "200MiB"),
        )

    def replica(self, number: int, path: str) -> Served:
        served = served_by_vllm(REPLICAS[number], path)
        served.engine["evict"] = "auto"
        return dataclasses.replace(
            served,
            replica_of=NAME,
            devices=(number,),
            model={
                "slo_ttft_ms": 200000,
                "slo_tpot_ms": 5000,
                "chunk_tokens": 256,
                "max_batch": 32,
            },
        )

    def dropped(self) -> list[int]:
        """Returns the dropped bytes of each replica; 0 while its daemon does
        not answer."""
        sizes = []
        for gpu, name in zip(self.site.gpus, REPLICAS):
            said = self.site.fsctl("--gpu", gpu, "models", "--json").stdout
            models = json.loads(said)["models"] if said else []
            sizes.append(
                sum(
                    engine.get("dropped_bytes", 0)
                    for model in models
                    for engine in model["engines"]
                    if engine["name"] == name
                )
            )
        return sizes

    def pool_bytes(self) -> list[int]:
        return [
            self.site.report("--gpu", gpu, "slabs")["pool_bytes"]
            for gpu in self.site.gpus
        ]

    def begin(self) -> Client:
        self.seed += 1
        return Client(self.site, self.seed)

    def end(self, client: Client) -> None:
        """Checks that every answer that arrived is right and complete."""
        answers = client.answers()
        came = [n for n, answer in enumerate(answers) if answer.status == 200]
        tokens = [answers[n].tokens for n in came]
        wrong = self.reference(MODEL).wrong(
            [client.prompts[n] for n in came], tokens
        )
        print(f"{TOKENS * len(came)} tokens, {wrong} wrong", flush=True)
        self.assertEqual((wrong, {len(t) for t in tokens}), (0, {TOKENS}))
        self.right += len(came)
        self.lost += len(answers) - len(came)
        client.shutdown()

    def eventually(self, condition: Any) -> None:
        self.assertTrue(
            stage.eventually(condition, RECOVERY_S),
            f"{self.site.fsctl('models').stdout}\n{self.site.logs()}",
        )

    def test_a_burst_turns_weights_into_kv(self) -> None:
        self.burst_and_its_end()
        self.whatever_dies()

    def burst_and_its_end(self) -> None:
        before = self.pool_bytes()
        client = self.begin()
        most, grown = [0, 0], [0, 0]

        def both_grew() -> bool:
            self.assertTrue(client.under_way(), (most, grown))
            for n, (size, pool) in enumerate(
                zip(self.dropped(), self.pool_bytes())
            ):
                most[n] = max(most[n], size)
                grown[n] = max(grown[n], pool - before[n])
            return all(
                size and more >= size * 95 // 100
                for size, more in zip(most, grown)
            )

        self.eventually(both_grew)
        print(
            *(f"{size >> 20} MiB dropped" for size in most),
            *(f"pool grew by {more >> 20} MiB" for more in grown),
            sep=", ",
            flush=True,
        )
        self.end(client)
        self.assertEqual(self.lost, 0)
        self.eventually(lambda: self.dropped() == [0, 0])

    def whatever_dies(self) -> None:
        """Kills processes at random moments: during drops, after them, and
        during restorations. Each burst has all of DEATHS; the engine's death is
        the first, the second and so on in turn."""
        drops = 0
        chance = random.Random(ROUNDS)
        for burst in range(ROUNDS // len(DEATHS)):
            turn = burst % len(DEATHS)
            lost, client = self.lost, self.begin()
            self.eventually(
                lambda: any(self.dropped()) or not client.under_way()
            )
            for number, kind in enumerate(DEATHS[-turn:] + DEATHS[:-turn]):
                drops += any(self.dropped())
                self.kill((burst + number) % 2, kind)
                more = client.done() + chance.randint(0, 12)
                self.eventually(lambda: client.done() >= min(more, PROMPTS))
            self.end(client)
            self.wait_until_whole()
            print(
                f"{len(DEATHS) * (burst + 1)} deaths, {drops} after a drop, "
                f"{self.right} answers right, {self.lost - lost} lost",
                flush=True,
            )
            self.assertEqual(self.lost, lost)
        self.assertGreater(drops, 0)

    def kill(self, victim: int, kind: str) -> None:
        pids: list[int] = []

        def finds() -> bool:  # not while its daemon starts
            pids[:] = self.pids(self.site.gpus[victim], kind)
            return bool(pids)

        self.eventually(finds)
        for pid in pids:
            kill_9(pid)
        if kind == "engine":
            self.site.wait_until_it_ends(REPLICAS[victim])

    def pids(self, gpu: str, kind: str) -> list[int]:
        try:
            if kind == "daemon":  # its parent starts it again
                daemon = self.site.report("--gpu", gpu, "slabs")["daemon"]
                return [daemon["pid"]]
            engines = self.site.report("--gpu", gpu, "engines")["engines"]
        except subprocess.CalledProcessError:
            return []
        return [pid for engine in engines for pid in engine["pids"]]

    def wait_until_whole(self) -> None:
        for name in REPLICAS:
            self.site.wait_until_it_serves(name, kills=1)
        self.eventually(lambda: self.dropped() == [0, 0])
