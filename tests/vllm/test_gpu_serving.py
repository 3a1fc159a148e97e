"""The whole product with stock `vllm serve`: two models behind one endpoint,
started from a fleet file by `fsctl up`, with no flag set for FineServe.

On vLLM itself (label vllm), as test_gpu_worker.py.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import subprocess
import threading
import unittest

from gpu_machine import BUILD, Model, VllmMachine, kill_9, random_prompts
from serving_site import RECOVERY_S, Answer, site_of

MODELS = {
    "large": Model(layers=4, seed=1),  # 128 KiB a block
    "small": Model(layers=3, seed=2),  # 96 KiB a block
}


class ServingTest(VllmMachine):
    def setUp(self) -> None:
        super().setUp()
        self.site = site_of(
            MODELS, self._models, pathlib.Path(self.folder), self.environment
        )
        self.addCleanup(self.site.close)
        self.site.start_all(self.pool_slabs, self.slab_bytes)

    def ask(
        self, name: str, seed: int, requests: int, max_tokens: int = 24
    ) -> tuple[int, list[Answer]]:
        """Sends the requests at once and checks that each is answered. Returns
        the number of wrong tokens, and the answers."""
        prompts = random_prompts(seed, requests, (40, 200), shared=64)
        answers = self.site.complete_all(name, prompts, max_tokens)
        for answer in answers:
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual(len(answer.tokens), max_tokens)
        wrong = self.reference(MODELS[name]).wrong(
            prompts, [answer.tokens for answer in answers]
        )
        print(f"{name}: {requests} requests, {wrong} wrong tokens", flush=True)
        return wrong, answers

    def test_the_whole_product(self) -> None:
        """Runs all steps after a single start, because a start takes a
        minute."""
        for step in (
            self.engines_say_what_they_chose,
            self.slabs_move_while_both_serve,
            self.vllm_bench_serve_is_answered,
            self.its_steps_are_measured,
            self.an_engine_core_dies,
            self.an_api_server_dies,
            self.the_daemon_dies,
        ):
            print("--", step.__name__, flush=True)
            with self.subTest(step.__name__):
                step()

    def engines_say_what_they_chose(self) -> None:
        for name in MODELS:
            self.assertRegex(
                self.site.log(name),
                r"FineServe: the KV cache is a view of 16 slabs .*layout BL",
            )

    def slabs_move_while_both_serve(self) -> None:
        wrong = {
            name: self.ask(name, seed, 24)[0]
            for seed, name in enumerate(MODELS)
        }
        self.assertGreater(self.site.slabs_of()["small"], 8)
        threads = [
            threading.Thread(
                target=lambda name=name, seed=seed: wrong.update(
                    {name: wrong[name] + self.ask(name, seed, 32)[0]}
                )
            )
            for seed, name in enumerate(MODELS, start=10)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, dict.fromkeys(MODELS, 0))
        counters = self.site.report("slabs")["counters"]
        print(counters, flush=True)
        self.assertGreater(counters["slabs_returned"], 8)

    def vllm_bench_serve_is_answered(self) -> None:
        results = {}
        running = [
            (
                name,
                self.site.start_bench(
                    *(name, f"bench-{name}.json", "openai"),
                    *("--dataset-name", "random", "--request-rate", "4"),
                    *("--random-input-len", "80", "--random-output-len", "16"),
                    *("--num-prompts", "16"),
                ),
            )
            for name in MODELS
        ]
        for name, bench in running:
            said, _ = bench.communicate(timeout=RECOVERY_S)
            self.assertEqual(bench.returncode, 0, said[-3000:])
            result = pathlib.Path(self.folder, f"bench-{name}.json")
            results[name] = json.loads(result.read_text())
        for name, result in results.items():
            print(
                name,
                {
                    key: result[key]
                    for key in (
                        "completed",
                        "failed",
                        "output_throughput",
                        "mean_ttft_ms",
                        "mean_tpot_ms",
                    )
                    if key in result
                },
                flush=True,
            )
            self.assertEqual(result["completed"], 16)
        for model in self.site.report("models")["models"]:
            print({k: v for k, v in model.items() if k != "engines"})

    def its_steps_are_measured(self) -> None:
        """Runs `fsctl profile` on a stock server; a fleet file must accept the
        profile that it writes."""
        output = pathlib.Path(self.folder, "small.toml")
        for _ in range(3):  # The cost of a token is lost in others' noise.
            found = self.site.report(
                *("profile", self.site.url_of["small"], "--output", str(output)),
                *("--batches", "1,4", "--prompts", "32,128", "--budget", "60"),
                patience_s=RECOVERY_S,
            )
            if found["profile"]["per_token_us"] > 0:
                break
        print(found["profile"], found["prefill_error"], found["warnings"])
        self.assertEqual(found["model"], "small")
        self.assertEqual(
            [
                (p["batch"], round(p["prompt_tokens"] / 32))
                for p in found["points"]
            ],
            [(1, 1), (1, 4), (4, 1), (4, 4)],
        )
        self.assertGreater(found["profile"]["base_us"], 0)
        self.assertGreater(found["profile"]["per_token_us"], 0)
        fleet = pathlib.Path(self.folder, "measured.toml")
        fleet.write_text(
            '[[model]]\nname = "small"\nslo_ttft_ms = 60000\n'
            f'profile = "{output}"\n'
            '[[engine]]\nname = "small"\nmodel = "small"\n'
            f'url = "{self.site.url_of["small"]}"\n'
        )
        # The check runs on a separate device, because a daemon already serves
        # this one.
        apart = {
            name: str(pathlib.Path(self.folder, "apart"))
            for name in ("EMUCUDA_DIR", "FINESERVE_RUNTIME_DIR")
        }
        os.mkdir(apart["EMUCUDA_DIR"], 0o700)
        checked = subprocess.run(
            [BUILD / "bin/fineserved", "--gpu", "emulated", "--pool", "64MiB"]
            + ["--fleet", fleet, "--dry-run"],
            env=os.environ | self.environment | apart,
            capture_output=True,
            text=True,
        )
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def an_engine_core_dies(self) -> None:
        """The neighbour is not disturbed; the killed engine is started again
        and serves."""
        (core,) = self.site.pids("large")
        self._kill_while_the_other_serves(core)
        self._recovers("large")

    def an_api_server_dies(self) -> None:
        (core,) = self.site.pids("large")
        self._kill_while_the_other_serves(parent_of(core))
        self._recovers("large")

    def _kill_while_the_other_serves(self, pid: int) -> None:
        with concurrent.futures.ThreadPoolExecutor(1) as client:
            asked = client.submit(self.ask, "small", pid, 16)
            kill_9(pid)
            self.assertEqual(asked.result()[0], 0)

    def _recovers(self, name: str) -> None:
        self.site.wait_until_it_serves_again(name)
        self.assertEqual(self.ask(name, 5, 8)[0], 0)

    def the_daemon_dies(self) -> None:
        """The engines keep the slabs that they hold, and the proxy lets
        requests through."""
        with concurrent.futures.ThreadPoolExecutor(2) as clients:
            asked = [clients.submit(self.ask, name, 77, 8) for name in MODELS]
            self.site.kill("daemon")
            for answer in asked:
                self.assertEqual(answer.result()[0], 0)
        for name in MODELS:
            self.assertEqual(self.ask(name, 78, 4)[0], 0)


def parent_of(pid: int) -> int:
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rsplit(")", 1)[1].split()[1])
