"""A model with a stock `vllm serve` on each of two GPUs, each GPU with its daemon,
behind one proxy.

As test_gpu_serving.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import pathlib
import re
import unittest

from gpu_machine import REAL_GPU, Model, VllmMachine, engine_environment
from gpu_machine import random_prompts
from machine import stage
from serving_site import RECOVERY_S, ServingSite, before_fsctl_up
from serving_site import served_by_vllm
from tiny_models import text_of, tokens_of

MODEL = Model(layers=4, seed=1)
NAME = "tiny"
REPLICAS = [f"{NAME}-0", f"{NAME}-1"]  # each on the GPU of its number
MAX_BATCH = 4  # of each: less than what is sent at once
PROMPTS = 24
TOKENS = 12  # of each answer
LONG = 400  # tokens: these requests fill an engine for as long as it takes


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class Replicas(VllmMachine):
    device_memory = 512 << 20

    def setUp(self) -> None:
        super().setUp()
        self.environment["EMUCUDA_DEVICES"] = str(len(REPLICAS))
        path = MODEL.make(self._models)
        self.site = ServingSite(
            pathlib.Path(self.folder),
            [
                dataclasses.replace(
                    served_by_vllm(name, path),
                    replica_of=NAME,
                    devices=(device,),
                    model={
                        "slo_ttft_ms": 120000,
                        "chunk_tokens": 256,
                        "max_batch": MAX_BATCH,
                    },
                )
                for device, name in enumerate(REPLICAS)
            ],
            self.environment,
            before_fsctl_up(
                engine_environment(self.environment, shim=True, runner=2)
            ),
        )
        self.addCleanup(self.site.close)
        self.site.start_all(self.pool_slabs, self.slab_bytes)

    def test_two_engines_serve_as_one(self) -> None:
        """Runs all steps after a single start, because a start takes a
        minute."""
        for step in (
            self.each_holds_slabs_of_its_gpu,
            self.chats_are_answered,
            self.responses_are_answered,
            self.a_request_goes_to_the_one_that_is_free,
            self.none_was_refused,
        ):
            print("--", step.__name__, flush=True)
            with self.subTest(step.__name__):
                step()

    def each_holds_slabs_of_its_gpu(self) -> None:
        for gpu, name in zip(self.site.gpus, REPLICAS):
            engines = self.site.report("--gpu", gpu, "engines")["engines"]
            self.assertEqual([engine["name"] for engine in engines], [name])

    def chats_are_answered(self) -> None:
        self._bench("openai-chat", seed=1)

    def responses_are_answered(self) -> None:
        self._bench("openai-responses", seed=2)

    def _bench(self, backend: str, seed: int) -> None:
        """Sends all prompts at once through `vllm bench serve`. Both replicas
        must answer some of them, and every token must be right."""
        before = self._admitted()
        prompts = random_prompts(seed, PROMPTS, (40, 200), shared=64)
        dataset = self.site.folder / f"{backend}-prompts.json"
        dataset.write_text(
            json.dumps([
                {"conversations": [{"value": text_of(prompt)}, {"value": ""}]}
                for prompt in prompts
            ])
        )
        bench = self.site.start_bench(
            *(NAME, f"{backend}.json", backend, "--save-detailed"),
            *("--dataset-name", "sharegpt", "--dataset-path", str(dataset)),
            *("--sharegpt-output-len", str(TOKENS), "--disable-shuffle"),
            *("--num-prompts", str(PROMPTS), "--temperature", "0"),
        )
        said, _ = bench.communicate(timeout=RECOVERY_S)
        self.assertEqual(bench.returncode, 0, said[-3000:])
        result = json.loads(
            (self.site.folder / f"{backend}.json").read_text()
        )
        self.assertEqual(result["completed"], PROMPTS, result["errors"])
        answers = [tokens_of(text) for text in result["generated_texts"]]
        self.assertEqual({len(answer) for answer in answers}, {TOKENS})
        self._judge(prompts, answers)
        admitted = [
            after - earlier
            for after, earlier in zip(self._admitted(), before)
        ]
        print(backend, "admitted", admitted, flush=True)
        # A request that both daemons admit at the same time counts for both.
        self.assertGreaterEqual(sum(admitted), PROMPTS)
        self.assertGreaterEqual(min(admitted), PROMPTS // 4)

    def _judge(
        self, prompts: list[list[int]], answers: list[list[int]]
    ) -> None:
        wrong = self.reference(MODEL).wrong(prompts, answers)
        print(f"{sum(map(len, answers))} tokens, {wrong} wrong", flush=True)
        self.assertEqual(wrong, 0)

    def a_request_goes_to_the_one_that_is_free(self) -> None:
        """While the first replica is full, the second one answers."""
        long = random_prompts(3, MAX_BATCH, (20, 40))
        short = random_prompts(4, 4, (20, 40))
        drain = ("--gpu", self.site.gpus[1], "drain", REPLICAS[1])
        with concurrent.futures.ThreadPoolExecutor(1) as client:
            self.site.report(*drain)
            asked = client.submit(self.site.complete_all, NAME, long, LONG)
            self.assertTrue(stage.eventually(self._first_is_full, RECOVERY_S))
            self.site.report(*drain, "--undo")
            before = self._admitted()[0]
            answered = []
            for prompt in short:
                answered.append(self.site.complete(NAME, prompt, 4))
                if not self._first_is_full():
                    answered.pop()  # It may be the first that answered.
                    break
                self.assertEqual(self._admitted()[0], before)
            answers = asked.result()
        print(len(answered), "answered beside it", flush=True)
        self.assertGreater(len(answered), 0)
        for answer in answers + answered:
            self.assertEqual(answer.status, 200, answer.body)
        self._judge(
            long + short[: len(answered)],
            [answer.tokens for answer in answers + answered],
        )

    def _first_is_full(self) -> bool:
        """True if the first replica runs as many requests as it may."""
        (engine,) = self.site.models()[0]["engines"]
        return engine["running"] == MAX_BATCH

    def none_was_refused(self) -> None:
        """Checks that neither the daemons, which decided on every request, nor
        the proxy refused one."""
        for model in self.site.models():
            print(model, flush=True)
            self.assertEqual(sum(model["rejected"].values()), 0)
        metrics = self.site.metrics()
        # vllm bench serve also asks for /metrics, which belongs to no model.
        of_model = rf'fineserve_requests_total{{model="{NAME}",status="(\d+)"'
        self.assertEqual(set(re.findall(of_model, metrics)), {"200"})
        decide = re.findall(r"fineserve_daemon_decides{.*} (\S+)", metrics)
        self.assertEqual(decide, ["1"] * len(REPLICAS))
        self.assertNotRegex(metrics, r"fineserve_unscheduled_total{.*} [^0]")

    def _admitted(self) -> list[int]:
        """Returns the number of requests that each GPU's daemon admitted, in
        the order of REPLICAS."""
        return [model["admitted"] for model in self.site.models()]
