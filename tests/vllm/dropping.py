"""Two replicas on two GPUs, one of which drops its parameters and reads those
of the other."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any

from engine_process import EngineTest
from machine import MIB, kill_9
from tiny_models import Model, random_prompts

NAME = "chat"  # of both replicas
REQUESTS = 32  # whose KV needs the memory of the parameters
FEW = 8  # whose KV does not
TOKENS = 40  # of each answer
ANSWERS_S = 600  # of FEW requests, on a machine that is busy with others


class Replicas(EngineTest):
    """Each on the GPU of its number, with a pool of size "auto", which without a
    drop cannot hold the KV of REQUESTS. A subclass starts them, by start_one()."""

    MODEL: Model
    HEADROOM, RESERVE = "24MiB", "200MiB"

    def setUp(self) -> None:
        super().setUp()
        self.environment |= {
            "EMUCUDA_DEVICES": "2",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        self.gpus: list[str] = []
        self.engines: list[Any] = [None, None]
        self.models = [self.MODEL, self.MODEL]
        self.seed = 0
        for gpu in range(2):
            self.start_daemon_of(gpu)

    def start_daemon_of(self, gpu: int, *arguments: str) -> None:
        """Starts a daemon, whose parent restarts it when it has been killed."""
        parent = self.machine.start_daemon(
            *("--supervise", "--gpu", f"emulated:{gpu}"),
            *("--slab", self.slab_bytes),
            *("--pool", "auto", "--headroom", self.HEADROOM),
            *("--reserve", self.RESERVE, *arguments),
        )
        self.addCleanup(self.machine.end, parent, signal.SIGTERM)
        folder = self.environment["FINESERVE_RUNTIME_DIR"]
        names = {f[:-5] for f in os.listdir(folder) if f.endswith(".sock")}
        self.gpus += names - set(self.gpus)

    def start_replica(
        self, gpu: int, model: Model | None = None, **own: Any
    ) -> None:
        self.models[gpu] = model or self.MODEL
        self.engines[gpu] = self.start_one(
            self.models[gpu],
            {
                "FINESERVE_ENGINE": NAME,
                "FINESERVE_EVICT": "auto",
                "CUDA_VISIBLE_DEVICES": f"{gpu},{1 - gpu}",
            },
            **own,
        )

    def await_replica(self, gpu: int) -> None:
        print("start", self.engines[gpu].answer()["seconds"], flush=True)
        print(*re.findall("a replica may read.*", self.engines[gpu].stderr()))

    def start_both(self) -> None:
        for gpu in range(2):
            self.start_replica(gpu)
        for gpu in range(2):
            self.await_replica(gpu)

    def of_gpu(self, gpu: int, *arguments: str) -> Any:
        return self.fsctl("--gpu", self.gpus[gpu], *arguments)

    def order(self, gpu: int, verb: str) -> tuple[int, str]:
        done = self.machine.fsctl("--gpu", self.gpus[gpu], verb, NAME)
        said = (done.stdout + done.stderr).strip()
        print(f"{verb} {gpu}: {done.returncode} {said}", flush=True)
        return done.returncode, said

    def obeys(self, gpu: int, verb: str) -> str:
        """Repeats the verb, because a daemon or an engine that has just started
        may not be ready yet, and KV may be in the way of a copy."""
        said: list[str] = []

        def ordered() -> bool:
            code, text = self.order(gpu, verb)
            said.append(text)
            return code == 0

        self.assertTrue(self.eventually(ordered, ANSWERS_S), said[-1:])
        return said[-1]

    def refuses(self, gpu: int, verb: str, why: str) -> None:
        code, said = self.order(gpu, verb)
        self.assertEqual(code, 1)
        self.assertRegex(said, why)

    def pid(self, gpu: int) -> int:
        (engine,) = self.of_gpu(gpu, "engines")["engines"]
        (pid,) = engine["pids"]
        return int(pid)

    def daemon(self, gpu: int) -> dict[str, Any]:
        found: dict[str, Any] = self.of_gpu(gpu, "slabs")["daemon"]
        return found

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
        """Runs all steps after one start, because a start takes a minute. Each
        step begins and ends without a drop."""
        for step in steps:
            print("--", step.__name__, flush=True)
            step()

    def pool_bytes(self) -> int:
        size: int = self.of_gpu(0, "slabs")["pool_bytes"]
        return size

    def grown_pool(self, at_least: int) -> int:
        """Waits until the pool has grown to at least this size and further
        requests no longer grow it. Returns its bytes."""
        before, size, rounds = 0, self.pool_bytes(), 0
        while size < at_least or size > before:
            rounds += 1
            self.assertLess(rounds, 20, f"{size} of {at_least}")
            before = size
            self.serve(0, requests=REQUESTS)
            size = self.pool_bytes()
            print(f"pool: {size >> 20} MiB", flush=True)
        return size

    # Steps.

    def requests_go_on(self) -> None:
        self.serve(0, 1)
        asked = [self.ask(gpu, FEW) for gpu in range(2)]
        drops = 0
        while not all(engine.has_answered() for engine in self.engines):
            self.obeys(0, "drop")
            self.obeys(0, "restore")
            drops += 1
        for gpu in range(2):
            self.judge(gpu, asked[gpu])
        print(drops, "drops", flush=True)
        self.assertGreater(drops, 0)

    def the_pool_grows_by_what_was_dropped(self) -> None:
        before = self.grown_pool(0)
        said = self.obeys(0, "drop")
        (size,) = re.findall(r"dropped (\d+) MiB", said)
        dropped = int(size) * MIB
        grown = self.grown_pool(before + dropped * 95 // 100)
        print(f"{(grown - before) >> 20} of {size} MiB", flush=True)
        # The replica gives the memory back while requests are under way.
        asked = self.ask(0, FEW)
        self.obeys(0, "restore")
        self.judge(0, asked)
        self.serve(0, 1)

    def reload(self, writer: int) -> None:
        """Has the engine load its weights again."""
        self.engines[writer].run("reload_weights")

    def a_write_ends_the_drop_first(self) -> None:
        for writer in 1, 0:
            self.obeys(0, "drop")
            self.reload(writer)
            self.assertFalse(self.has_dropped(0))
            self.serve(0, 1)
        # A user's function may also write to the weights.
        self.obeys(0, "drop")
        self.assertTrue(self.has_dropped(0))
        self.engines[0].run("stats")
        self.assertFalse(self.has_dropped(0))

    def daemons_die(self) -> None:
        for gpu in range(2):
            self.obeys(0, "drop")
            asked = [self.ask(i, FEW) for i in range(2)]
            killed = self.daemon(gpu)
            kill_9(killed["pid"])
            for i in range(2):
                self.judge(i, asked[i])
            self.assertNotEqual(self.daemon(gpu)["pid"], killed["pid"])
            self.assertEqual(self.daemon(gpu)["epoch"], killed["epoch"])
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
        self.refuses(0, "drop", f"no engine '{NAME}' is on another GPU")
