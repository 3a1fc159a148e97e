"""A stock SGLang and a stock vLLM, both at tensor parallel 2, on the same two
pools behind one fineserve-proxy, while requests of a real trace come and
processes of all of them are killed (label sglang; design notes 0028 to 0030).

Each engine's first rank is on the other's second GPU. Run by the Python of
vLLM's environment, with $FINESERVE_SGLANG_PYTHON. For $FINESERVE_TEST_MINUTES
the kills are repeated; $FINESERVE_TEST_TRACE is another trace.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import subprocess
import time
import unittest
from collections.abc import Iterator
from typing import Any

from sglang_machine import PLANES, SLAB, WideModel  # sets the path, too
from gpu_machine import REAL_GPU, VllmMachine, kill_9
from machine import stage
from replay import Outage, Replay, trace_of
from serving_site import Served, ServingSite, served_by_vllm
from test_sglang_serving import TRACE, environment_of_both, served_by_sglang

# Both models have 512 tokens in a slab on each GPU.
MODELS = {
    "sglang": WideModel(heads=32, seed=11),
    "vllm": WideModel(heads=32, seed=12),
}
DEVICES = {"sglang": (0, 1), "vllm": (1, 0)}
SPEED = 2.0  # of the trace's clock
MINUTES = float(os.environ.get("FINESERVE_TEST_MINUTES", "0"))
AT_ONCE = 10  # answers of each engine between two kills
PROGRESS_S = 600  # for so many of them


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class TwoOfTwoRanks(VllmMachine):
    slab_bytes = SLAB
    pool_slabs = 8
    device_memory = 512 << 20

    def setUp(self) -> None:
        super().setUp()
        self.environment["EMUCUDA_DEVICES"] = "2"
        self.site = ServingSite(
            pathlib.Path(self.folder),
            [self.served(name) for name in MODELS],
            self.environment,
            environment_of_both(self.environment),
        )
        self.addCleanup(self.site.close)
        self.site.start_all(
            *(self.pool_slabs, self.slab_bytes),
            *("--planes", str(PLANES), "--supervise"),
        )
        self.outages: list[Outage] = []
        self.returned = collections.Counter[str]()  # slabs, by GPU
        self.last_seen = dict.fromkeys(self.site.gpus, 0)

    def served(self, name: str) -> Served:
        path = MODELS[name].make(self._models)
        if name == "sglang":
            served = served_by_sglang(name, path, "--tp-size", "2")
        else:
            served = served_by_vllm(
                *(name, path, "--tensor-parallel-size", "2"),
                # A kernel of vLLM's own.
                "--disable-custom-all-reduce",
            )
        served.model["slo_ttft_ms"] = 120000
        return dataclasses.replace(served, devices=DEVICES[name])

    def test_every_token_is_right_whatever_is_killed(self) -> None:
        trace = pathlib.Path(os.environ.get("FINESERVE_TEST_TRACE", TRACE))
        self.replay = Replay(
            self.site, trace_of(trace, list(MODELS), SPEED)
        )
        self.addCleanup(self.replay.stop)
        ends = time.monotonic() + 60 * MINUTES
        while not self.outages or time.monotonic() < ends:
            for kill in (
                self.a_rank_dies,
                self.an_engine_core_dies,
                self.a_daemon_dies,
                self.the_proxy_dies,
            ):
                self.answers_come()
                kill()
        self.answers_come()
        self.replay.stop()
        self.judge()

    # Kills.

    def a_rank_dies(self) -> None:
        """Kills SGLang's second rank, and SGLang ends with it."""
        with self.outage("a rank", "sglang"):
            kill_9(self.view_of("sglang", device=1)["pid"])
            self.site.wait_until_it_serves_again("sglang")

    def an_engine_core_dies(self) -> None:
        """vLLM's, and vLLM with it."""
        with self.outage("EngineCore", "vllm"):
            kill_9(self.view_of("vllm", device=0)["spans_gpus"]["pid"])
            self.site.wait_until_it_serves_again("vllm")

    def a_daemon_dies(self) -> None:
        """Kills a daemon. Another one takes its pool over, and no request is
        lost."""
        gpu = self.site.gpus[len(self.outages) % 2]
        pid = self.daemon_pid(gpu)
        assert pid is not None
        with self.outage("a daemon"):
            kill_9(pid)
            self.assertTrue(
                stage.eventually(
                    lambda: self.daemon_pid(gpu) not in (None, pid)
                )
            )

    def the_proxy_dies(self) -> None:
        with self.outage("the proxy", *MODELS):
            self.site.kill("proxy")
            self.site.start_proxy()
            self.assertTrue(stage.eventually(self.proxy_lists_models))

    @contextlib.contextmanager
    def outage(self, what: str, *engines: str) -> Iterator[None]:
        """Notes an outage of these engines for clients."""
        began = time.monotonic()
        yield
        ended = time.monotonic()
        self.outages.append(Outage(what, set(engines), began, ended))
        print(f"-- {what}: {ended - began:.1f} s", flush=True)

    # Looks at the site.

    def view_of(self, name: str, device: int) -> dict[str, Any]:
        gpu = self.site.gpus[device]
        (view,) = [
            engine["view"]
            for engine in self.site.report("--gpu", gpu, "engines")["engines"]
            if engine["name"] == name and engine["view"]
        ]
        self.assertIsNotNone(view["spans_gpus"])
        return view

    def daemon_pid(self, gpu: str) -> int | None:
        """None while no daemon answers."""
        try:
            daemon = self.site.report("--gpu", gpu, "slabs")["daemon"]
        except subprocess.CalledProcessError:
            return None
        return daemon["pid"] if daemon["answers"] else None

    def proxy_lists_models(self) -> bool:
        try:
            return stage.http_answer(self.site.port, "/v1/models")[0] == 200
        except OSError:
            return False

    def count_returned(self) -> None:
        """Adds the slabs returned since the last look. A daemon that took over
        may count from 0."""
        for gpu, seen in self.last_seen.items():
            report = self.site.report("--gpu", gpu, "slabs")
            now = report["counters"]["slabs_returned"]
            self.returned[gpu] += now - seen if now >= seen else now
            self.last_seen[gpu] = now

    def answers_come(self) -> None:
        """Checks that both engines answer and slabs change hands."""
        before = self.replay.counts()
        self.assertTrue(
            stage.eventually(
                lambda: all(
                    count - before[engine] >= AT_ONCE
                    for engine, count in self.replay.counts().items()
                ),
                PROGRESS_S,
            ),
            self.site.logs(),
        )
        self.count_returned()
        print(self.replay.counts(), dict(self.returned), flush=True)

    # The verdict.

    def judge(self) -> None:
        self.count_returned()
        print({"slabs_returned": sum(self.returned.values())}, flush=True)
        self.site.stop_named("up")  # its engines would only take time
        strayed = {
            name: self.site.log(name).count("a stray write") for name in MODELS
        }
        print("stray writes:", strayed, flush=True)
        self.only_killed_engines_lost_requests()
        self.tokens_are_right()
        self.assertEqual(strayed, dict.fromkeys(MODELS, 0))
        for gpu in self.site.gpus:
            self.assertGreater(self.returned[gpu], 0)

    def tokens_are_right(self) -> None:
        for name, model in MODELS.items():
            answered = self.replay.answered[name]
            tokens = [tokens for _, tokens in answered]
            self.assertEqual(
                [len(its) for its in tokens],
                [arrival.output_tokens for arrival, _ in answered],
            )
            wrong = self.reference(model).wrong(
                [arrival.prompt for arrival, _ in answered], tokens
            )
            print(
                f"{name}: {len(answered)} requests, "
                f"{sum(map(len, tokens))} tokens, {wrong} wrong",
                flush=True,
            )
            self.assertEqual(wrong, 0)

    def only_killed_engines_lost_requests(self) -> None:
        failed = self.replay.failed()
        for outage in self.outages:
            excused = [a for a in failed if outage.excuses(a)]
            print(
                f"{outage.what}: sent again while they ran "
                f"{sum(a.began < outage.began for a in excused)}, later "
                f"{sum(a.began >= outage.began for a in excused)}",
                collections.Counter(a.status for a in excused),
                flush=True,
            )
        lost = [
            attempt
            for attempt in failed
            if not any(outage.excuses(attempt) for outage in self.outages)
        ]
        self.assertEqual(lost, [])
