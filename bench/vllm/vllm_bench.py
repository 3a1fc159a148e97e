"""Measures the costs and gains of FineServe under stock vLLM.

Stock vLLM with its own GPU worker, alone on an EMULATED device: operators run
on the host (scripts/design/0018-stock-vllm.md), so a step takes tens of
milliseconds and tokens/s compare ways to run here, they do not predict a GPU's.
The plugin's part of a step is the same code as on a GPU. On a real GPU
(gpu_check --vllm) `serve` runs a model of a billion parameters in half
precision, with CUDA graphs.

serve  tokens/s, steps/s, TTFT and start of an engine without the shim (plain),
       with the shim and whole slabs, with a view, and without the shim with KV
       that is mapped on demand, as kvcached does. All live side by side and
       take turns on the same prompts, in changing order; the claim is the
       median of the rounds' ratios to plain, which runs twice: one process
       may be faster than its twin for as long as both live.
step   µs that the plugin adds to a step of the scheduler that vLLM's own
       methods do not take, with 1, 32 and 256 running requests, without a
       worker; and what leases took in the engine with a view.
ranks  steps/s of an engine with tensor parallelism over two EMULATED GPUs, without
       the shim (plain, twice) and with a view, as in serve, and µs that leases
       take of a step where the scheduler runs. The claim is about a step as
       long as it is here: a step of a GPU is shorter, and what the plugin and
       the shim add to it is the same, so the µs are what carries over. It is the
       median of the starts (--starts) of each start's median of rounds. Two real
       GPUs compute at once, these two one after the other on a few cores.
       Once more each with KV offloading to the host, sleep mode and experts, and
       experts on data-parallel ranks.
features
       the same on one GPU: with KV offloading, sleep mode and experts.
idle   two engines on a view of a pool that binds; then one, an in-process LLM,
       falls idle and nothing steps it. Tokens/s of the other while both serve
       and after, how long until it has the first and the last slab that it
       gains, slabs asked back per 1,000 tokens; beside it an engine without the
       shim that has half of the pool for itself.

For reference, on another machine, not of this run: with an idle neighbour
kvcached gave 36.3 tokens/s where FineServe, in an earlier version, gave 19.6.
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
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "tests" / "vllm"), str(ROOT / "bench" / "report"), str(HERE)]

import bench_report  # noqa: E402
from bench_report import Report  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = bench_report.parser("vllm", __doc__)
    bench_report.add_parts(
        parser, ("serve", "step", "ranks", "features", "idle"), rounds=5
    )
    parser.add_argument(
        "--starts",
        type=int,
        default=1,
        help="of the engines of each row of `ranks` and `features`, with --rounds "
        "each: processes differ for as long as they live (%(default)s)",
    )
    parser.add_argument(
        "--row", help='one of `ranks` or `features`, such as "ranks, sleep"'
    )
    return parser.parse_args()


# Parsed before vLLM is imported, so that --help works without it.
ARGUMENTS = arguments()
os.environ.setdefault("FINESERVE_BUILD_DIR", str(ROOT / "build/release"))

from gpu_machine import (  # noqa: E402
    MAX_TOKENS,
    REAL_GPU,
    SLAB,
    VERSION,
    VOCABULARY,
    Model,
    VllmEngine,
    VllmMachine,
    engine_environment,
    random_prompts,
)
from test_gpu_experts import EIGHT  # noqa: E402


class Billion(Model):
    """A model of Llama's shape with a billion parameters, whose weights vLLM
    makes up."""

    def make(self, folder: pathlib.Path) -> str:
        from transformers import LlamaConfig

        path = folder / "billion"
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=self.layers,
            num_attention_heads=32,
            num_key_value_heads=8,
            head_dim=64,
            max_position_embeddings=MAX_TOKENS,
            architectures=["LlamaForCausalLM"],
        ).save_pretrained(path)
        return str(path)


if REAL_GPU is None:
    MODEL = Model(layers=4, seed=1)  # 16 blocks of 16 tokens in a slab
    MODEL_ARGUMENTS: dict[str, Any] = {}
    SERVE_TOKENS = 32
    SLAB_BYTES = SLAB
else:
    MODEL = Billion(layers=16, seed=0)  # 32 blocks of 16 tokens in a slab
    MODEL_ARGUMENTS = {"load_format": "dummy", "dtype": "float16"}
    SERVE_TOKENS = 256
    SLAB_BYTES = 8 * SLAB
SERVE_SLABS = 16  # of KV for each engine of `serve`
WAYS = ("plain", "whole", "view", "on_demand", "plain_again")
COMPARED = ("plain", "view", "plain_again")  # by `ranks` and `features`
RANKS = 2
# Number of requests in a round, and of tokens that each request generates.
COMPARED_REQUESTS, COMPARED_TOKENS = 8, 48
FEATURES: dict[str, dict[str, Any]] = {
    "offloading": {"kv_offloading_size": 0.125},  # GiB
    "sleep": {"enable_sleep_mode": True},
    "experts": {"model": EIGHT},
}
# On two GPUs.
OF_RANKS: dict[str, dict[str, Any]] = {
    "ranks": {"tensor_parallel_size": RANKS},
    **{
        f"ranks, {name}": its | {"tensor_parallel_size": RANKS}
        for name, its in FEATURES.items()
    },
    "data-parallel ranks, experts": {
        "model": EIGHT,
        "data_parallel_size": RANKS,
        "enable_expert_parallel": True,
    },
}
# For `idle`: the number of requests of each engine, the lengths of its prompts
# and the number of tokens that it generates. The neighbour's requests end at
# the same time and use half of the pool.
BUSY = (72, (40, 250), 48)
NEIGHBOUR = (6, (150, 150), 160)


class Site(VllmMachine):
    """The machine of one part."""

    slab_bytes = SLAB_BYTES

    def start(
        self,
        way: str,
        slabs: int,
        arguments: dict[str, Any] | None = None,
        **environment: str,
    ) -> VllmEngine:
        """`arguments`: vLLM's, besides; "model" among them replaces MODEL."""
        arguments = {"model": MODEL} | (arguments or {})
        shim = way in ("whole", "view")
        path = engine_environment(self.environment, shim, 1)["PYTHONPATH"]
        environment["PYTHONPATH"] = f"{path}:{HERE}"  # step_probe.py
        environment["HOST_DEVICE_TIME"] = "1"
        if way == "whole":
            environment["FINESERVE_VIEW"] = "0"
        if way == "on_demand":
            environment["PYTHONPATH"] += f":{HERE / 'on_demand'}"
            environment["VLLM_KV_CACHE_LAYOUT"] = "BLNHC"
        fixed = {
            "kv_cache_memory_bytes": slabs * self.slab_bytes,
            "gpu_memory_utilization": 0.1,
        }
        return self.start_vllm(
            arguments.pop("model"),
            view=shim,
            runner=1,
            environment=environment,
            disable_log_stats=False,  # for TTFT
            **({} if way == "view" else fixed),
            **MODEL_ARGUMENTS,
            **arguments,
        )


def serve(site: Site, report: Report) -> None:
    site.pool_slabs = 3 * SERVE_SLABS
    site.start_daemon()
    engines = {}
    for way in WAYS:  # one after another: the machine is each one's alone
        engines[way] = site.start(way, SERVE_SLABS)
        report.figure(f"start, {way} (s)", engines[way].answer()["seconds"])
        engines[way].run("call", module="step_probe", function="install")
    tokens: dict[str, list[float]] = {way: [] for way in WAYS}
    steps: dict[str, list[float]] = {way: [] for way in WAYS}
    ttft: dict[str, list[float]] = {way: [] for way in WAYS}
    plugin_us = []
    for number in range(ARGUMENTS.rounds + 1):  # the first one warms up
        prompts = random_prompts(number, 16, (5, 100), shared=48)
        first = number % len(WAYS)
        for way in WAYS[first:] + WAYS[:first]:
            answer = engines[way].run(
                "generate",
                prompts=prompts,
                max_tokens=[SERVE_TOKENS] * len(prompts),
            )
            taken = take(engines[way])
            if number > 0:
                count = sum(map(len, answer["tokens"]))
                tokens[way].append(count / answer["seconds"])
                steps[way].append(len(taken["steps"]) / answer["seconds"])
                ttft[way] += answer["first_token_s"]
                if way == "view":
                    plugin_us.append(taken["plugin_us"])
    for way in WAYS:
        report.figure(f"tokens/s, {way}", statistics.median(tokens[way]))
        report.figure(f"steps/s, {way}", statistics.median(steps[way]))
        report.figure(
            f"TTFT, {way} (ms)", 1000 * statistics.median(ttft[way])
        )
    report.figure("leases, view, 16 running (µs/step)", min(plugin_us))
    ratio = {
        way: statistics.median(ratios)
        for way, ratios in bench_report.ratios_to_plain(tokens).items()
    }
    for way in ("whole", "view"):
        report.at_least(f"tokens/s, {way} / plain", ratio[way], 0.97)
    for way in ("on_demand", "plain", "plain_again"):
        report.figure(f"tokens/s, {way} / mean of both plain", ratio[way])


def take(engine: VllmEngine) -> dict[str, Any]:
    return engine.run("call", module="step_probe", function="take")


def ranks(site: Site, report: Report) -> None:
    site.environment["EMUCUDA_DEVICES"] = str(RANKS)
    start_pools(site, RANKS)
    compare_rows(site, report, OF_RANKS)


def features(site: Site, report: Report) -> None:
    start_pools(site, 1)
    compare_rows(site, report, FEATURES)


def start_pools(site: Site, gpus: int) -> None:
    site.pool_slabs = 3 * SERVE_SLABS
    for device in range(gpus):
        site.start_daemon(device=device)


@dataclasses.dataclass
class Start:
    """Rates of engines of all ways that lived side by side, by round."""

    steps: dict[str, list[float]]  # by way, steps/s
    plugin_us: list[float] = dataclasses.field(default_factory=list)  # a step

    def ratio(self, way: str) -> float:
        return statistics.median(bench_report.ratios_to_plain(self.steps)[way])


def compare_rows(
    site: Site, report: Report, rows: dict[str, dict[str, Any]]
) -> None:
    """`rows`: by name, arguments of the engines, the same for all ways."""
    for row, its in rows.items():
        if ARGUMENTS.row not in (None, row):
            continue
        starts = []
        for number in range(ARGUMENTS.starts):
            starts.append(compare(site, report, f"{row} {number}", its))
            for way in ("view", "plain"):
                name = f"{row}: start {number}, steps/s, {way} / mean of both plain"
                report.figure(name, starts[-1].ratio(way))
        describe_row(report, row, starts)


def compare(
    site: Site, report: Report, name: str, its: dict[str, Any]
) -> Start:
    files = {way: pathlib.Path(site.folder) / f"{name}-{way}" for way in COMPARED}
    engines = {}
    for way in COMPARED:
        engines[way] = site.start(
            way,
            SERVE_SLABS,
            its,
            STEP_PROBE_FILE=str(files[way]),
        )
        seconds = engines[way].answer()["seconds"]
        report.figure(f"{name}: start, {way} (s)", seconds)
    found = Start({way: [] for way in COMPARED})
    for number in range(ARGUMENTS.rounds + 1):  # the first one warms up
        prompts = random_prompts(number, COMPARED_REQUESTS, (5, 100))
        first = number % len(COMPARED)
        for way in COMPARED[first:] + COMPARED[:first]:
            before = _probed(files[way])
            answer = engines[way].run(
                "generate",
                prompts=prompts,
                max_tokens=[COMPARED_TOKENS] * len(prompts),
            )
            count, ns = (a - b for a, b in zip(_probed(files[way]), before))
            if number > 0:
                found.steps[way].append(count / answer["seconds"])
                if way == "view":
                    found.plugin_us.append(ns / 1000 / count)
    for engine in engines.values():
        engine.kill()
    return found


def describe_row(report: Report, row: str, starts: list[Start]) -> None:
    report.figure(f"{row}: starts", len(starts))
    report.figure(f"{row}: rounds of each", ARGUMENTS.rounds)
    for way in COMPARED:
        rates = [rate for start in starts for rate in start.steps[way]]
        report.figure(f"{row}: steps/s, {way}", statistics.median(rates))
    us = [taken for start in starts for taken in start.plugin_us]
    for name, of in ("median", statistics.median), ("least", min):
        report.figure(f"{row}: leases, view (µs/step), {name}", of(us))
    ratios = [start.ratio("view") for start in starts]
    if len(ratios) > 1:
        quartiles = statistics.quantiles(ratios, n=4)
        for name, value in ("lower", quartiles[0]), ("upper", quartiles[2]):
            report.figure(f"{row}: view / plain, {name} quartile of starts", value)
    report.at_least(
        f"{row}: steps/s, view / plain", statistics.median(ratios), 0.97
    )


def _probed(path: pathlib.Path) -> tuple[int, int]:
    """Returns the number of steps so far, and the ns that leases have taken of
    those steps, of all schedulers of an engine."""
    steps = ns = 0
    for file in path.parent.glob(f"{path.name}.*"):
        if numbers := file.read_text().split()[-2:]:  # not before its first step
            steps += int(numbers[0])
            ns += int(numbers[1])
    return steps, ns


def step(report: Report) -> None:
    import scheduler_steps

    for running, steps in (1, 400), (32, 200), (256, 60):
        found = scheduler_steps.measure(running, steps)
        name = f"{running} running"
        report.figure(f"step, vLLM's own, {name} (µs)", found["vllm"])
        report.figure(f"step, the plugin's part, {name} (µs)", found["plugin"])
        report.figure(f"step, leased / vLLM, {name}", found["ratio"])
        report.at_most(f"the plugin's part, {name} (µs)", found["plugin"], 50)


def tokens_per_s(steps: list[Any], begin: float, end: float) -> float:
    """Returns the rate over the steps in which requests waited, because each of
    those steps uses all the KV that it has."""
    within = [s for s in steps if begin <= s[0] <= end and s[2] > 0]
    if len(within) < 2:
        return 0.0
    return sum(s[1] for s in within[1:]) / (within[-1][0] - within[0][0])


def idle(site: Site, report: Report) -> None:
    site.start_daemon()
    busy = site.start("view", 0)
    neighbour = site.start("view", 0, VLLM_ENABLE_V1_MULTIPROCESSING="0")
    fixed = site.start("plain", site.pool_slabs // 2)
    for engine in (busy, neighbour, fixed):
        engine.answer()
    for engine in (busy, fixed):
        engine.run("call", module="step_probe", function="install")

    def load(
        requests: int, lengths: tuple[int, int], output: int
    ) -> dict[str, Any]:
        prompts = random_prompts(requests, requests, lengths)
        return {"prompts": prompts, "max_tokens": [output] * requests}

    fixed.run("generate", **load(*BUSY))
    alone = take(fixed)["steps"]
    before = site.fsctl("slabs")["counters"]
    neighbour.ask("generate", **load(*NEIGHBOUR))
    busy.ask("generate", **load(*BUSY))
    ended = neighbour.answer()["ended"]
    busy.answer()
    after = site.fsctl("slabs")["counters"]
    steps = take(busy)["steps"]
    describe_idle(report, steps, ended)
    report.figure(
        "idle: tokens/s, half of the pool for good, plain",
        tokens_per_s(alone, 0, float("inf")),
    )
    count = sum(
        requests * output for requests, _, output in (BUSY, NEIGHBOUR)
    )
    asked = after["slabs_asked_back"] - before["slabs_asked_back"]
    report.figure("slabs asked back per 1,000 tokens", 1000 * asked / count)


def describe_idle(report: Report, steps: list[Any], ended: float) -> None:
    held = [s[3] for s in steps if s[0] <= ended]
    report.figure("idle: slabs of the busy engine before", held[-1])
    after = [s for s in steps if s[0] > ended]
    most = max((s[3] for s in after), default=0)
    report.figure("idle: slabs after", most)
    if most > held[-1]:
        first = next(s[0] for s in after if s[3] > held[-1])
        last = next(s[0] for s in after if s[3] == most)
        report.figure("idle: first slab after (ms)", 1000 * (first - ended))
        report.figure("idle: last slab after (ms)", 1000 * (last - ended))
    both = tokens_per_s(steps, 0, ended)
    alone = tokens_per_s(steps, ended, float("inf"))
    report.figure("idle: tokens/s, both busy", both)
    report.figure("idle: tokens/s, the neighbour idle", alone)
    if both and alone:
        report.at_least("idle: neighbour idle / both busy", alone / both, 1.0)


def main() -> int:
    rows = [*FEATURES, *OF_RANKS]
    if ARGUMENTS.row not in (None, *rows):
        print(
            f"scripts/bench vllm: --row is one of {'; '.join(rows)}",
            file=sys.stderr,
        )
        return 2
    report = Report()
    where = "the emulated device" if REAL_GPU is None else f"GPU {REAL_GPU}"
    print(f"vllm {VERSION}, on {where}")
    if ARGUMENTS.only in (None, "step"):
        step(report)
    # Ranks need two GPUs.
    parts = [serve, *([ranks] if REAL_GPU is None else []), features, idle]
    bench_report.run_parts(Site, report, parts, ARGUMENTS.only)
    report.write(ARGUMENTS.json, "vllm", vllm=VERSION)
    return 0


if __name__ == "__main__":
    sys.exit(main())
