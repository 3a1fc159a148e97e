"""Two stock vLLM replicas on two GPUs, of which one drops its parameters and
reads the other's (fsctl drop, restore; design note 0048).

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import dataclasses
import os
import re
import unittest
from collections.abc import Callable
from typing import Any

from gpu_machine import (
    MIB,
    REAL_GPU,
    Model,
    VllmEngine,
    VllmMachine,
    kill_9,
    random_prompts,
)

NAME = "chat"  # of both replicas
REQUESTS = 32
TOKENS = 40  # of each answer


@dataclasses.dataclass(frozen=True)
class Wide(Model):
    """A layer has 24 MiB of weights, in an allocation of its own and in two that
    share one; a token has 16 KiB of KV."""

    def sizes(self) -> dict[str, Any]:
        return super().sizes() | {
            "hidden_size": 256,
            "intermediate_size": 8192,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
        }


MODEL = Wide(layers=4, seed=21, deviation=0.05)
OTHER = Wide(layers=4, seed=22, deviation=0.05)


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class Replicas(VllmMachine):
    """Each on the GPU of its number, with a pool of size "auto": without a drop
    it cannot hold the KV of REQUESTS."""

    slab_bytes = 4 * MIB
    device_memory = 400 * MIB
    RESERVE = "240MiB"

    def setUp(self) -> None:
        super().setUp()
        self.environment |= {
            "EMUCUDA_DEVICES": "2",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        self.gpus: list[str] = []
        self.daemons: list[Any] = [None, None]
        self.engines: list[Any] = [None, None]
        self.models = [MODEL, MODEL]
        self.seed = 0
        for gpu in range(2):
            self.start_daemon_of(gpu)

    def start_daemon_of(self, gpu: int) -> None:
        self.daemons[gpu] = self.machine.start_daemon(
            *("--gpu", f"emulated:{gpu}", "--slab", self.slab_bytes),
            *("--pool", "auto", "--headroom", "24MiB"),
            *("--reserve", self.RESERVE),
        )
        folder = self.environment["FINESERVE_RUNTIME_DIR"]
        names = {f[:-5] for f in os.listdir(folder) if f.endswith(".sock")}
        self.gpus += names - set(self.gpus)

    def start_replica(self, gpu: int, model: Model = MODEL, **own: Any) -> None:
        self.models[gpu] = model
        self.engines[gpu] = self.start_vllm(
            model,
            view=True,
            environment={
                "FINESERVE_ENGINE": NAME,
                "FINESERVE_EVICT": "auto",
                "CUDA_VISIBLE_DEVICES": f"{gpu},{1 - gpu}",
            },
            **own,
        )

    def await_replica(self, gpu: int) -> None:
        print("start", self.engines[gpu].answer()["seconds"], flush=True)
        print(*re.findall("a replica may read.*", self.engines[gpu].stderr()))

    def of_gpu(self, gpu: int, *arguments: str) -> Any:
        return self.fsctl("--gpu", self.gpus[gpu], *arguments)

    def order(self, gpu: int, verb: str) -> tuple[int, str]:
        done = self.machine.fsctl("--gpu", self.gpus[gpu], verb, NAME)
        said = (done.stdout + done.stderr).strip()
        print(f"{verb} {gpu}: {done.returncode} {said}", flush=True)
        return done.returncode, said

    def obeys(self, gpu: int, verb: str) -> str:
        """A daemon or an engine that has just started may not be ready yet."""
        said: list[str] = []

        def ordered() -> bool:
            code, text = self.order(gpu, verb)
            said.append(text)
            return code == 0

        self.assertTrue(self.eventually(ordered), said[-1:])
        return said[-1]

    def refuses(self, gpu: int, verb: str, why: str) -> None:
        code, said = self.order(gpu, verb)
        self.assertEqual(code, 1)
        self.assertRegex(said, why)

    def pid(self, gpu: int) -> int:
        (engine,) = self.of_gpu(gpu, "engines")["engines"]
        pid: int = engine["view"]["pid"]
        return pid

    def has_dropped(self, gpu: int) -> bool:
        said = self.machine.fsctl("explain", str(self.pid(gpu))).stdout
        return "dropped:" in said

    def ask(self, gpu: int, requests: int = REQUESTS) -> list[list[int]]:
        self.seed += 1
        prompts = random_prompts(self.seed, requests, (300, 440))
        self.engines[gpu].ask(
            "generate", prompts=prompts, max_tokens=[TOKENS] * requests
        )
        return prompts

    def judge(self, gpu: int, prompts: list[list[int]]) -> None:
        answer = self.engines[gpu].answer()
        tokens = answer["tokens"]
        wrong = self.reference(self.models[gpu]).wrong(prompts, tokens)
        count = sum(map(len, tokens))
        print(
            f"replica {gpu}: {count} tokens, {wrong} wrong, "
            f"{answer['seconds']:.1f} s",
            flush=True,
        )
        self.assertEqual((wrong, count), (0, TOKENS * len(prompts)))

    def serve(self, *gpus: int, requests: int = 4) -> None:
        asked = {gpu: self.ask(gpu, requests) for gpu in gpus}
        for gpu, prompts in asked.items():
            self.judge(gpu, prompts)

    def go_through(self, *steps: Callable[[], None]) -> None:
        """One start serves all of them: it takes a minute."""
        for step in steps:
            print("--", step.__name__, flush=True)
            step()


class Drop(Replicas):
    def test_a_replica_reads_the_others_parameters(self) -> None:
        for gpu in range(2):
            self.start_replica(gpu)
        for gpu in range(2):
            self.await_replica(gpu)
        self.go_through(
            self.requests_go_on,
            self.the_pool_grows_by_what_was_dropped,
            self.a_write_ends_the_drop_first,
            self.daemons_die,
            self.the_lender_dies,
            self.alone_it_is_refused,
            self.unequal_replicas_are_refused,
        )

    def requests_go_on(self) -> None:
        self.serve(0, 1)
        asked = [self.ask(gpu) for gpu in range(2)]
        drops = 0
        while not all(engine.has_answered() for engine in self.engines):
            self.obeys(0, "drop")
            self.obeys(0, "restore")
            drops += 1
        for gpu in range(2):
            self.judge(gpu, asked[gpu])
        print(drops, "drops", flush=True)
        self.assertGreater(drops, 0)

    def pool_bytes(self) -> int:
        size: int = self.of_gpu(0, "slabs")["pool_bytes"]
        return size

    def grown_pool(self, at_least: int) -> int:
        """The pool's bytes once it has grown to that, and grows no further
        however many requests there are."""
        before, size, rounds = 0, self.pool_bytes(), 0
        while size < at_least or size > before:
            rounds += 1
            self.assertLess(rounds, 20, f"{size} of {at_least}")
            before = size
            self.serve(0, requests=REQUESTS)
            size = self.pool_bytes()
            print(f"pool: {size >> 20} MiB", flush=True)
        return size

    def the_pool_grows_by_what_was_dropped(self) -> None:
        before = self.grown_pool(0)
        said = self.obeys(0, "drop")
        dropped = int(re.search(r"dropped (\d+) MiB", said).group(1)) * MIB
        grown = self.grown_pool(before + dropped * 95 // 100)
        print(f"{(grown - before) >> 20} of {dropped >> 20} MiB", flush=True)
        # It gives the memory back while requests are under way.
        asked = self.ask(0)
        self.obeys(0, "restore")
        self.judge(0, asked)
        self.serve(0, 1)

    def a_write_ends_the_drop_first(self) -> None:
        for writer in 1, 0:
            self.obeys(0, "drop")
            self.engines[writer].run("reload_weights")
            self.assertFalse(self.has_dropped(0))
            self.serve(0, 1)
        # A function of the user's may write, too.
        self.obeys(0, "drop")
        self.assertTrue(self.has_dropped(0))
        self.engines[0].run("stats")
        self.assertFalse(self.has_dropped(0))

    def daemons_die(self) -> None:
        for gpu in range(2):
            self.obeys(0, "drop")
            asked = [self.ask(i, 8) for i in range(2)]
            kill_9(self.daemons[gpu].pid)
            self.daemons[gpu].wait()
            for i in range(2):
                self.judge(i, asked[i])
            self.start_daemon_of(gpu)
            self.serve(0, 1)
            self.assertTrue(self.has_dropped(0))
            self.obeys(0, "restore")
            self.serve(0, 1)

    def the_lender_dies(self) -> None:
        self.obeys(0, "drop")
        asked = self.ask(0)
        kill_9(self.pid(1))
        self.judge(0, asked)
        self.assertTrue(self.eventually(lambda: not self.has_dropped(0)))
        self.serve(0)

    def alone_it_is_refused(self) -> None:
        self.assertTrue(
            self.eventually(lambda: not self.of_gpu(1, "engines")["engines"])
        )
        self.refuses(0, "drop", "no engine 'chat' is on another GPU")

    def unequal_replicas_are_refused(self) -> None:
        self.start_replica(1, OTHER)
        self.await_replica(1)
        self.refuses(0, "drop", "are not those of the other")
        self.serve(0, 1)


class OfSeveralProcesses(Replicas):
    device_memory = 768 * MIB

    def test_it_is_refused(self) -> None:
        self.start_replica(0, tensor_parallel_size=2)
        self.await_replica(0)
        self.serve(0)
        self.refuses(0, "drop", "spans several GPUs")
        self.serve(0)
