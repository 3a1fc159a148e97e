"""Measures what a view costs stock SGLang: tokens/s and steps/s without the shim (plain,
twice, since one process may be faster than its twin) and with a view, in the same run.

On EMULATED devices, whose operators run on the host (design note 0018): a step takes
tens of milliseconds, so the ratio is of steps as long as here. What carries over to a
GPU is the plugin's part of a step, in µs of the scheduler's thread.

The engines live side by side and take turns on the same prompts, in changing order.
The claim is the median of the rounds' ratios to plain, of tokens/s: where requests are
let in later, because slabs must come first, steps are more and shorter. On a machine that
has other work the ratio of what the first scheduler's process computes for a token, its
emulated device included, says more.

one      on one GPU
ranks    --tensor-parallel-size 2
stages   --pipeline-parallel-size 2 (SGLang 0.5.23)
fp8      KV in FP8
latents  DeepSeek V3 without experts
windows  Gemma 4, with a pool of its own for windows (SGLang 0.5.23)
states   LFM 2, with states beside attention
drafts   a draft model, three tokens a step
hicache  --enable-hierarchical-cache
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import statistics
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "sglang"), str(ROOT / "bench" / "report")]

import bench_report  # noqa: E402
from bench_report import Report  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = bench_report.parser("sglang", __doc__)
    bench_report.add_parts(
        parser,
        (
            "one",
            "ranks",
            "stages",
            "fp8",
            "latents",
            "windows",
            "states",
            "drafts",
            "hicache",
        ),
        rounds=9,
    )
    return parser.parse_args()


# Parsed before SGLang is imported, so that --help works without it.
ARGUMENTS = arguments()
os.environ.setdefault("FINESERVE_BUILD_DIR", str(ROOT / "build/release"))

from sglang_machine import (  # noqa: E402
    EngineProcess,
    SglangMachine,
    WideModel,
)
from test_sglang_drafts import DRAFTERS, STEPS, TRADERS  # noqa: E402
from test_sglang_formats import FP8, FP8_MODEL, LATENT  # noqa: E402
from test_sglang_hicache import HICACHE  # noqa: E402
from test_sglang_ranks import WIDE  # noqa: E402
from test_sglang_states import EXACT, StatesModel  # noqa: E402
from test_sglang_windows import BACKEND, WindowsModel  # noqa: E402
from tiny_models import random_prompts  # noqa: E402

MODEL = WideModel()
REQUESTS, TOKENS = 16, 48  # of a round, and of each
WAYS = ("plain", "view", "plain_again")


class Site(SglangMachine):
    device_memory = 4 << 30  # for three engines


def measure(
    site: SglangMachine, report: Report, part: str, gpus: int = 1, **own: Any
) -> None:
    site.environment["EMUCUDA_DEVICES"] = str(gpus)
    for device in range(gpus):
        site.start_daemon(device=device)
    model = own.pop("model", MODEL)
    engines = {
        way: site.start_sglang(
            model,
            view=way == "view",
            environment={"HOST_DEVICE_TIME": "1"},
            sleep_on_idle=True,  # else one takes a core from the other
            **own,
        )
        for way in WAYS
    }
    for way in WAYS:
        seconds = engines[way].answer()["seconds"]
        report.figure(f"{part}: start, {way} (s)", seconds)
    rounds: dict[str, list[Round]] = {way: [] for way in WAYS}
    for number in range(ARGUMENTS.rounds + 1):
        first = number % len(WAYS)
        for way in WAYS[first:] + WAYS[:first]:
            found = serve(engines[way], number)
            if number > 0:  # the first one warms up
                rounds[way].append(found)
    describe(report, part, rounds)


@dataclasses.dataclass(frozen=True)
class Round:
    steps: int
    seconds: float
    plugin_us: float  # of all steps
    cpu_s: float

    @property
    def tokens_per_s(self) -> float:
        return REQUESTS * TOKENS / self.seconds


def serve(engine: EngineProcess, number: int) -> Round:
    prompts = random_prompts(number, REQUESTS, (5, 100), shared=48)
    before = engine.run("stats")
    answer = engine.run(
        "generate", prompts=prompts, max_tokens=[TOKENS] * REQUESTS
    )
    after = engine.run("stats")
    return Round(
        after["steps"] - before["steps"],
        answer["seconds"],
        (after["plugin_ns"] - before["plugin_ns"]) / 1000,
        after["cpu_s"] - before["cpu_s"],
    )


def describe(
    report: Report, part: str, rounds: dict[str, list[Round]]
) -> None:
    for way, its in rounds.items():
        tokens = statistics.median(a.tokens_per_s for a in its)
        steps = statistics.median(a.steps / a.seconds for a in its)
        report.figure(f"{part}: tokens/s, {way}", tokens)
        report.figure(f"{part}: steps/s, {way}", steps)
        report.figure(
            f"{part}: steps, {way}", statistics.median(a.steps for a in its)
        )
    report.figure(
        f"{part}: the plugin's part of a step (µs)",
        statistics.median(a.plugin_us / a.steps for a in rounds["view"]),
    )
    for name, rate_of in (
        ("tokens a CPU second", lambda its: 1 / its.cpu_s),
        ("tokens/s", lambda its: its.tokens_per_s),
    ):
        ratios = bench_report.ratios_to_plain(
            {way: list(map(rate_of, its)) for way, its in rounds.items()}
        )
        for way in WAYS[1:]:
            report.figure(
                f"{part}: {name}, {way} / mean of both plain",
                statistics.median(ratios[way]),
            )
    report.at_least(
        f"{part}: tokens/s, view / plain", statistics.median(ratios["view"]), 0.97
    )


def one(site: SglangMachine, report: Report) -> None:
    measure(site, report, "one")


def ranks(site: SglangMachine, report: Report) -> None:
    measure(site, report, "ranks", 2, model=WIDE, tp_size=2)


def stages(site: SglangMachine, report: Report) -> None:
    measure(site, report, "stages", 2, model=WIDE, pp_size=2)


def fp8(site: SglangMachine, report: Report) -> None:
    # The first one that has FP8.
    site.environment["EMUCUDA_COMPUTE_CAPABILITY"] = "89"
    measure(site, report, "fp8", model=FP8_MODEL, **FP8)


def latents(site: SglangMachine, report: Report) -> None:
    measure(site, report, "latents", model=LATENT)


def windows(site: SglangMachine, report: Report) -> None:
    measure(site, report, "windows", model=WindowsModel(), **BACKEND)


def states(site: SglangMachine, report: Report) -> None:
    site.environment |= EXACT  # the emulated device cannot round them
    measure(site, report, "states", model=StatesModel())


def drafts(site: SglangMachine, report: Report) -> None:
    measure(
        site,
        report,
        "drafts",
        model=TRADERS[0],
        speculative_algorithm="STANDALONE",
        speculative_draft_model_path=DRAFTERS["STANDALONE"].make(site._models),
        speculative_num_steps=STEPS,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=STEPS + 1,
    )


def hicache(site: SglangMachine, report: Report) -> None:
    measure(site, report, "hicache", **HICACHE)


def main() -> int:
    report = Report()
    parts = (
        one,
        ranks,
        stages,
        fp8,
        latents,
        windows,
        states,
        drafts,
        hicache,
    )
    bench_report.run_parts(Site, report, parts, ARGUMENTS.only)
    report.write(ARGUMENTS.json, "sglang")
    return 0


if __name__ == "__main__":
    sys.exit(main())
