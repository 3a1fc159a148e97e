"""More stock `vllm serve` behind one endpoint than their GPU has room for, and the
requests of a real trace: by FineServe, and beside it by what others do.

On vLLM itself (label vllm), as test_gpu_worker.py. $FINESERVE_TEST_ENGINES says
how many engines (1.7 GiB of host memory each), $FINESERVE_TEST_WAYS which ways,
$FINESERVE_TEST_SECONDS how much of the trace, and $FINESERVE_TEST_JSON where the
figures go.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import tempfile
import time
import unittest
from collections.abc import Iterator
from typing import Any

import crowd
from gpu_machine import BUILD, REAL_GPU, Model, VllmMachine, engine_environment
from machine import stage
from serving_site import Served, ServingSite, before_fsctl_up, served_by_vllm
from sleepers import Servers, Sleepers

ENGINES = int(os.environ.get("FINESERVE_TEST_ENGINES", "4"))
SECONDS = float(os.environ.get("FINESERVE_TEST_SECONDS", "60"))
FROM_S = 400.0  # of the trace: eight models are asked within a minute
SPEED = 0.5  # of the trace: two cores compute for all engines
ROOM_FOR = 3
TRACE = pathlib.Path(
    os.environ.get(
        "FINESERVE_TEST_TRACE",
        pathlib.Path(__file__).parents[3]
        / "shared/data/arena27_prism_vtc_600s.csv.gz",
    )
)
LONGEST = "256"  # tokens of a request
POOL_SLABS, MIB = 24, 1 << 20
WEIGHTS = 48 * MIB
# Measured: what else each vLLM keeps on the GPU, that is, activations and the
# unused part of PyTorch's segments.
SCRATCH = 44 * MIB
CHUNK_TOKENS = 64


@dataclasses.dataclass(frozen=True)
class Heavy(Model):
    """A model with 48 MiB of weights in few layers, which the host computes
    quickly."""

    def sizes(self) -> dict[str, Any]:
        of_a_layer = WEIGHTS // 4 // self.layers
        width = (of_a_layer - 4 * 128 * 256) // (3 * 128)
        return super().sizes() | {"intermediate_size": width // 16 * 16}


# Six formats: 160 to 320 KiB a block of 16 tokens.
MODELS = {
    f"model-{i}": Heavy(layers=5 + i % 6, seed=i) for i in range(ENGINES)
}


@unittest.skipIf(REAL_GPU is not None, "its sizes are the emulated GPU's")
@unittest.skipUnless(TRACE.exists(), f"needs the trace {TRACE}")
class Crowded(VllmMachine):
    pool_slabs = POOL_SLABS

    def setUp(self) -> None:
        super().setUp()
        held = POOL_SLABS * self.slab_bytes + ROOM_FOR * (WEIGHTS + SCRATCH)
        # Each engine and the daemon have a context, which takes a 64th of the
        # GPU.
        contexts = ENGINES + 1
        memory_mib = held * 64 // (64 - contexts) // MIB
        self.environment["EMUCUDA_MEMORY"] = str(memory_mib // 2 * 2 * MIB)
        self.requests = crowd.requests_of(
            TRACE, list(MODELS), SPEED, (FROM_S, FROM_S + SECONDS)
        )

    def served(self, name: str, **engine: Any) -> Served:
        served = served_by_vllm(name, MODELS[name].make(self._models))
        arguments = served.engine["arguments"]
        arguments[arguments.index("--max-model-len") + 1] = LONGEST
        return dataclasses.replace(
            served,
            engine=served.engine | engine,
            model=served.model | {"chunk_tokens": CHUNK_TOKENS},
        )

    @contextlib.contextmanager
    def site(self, **engine: Any) -> Iterator[tuple[ServingSite, int]]:
        """Runs FineServe with these keys for each engine; yields the site and
        the port of its metrics."""
        served = [self.served(name, **engine) for name in MODELS]
        with tempfile.TemporaryDirectory() as folder:
            site = ServingSite(
                pathlib.Path(folder),
                served,
                self.environment,
                before_fsctl_up(
                    engine_environment(self.environment, shim=True, runner=2)
                ),
            )
            try:
                port = stage.free_port()
                site.start_daemons(
                    POOL_SLABS, self.slab_bytes, "--metrics", port
                )
                site.start_proxy()
                site.start_up()
                yield site, port
            finally:
                site.close()

    def answers_of(self, site: ServingSite) -> list[crowd.Outcome]:
        @contextlib.contextmanager
        def proxy(_model: str) -> Iterator[int]:
            yield site.port

        return crowd.answers_to(self.requests, proxy)

    # The ways to serve: each returns its outcomes and its specific figures.

    def fineserve(self) -> tuple[list[crowd.Outcome], dict[str, Any]]:
        began = time.monotonic()
        with self.site(evict="auto") as (site, port):
            site.wait_until_all_serve()
            started = time.monotonic() - began
            away = sum(
                engine["memory"]["evicted_bytes"] > 0
                for engine in site.report("engines")["engines"]
            )
            before = moves(port)
            outcomes = self.answers_of(site)
            after = moves(port)
            print(site.report("store"), site.report("slabs")["counters"])
            if any(outcome.failure for outcome in outcomes):
                print(site.logs(20000), site.report("models"), flush=True)
        return outcomes, {
            "left": after["evicted"] - before["evicted"],
            "came": after["activated"] - before["activated"],
            "start_s": round(started),
            "fit": ENGINES - away,
        }

    def stop_start(self) -> tuple[list[crowd.Outcome], dict[str, Any]]:
        """Serves like llama-swap: an engine stops when the start of another one
        finds no room."""
        with self.site(start="on_request") as (site, _):
            site.wait_for(
                "the proxy listens", lambda: "listening on" in site.log("proxy")
            )
            for name in list(MODELS)[:ROOM_FOR]:
                self.assertEqual(site.complete(name, [1] * 8, 4).status, 200)
            outcomes = self.answers_of(site)
            said = site.log("up")
        starts = sum(said.count(f"{name}: serving") for name in MODELS)
        return outcomes, {"came": starts - ROOM_FOR}

    def plain(self, kind: Any, names: list[str], **more: Any) -> Any:
        engines = [self.served(name) for name in names]
        folder = self.enterContext(tempfile.TemporaryDirectory())
        environment = engine_environment(self.environment, False, 2)
        return kind(
            BUILD / "bin", pathlib.Path(folder), environment, engines, **more
        )

    def share(self) -> tuple[str, ...]:
        """Returns vLLM's flags that give each engine on the GPU an equal share
        of the KV memory."""
        share = POOL_SLABS * self.slab_bytes // ROOM_FOR
        return (
            *("--kv-cache-memory-bytes", str(share)),
            *("--gpu-memory-utilization", "0.05"),
            *("--max-num-batched-tokens", str(CHUNK_TOKENS)),
            *("--max-num-seqs", "32"),
        )

    def sleep(self) -> tuple[list[crowd.Outcome], dict[str, Any]]:
        """Uses vLLM's own sleep, level 1, with a controller that holds requests
        back."""
        began = time.monotonic()
        site = self.plain(Sleepers, list(MODELS), room=ROOM_FOR)
        try:
            site.start_all(*self.share())
            started = time.monotonic() - began
            outcomes = crowd.answers_to(self.requests, site.port_for)
        finally:
            site.close()
        return outcomes, {
            "left": site.sleeps,
            "came": site.wakes,
            "start_s": round(started),
        }

    def static(self) -> tuple[list[crowd.Outcome], dict[str, Any]]:
        """Only the three most requested models have an engine, which stays on
        the GPU."""
        site = self.plain(Servers, list(MODELS)[:ROOM_FOR])
        try:
            for engine in site.engines:
                site.start_one(engine, *self.share())
            return crowd.answers_to(self.requests, site.port_for), {}
        finally:
            site.close()

    def wrong(self, outcomes: list[crowd.Outcome]) -> int:
        of_model = collections.defaultdict(list)
        for outcome in outcomes:
            of_model[outcome.request.model].append(outcome)
        return sum(
            self.reference(MODELS[name]).wrong(
                [outcome.request.prompt for outcome in them if outcome.tokens],
                [outcome.tokens for outcome in them if outcome.tokens],
            )
            for name, them in of_model.items()
        )

    def measure(self, way: str) -> dict[str, Any]:
        outcomes, own = getattr(self, way)()
        found = crowd.summary(outcomes) | {"wrong": self.wrong(outcomes)} | own
        print(
            f"{way}: {found['tokens']} tokens, {found['wrong']} wrong; {found}",
            flush=True,
        )
        failures = collections.Counter(
            outcome.failure for outcome in outcomes if outcome.failure
        )
        print(*failures.most_common(5), sep="\n", flush=True)
        return found

    def test_every_request_of_a_trace_is_answered(self) -> None:
        ways = os.environ.get("FINESERVE_TEST_WAYS", "fineserve").split(",")
        rows: dict[str, dict[str, Any]] = {}
        for way in ways:
            rows[way] = self.measure(way)
            print(crowd.table(rows), flush=True)
            if "FINESERVE_TEST_JSON" in os.environ:
                pathlib.Path(os.environ["FINESERVE_TEST_JSON"]).write_text(
                    json.dumps({"engines": ENGINES, "ways": rows}, indent=1)
                )
        for row in rows.values():
            self.assertEqual(row["wrong"], 0)
        if "fineserve" in rows:
            ours = rows["fineserve"]
            self.assertEqual(ours["answered"], len(self.requests))
            self.assertGreater(ours["left"], 0, "the GPU holds them all")


def moves(port: int) -> dict[str, int]:
    """fineserved's, by their result."""
    page = stage.http_answer(port, "/metrics")[1]
    return {
        line.split('"')[-2]: int(float(line.split()[-1]))
        for line in page.splitlines()
        if line.startswith("fineserve_moves_total{")
    }


if __name__ == "__main__":
    unittest.main()
