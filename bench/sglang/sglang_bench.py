"""Measures what a view costs stock SGLang: steps/s without the shim (plain) and with a
view, in the same run.

On EMULATED devices, whose operators run on the host (design note 0018): a step takes
tens of milliseconds, so the ratio is of steps as long as here. What carries over to a
GPU is the plugin's part of a step, in µs of the scheduler's thread.

Both engines live side by side and take turns on the same prompts, in changing order.
The claim is the median of the rounds' ratios.

one      on one GPU
ranks    --tensor-parallel-size 2
drafts   a draft model, three tokens a step
hicache  --enable-hierarchical-cache
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "sglang"), str(ROOT / "bench")]

import bench_report  # noqa: E402
from bench_report import Report  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = bench_report.parser("sglang", __doc__)
    parser.add_argument(
        "--rounds", type=int, default=9, help="of each part (%(default)s)"
    )
    parser.add_argument(
        "--only",
        choices=("one", "ranks", "drafts", "hicache"),
        help="one part instead of all",
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
from test_sglang_hicache import HICACHE  # noqa: E402
from tiny_models import random_prompts  # noqa: E402

MODEL = WideModel()
REQUESTS, TOKENS = 16, 48  # of a round, and of each
WAYS = ("plain", "view")


class Site(SglangMachine):
    """The machine of one part."""

    def runTest(self) -> None:  # for the constructor of a TestCase
        pass


def measure(
    site: Site, report: Report, part: str, gpus: int = 1, **own: Any
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
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    plugin_us = []
    for number in range(ARGUMENTS.rounds + 1):  # the first one warms up
        for way in WAYS[:: 1 if number % 2 else -1]:
            steps, rate, plugin_ns = round_of(engines[way], number)
            if number > 0:
                rates[way].append(rate)
                if way == "view":
                    plugin_us.append(plugin_ns / 1000 / steps)
    for way in WAYS:
        report.figure(
            f"{part}: steps/s, {way}", statistics.median(rates[way])
        )
    report.figure(
        f"{part}: the plugin's part of a step (µs)",
        statistics.median(plugin_us),
    )
    ratios = [view / plain for plain, view in zip(*rates.values())]
    report.at_least(
        f"{part}: steps/s, view / plain", statistics.median(ratios), 0.97
    )


def round_of(engine: EngineProcess, number: int) -> tuple[int, float, int]:
    """Returns its steps, how many a second, and the ns that leases took."""
    prompts = random_prompts(number, REQUESTS, (5, 100), shared=48)
    before = engine.run("stats")
    answer = engine.run(
        "generate", prompts=prompts, max_tokens=[TOKENS] * REQUESTS
    )
    after = engine.run("stats")
    steps = after["steps"] - before["steps"]
    taken = after["plugin_ns"] - before["plugin_ns"]
    return steps, steps / answer["seconds"], taken


def one(site: Site, report: Report) -> None:
    measure(site, report, "one")


def ranks(site: Site, report: Report) -> None:
    measure(
        site, report, "ranks", 2, model=WideModel(heads=32, seed=11), tp_size=2
    )


def drafts(site: Site, report: Report) -> None:
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


def hicache(site: Site, report: Report) -> None:
    measure(site, report, "hicache", **HICACHE)


def main() -> int:
    report = Report()
    try:
        for part in (one, ranks, drafts, hicache):
            if ARGUMENTS.only not in (None, part.__name__):
                continue
            Site.setUpClass()
            site = Site()
            site.setUp()
            try:
                part(site, report)
            finally:
                site.doCleanups()
    finally:
        Site.doClassCleanups()
    report.write(ARGUMENTS.json, "sglang")
    return 0


if __name__ == "__main__":
    sys.exit(main())
