"""A stock SGLang and a stock vLLM behind one fineserve-proxy, on one pool, while
requests of a real trace come (label sglang).

Run by the Python of vLLM's environment, with $FINESERVE_SGLANG_PYTHON.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import time
import unittest

import sglang_machine
from sglang_machine import SLAB, WideModel  # sets the path, too
import real_trace
from gpu_machine import VllmMachine, engine_environment
from serving_site import Answer, Served, ServingSite, before_fsctl_up
from real_trace import Request
from serving_site import served_by_vllm
from tiny_models import Model

# As many tokens in a slab.
MODELS = {"sglang": WideModel(), "vllm": Model(layers=8, seed=2)}
# Engines that serve the trace's models; model 10 takes over from model 0.
ENGINE_OF = {"arena-2": "sglang", "arena-0": "vllm", "arena-10": "vllm"}
TRACE = sglang_machine.HERE.parents[1] / "tools/lab/workload/arena27_excerpt.csv"
REQUESTS = 100
SPEED = 8.0  # more at a time than the pool has room for
# Limits within which the host can compute for two engines.
MOST_INPUT, MOST_OUTPUT = 400, 12


def requests() -> list[Request]:
    """Returns requests with the trace's own times and models, its lengths cut,
    and random tokens."""
    rows = real_trace.rows_of(TRACE)[:REQUESTS]
    return real_trace.requests_of(
        rows, ENGINE_OF, SPEED, MOST_INPUT, MOST_OUTPUT
    )


def served_by_sglang(name: str, path: str, *more: str) -> Served:
    """Returns an engine that the fleet file starts by a command instead of by
    `engine`. `more`: further flags."""
    flags = [
        part
        for argument, value in sglang_machine.ARGUMENTS.items()
        for part in [f"--{argument.replace('_', '-')}", value]
        if part is not True
    ]
    command = [
        # The library is built for the PyTorch of SGLang's environment, not of
        # vLLM's.
        *("env", f"HOST_DEVICE_LIBRARY={sglang_machine.library()}"),
        *(str(sglang_machine.PYTHON), "-m", "sglang.launch_server"),
        *("--model-path", path, "--page-size", "16", *map(str, flags)),
        *("--served-model-name", name, *more),
    ]
    return Served(name, path, engine={"command": command})


def environment_of_both(device: dict[str, str]) -> dict[str, str]:
    """Returns the environment of `fsctl up` on the machine that `device`
    describes."""
    vllms = engine_environment(device, shim=True, runner=2)
    sglangs = sglang_machine.engine_environment(device, True)
    paths = [e["PYTHONPATH"] for e in (vllms, sglangs)]
    return before_fsctl_up(sglangs | vllms | {"PYTHONPATH": ":".join(paths)})


class OneProxy(VllmMachine):
    slab_bytes = SLAB
    pool_slabs = 7

    def setUp(self) -> None:
        super().setUp()
        path_of = {
            name: model.make(self._models) for name, model in MODELS.items()
        }
        self.site = ServingSite(
            pathlib.Path(self.folder),
            [
                served_by_sglang("sglang", path_of["sglang"]),
                served_by_vllm("vllm", path_of["vllm"]),
            ],
            self.environment,
            environment_of_both(self.environment),
        )
        self.addCleanup(self.site.close)
        self.site.start_all(self.pool_slabs, self.slab_bytes, "--planes", "4")

    def ask(self, request: Request, began: float) -> Answer:
        time.sleep(max(0.0, began + request.at_s - time.monotonic()))
        return self.site.complete(
            request.model, request.prompt, request.output_tokens
        )

    def serve(self, asked: list[Request]) -> list[Answer]:
        """Returns the answers, each of which must succeed and have the
        requested length."""
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as clients:
            answers = list(
                clients.map(lambda request: self.ask(request, began), asked)
            )
        for request, answer in zip(asked, answers):
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual(len(answer.tokens), request.output_tokens)
        return answers

    def test_every_token_of_a_real_trace_is_right(self) -> None:
        engines = self.site.report("engines")["engines"]
        self.assertEqual(
            {engine["name"] for engine in engines if engine["view"]},
            set(MODELS),
        )
        asked = requests()
        answers = self.serve(asked)
        for name, model in MODELS.items():
            of_engine = [i for i, a in enumerate(asked) if a.model == name]
            tokens = [answers[i].tokens for i in of_engine]
            wrong = self.reference(model).wrong(
                [asked[i].prompt for i in of_engine], tokens
            )
            print(
                f"{name}: {len(of_engine)} requests, "
                f"{sum(map(len, tokens))} tokens, {wrong} wrong",
                flush=True,
            )
            self.assertEqual(wrong, 0)
        counters = self.site.report("slabs")["counters"]
        print(counters, self.site.slabs_of(), flush=True)
        self.assertGreater(counters["slabs_returned"], 0)
