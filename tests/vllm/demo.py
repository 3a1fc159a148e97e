"""The demo of `scripts/demo --vllm`: two stock `vllm serve` share one KV pool.

    demo.py FOLDER    on the emulated GPU of the environment (EMUCUDA_DIR)

Exits with 0 if every check held.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import time

from gpu_machine import (
    BUILD,
    HERE,
    LIBRARY,
    POOL_SLABS,
    SLAB,
    VERSION,
    Model,
    Reference,
    host_device_build,
    random_prompts,
)
from machine import stage
from serving_site import site_of

# A block of 16 tokens takes 128 KiB of the large model and 96 KiB of the small
# one.
MODELS = {"large": Model(layers=4, seed=1), "small": Model(layers=3, seed=2)}
KILLED, OTHER = MODELS
TRACE = HERE.parents[1] / "tools/lab/workload/arena27_excerpt.csv"
TRACE_S = 134
SPEED = 2.2
# Sends only some of the requests, with their lengths cut, because the host runs
# the operators of both engines.
CUT = ("--scale", "0.35", "--most-input", "400", "--most-output", "8")
TABLE_S = 4  # between the lines of the table
KILL_AT_S = 26  # arena-10 takes over
PROMPTS = 24  # of both, more KV than the pool has
ANSWER_TOKENS = 24


class Failed(Exception):
    """A check that did not hold."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Failed(what)


def step(text: str) -> None:
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}== {text}{plain}", flush=True)


def note(text: str) -> None:
    print(f"   {text}", flush=True)


def folded(text: str) -> str:
    return textwrap.fill(
        text, 100, subsequent_indent=" " * 7, break_on_hyphens=False
    )


class Demo:
    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        step("two tiny models of random weights, two formats of KV")
        host_device_build.build(LIBRARY)
        device = {
            name: os.environ[name]
            for name in (
                "FINESERVE_RUNTIME_DIR",
                "EMUCUDA_DIR",
                "EMUCUDA_MEMORY",
            )
        }
        logs = folder / "logs"
        logs.mkdir()
        self.site = site_of(MODELS, folder, logs, device)
        for name, model in MODELS.items():
            note(
                f"{name}: {model.layers} layers, FP32, "
                f"{model.block_bytes >> 10} KiB of KV per block of 16 tokens"
            )
        self._load: dict[str, int] = {}
        self._moved = 0  # slabs

    def run(self) -> None:
        try:
            self.start()
            self.serve_the_trace()
            self.check_tokens()
            self.end()
        except (Failed, AssertionError):
            print(self.site.logs(1500), file=sys.stderr)
            raise
        finally:
            self.site.close()

    def start(self) -> None:
        step(
            f"fineserved, fineserve-proxy and two stock vllm serve {VERSION}, "
            "started by fsctl up from this file"
        )
        for line in self.site.fleet.read_text().splitlines():
            note(folded(line))
        note("(the operators run on the host: that is what most flags say)")
        began = time.monotonic()
        self.site.start_all(POOL_SLABS, SLAB)
        note(f"both serve after {time.monotonic() - began:.0f} s")
        step("what each engine chose; none of its flags is about FineServe")
        for name in MODELS:
            chose = re.findall(
                r"FineServe: (the KV cache is .*)", self.site.log(name)
            )
            check(bool(chose), f"{name} has no view")
            note(folded(f"{name}: {chose[-1]}"))

    # The trace.

    def serve_the_trace(self) -> None:
        seconds = TRACE_S / SPEED
        step(
            f"{TRACE_S} s of a real trace in {seconds:.0f} s, a kill -9 in the "
            "middle (tools/lab/workload/excerpts.md)"
        )
        note("slabs of each engine while it runs:")
        print("   %4s %8s %8s" % ("s", *MODELS), flush=True)
        report = self._folder / "load.json"
        load = subprocess.Popen(
            [BUILD / "bin/loadgen", "--trace", TRACE, "--speed", str(SPEED)]
            + ["--url", f"http://127.0.0.1:{self.site.port}"]
            + ["--seconds", "200", "--json", report, "--quiet"]
            + ["--map", f"arena-0={KILLED}", "--map", f"arena-2={KILLED}"]
            + ["--map", f"arena-10={OTHER}"]
            + [*CUT, "--slo-ttft-ms", "60000", "--limit", "60"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            most = self._watch(load)
            said, _ = load.communicate()
        finally:
            load.kill()
        print(re.sub(r"(?m)^(?=.)", "   ", said), flush=True)
        check(load.returncode == 0, "the load was not answered")
        self._judge(json.loads(report.read_text()), most)

    def _watch(self, load: subprocess.Popen[str]) -> dict[str, int]:
        """Prints how many slabs each engine holds, and kills one engine.
        Returns the most that each has held."""
        began = time.monotonic()
        most = dict.fromkeys(MODELS, 0)
        killed = False
        while load.poll() is None:
            now = time.monotonic() - began
            held = self.site.slabs_of()
            print(
                f"   {now:4.0f}"
                + "".join(f" {held.get(name, 0):8}" for name in MODELS),
                flush=True,
            )
            for name in MODELS:
                most[name] = max(most[name], held.get(name, 0))
            if now > KILL_AT_S and not killed:
                self._kill()
                killed = True
            stage.eventually(lambda: load.poll() is not None, TABLE_S)
        check(killed, "the load ended before the kill")
        return most

    def _kill(self) -> None:
        (core,) = self.site.pids(KILLED)
        os.kill(core, signal.SIGKILL)
        note(f"     kill -9 {core}, the EngineCore of {KILLED}")

    def _judge(self, report: dict, most: dict[str, int]) -> None:
        for name in MODELS:
            load = report["models"][name]
            self._load[name] = load["done"]
            note(
                f"{name}: {load['done']} of {load['requests']} answered, "
                f"most slabs {most[name]}"
            )
        other = report["models"][OTHER]
        check(
            other["done"] == other["requests"],
            f"{OTHER} answered {other['done']} of {other['requests']}: "
            f"{report['errors']}",
        )
        check(self._load[KILLED] > 0, f"{KILLED} answered nothing")
        if KILLED not in self.site.serving():
            note(f"{KILLED} is being started again")
        self.site.wait_until_it_serves(KILLED, kills=1)
        log = (self.site.folder / "up.log").read_text()
        for line in log.splitlines():
            note(line)
        check(log.count(f"{KILLED}: serving") == 2, "it was not started again")

    # Tokens.

    def check_tokens(self) -> None:
        step(
            f"{PROMPTS} greedy completions of each model at once, compared "
            "with transformers"
        )
        for seed, (name, model) in enumerate(MODELS.items()):
            prompts = random_prompts(seed, PROMPTS, (40, 200), shared=64)
            answers = self.site.complete_all(name, prompts, ANSWER_TOKENS)
            for answer in answers:
                check(answer.status == 200, f"{name}: {answer.body}")
            tokens = [answer.tokens for answer in answers]
            wrong = Reference(model.make(self._folder)).wrong(prompts, tokens)
            count = sum(map(len, tokens))
            note(f"{name}: {count} tokens, {wrong} wrong")
            check(count == PROMPTS * ANSWER_TOKENS, f"{name}: tokens missing")
            check(wrong == 0, f"{name}: {wrong} wrong tokens")
        self._moved = self.site.report("slabs")["counters"]["slabs_returned"]
        check(self._moved > 0, "no slab was given back")
        note(f"slabs now: {self.site.slabs_of()}")

    def end(self) -> None:
        step("all processes end")
        for name, what in (("up", "fsctl up"), ("proxy", "fineserve-proxy")):
            check(self.site.stop_named(name) == 0, f"{what} did not end cleanly")
        check(
            stage.eventually(lambda: self._free() == POOL_SLABS, 60),
            f"{self._free()} of {POOL_SLABS} slabs are free",
        )
        note(f"all {POOL_SLABS} slabs are free again, each filled with zeros")
        check(self.site.stop_named("daemon") == 0, "fineserved did not end cleanly")
        step("summary")
        note(f"engines       2 stock vllm serve {VERSION}")
        note("settings      only a name and an SLO for each model")
        note(f"kill -9       1 EngineCore; {OTHER} answered every request")
        note(f"moved         {self._moved} slabs, for the other engine")
        note("tokens        every one as transformers chooses it")
        note("all held")

    def _free(self) -> int:
        return self.site.report("slabs")["states"]["free"]["slabs"]


def main() -> int:
    try:
        Demo(pathlib.Path(sys.argv[1])).run()
    except (Failed, AssertionError) as failure:
        print(f"demo: FAILED: {str(failure).splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # Makes a signal end the program as an exception does, so that nothing is
    # left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
