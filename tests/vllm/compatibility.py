#!/usr/bin/env python3
"""Writes the compatibility page from the results of the vLLM and SGLang tests.

    compatibility.py RESULT.json... --output TABLE.md

Results come from upstream.py --json and engine_loop.py --json, and from
compatibility.py --run VERSION --json FILE, which runs the plugin's tests in
that version's environment, those on vLLM's GPU worker too (half an hour; they
need $FINESERVE_BUILD_DIR). With --engine sglang it does so for SGLang. The
plugins' refusals are read from their sources. Results of one version from
several files are joined. Figures that they do not have are taken from the
present tables, of earlier runs; what has not been exercised shows as a dash.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import beside_kvcached
from refusals import refusals

_HERE = pathlib.Path(__file__).resolve().parent
_SHIM = _HERE.parent.parent / "shim"
_DASH = "–"

Results = dict[str, Any]  # of one version

# Figures that a module's tests print, by their names in results.
_COUNTED = {
    "tokens": "tokens judged",
    "slabs": "slabs handed over",
    "kills": "kill -9 survived",
}

# The name of each engine in titles, and the folder of its tests.
_TITLES = {"vllm": "vLLM", "sglang": "SGLang"}
_TESTS = {"vllm": _HERE, "sglang": _HERE.parent / "sglang"}

# The modules that run in a Python with vLLM, which starts the other engine.
_BESIDE_VLLM = (
    "test_sglang_vllm",
    "test_sglang_serving",
    "test_sglang_ranks_serving",
)


def handed_over(printed: str) -> int:
    """Returns how many slabs passed from one engine to another: the sum of the
    last count that each engine printed."""
    last: dict[str | None, int] = {}
    for line in printed.splitlines():
        if count := re.search(r"'slabs_returned': (\d+)", line):
            pid = re.search(r"'pid': (\d+)", line)
            last[pid and pid[1]] = int(count[1])
    return sum(last.values())


def run_unittests(
    engine: str,
    version: str,
    folder: pathlib.Path,
    modules: Sequence[str],
    logs: pathlib.Path | None,
) -> Results:
    """Runs the plugin's tests on the real engine, module by module. `logs`: the
    folder for the output of each module."""
    tests = _TESTS[engine]
    own = folder / f"{engine}-{version}" / "bin/python"
    beside = max(folder.glob("vllm-*/bin/python"), default=own)
    environment = os.environ | {
        "PYTHONPATH": f"{tests}:{_SHIM / 'vllm'}:{_SHIM / 'sglang'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "FINESERVE_SGLANG_PYTHON": str(own),
    }
    results: Results = {"engine": engine, "version": version, "modules": {}}
    for module in modules:
        python = beside if module in _BESIDE_VLLM else own
        finished = subprocess.run(
            [python, "-m", "unittest", "-v", module],
            cwd=tests,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if logs:
            log = logs / f"{module}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(finished.stdout + finished.stderr)
        ran = re.search(r"^Ran (\d+) tests?", finished.stderr, re.MULTILINE)
        last = finished.stderr.strip().splitlines()[-1:]
        skipped = re.search(r"skipped=(\d+)", last[0]) if last else None
        bad = re.findall(r"(?:failures|errors)=(\d+)", last[0]) if last else []
        judged = re.findall(r"\b(\d+) tokens, \d+ wrong", finished.stdout)
        results["modules"][module] = {
            "tokens": sum(map(int, judged)),
            "slabs": handed_over(finished.stdout),
            "kills": len(re.findall(r"^killed \d+$", finished.stdout, re.M)),
            "ran": int(ran[1]) if ran else 0,
            "skipped": int(skipped[1]) if skipped else 0,
            "failed": sum(map(int, bad)),
            "ok": finished.returncode == 0 and ran is not None,
        }
        if finished.returncode:
            sys.stderr.write(finished.stdout[-4000:])
            sys.stderr.write(finished.stderr[-4000:])
    return results


def join(
    engine: str, results: list[Results], versions: set[str]
) -> list[Results]:
    """Returns one entry per version of an engine, newest first, including
    `versions`."""
    joined: dict[str, Results] = {
        version: {"version": version, "loop": [], "modules": {}}
        for version in versions
    }
    for result in results:
        if result.get("engine", "vllm") != engine:
            continue
        entry = joined.setdefault(
            result["version"], {"loop": [], "modules": {}}
        )
        entry["version"] = result["version"]
        entry["loop"] += result.pop("loop", [])
        entry["modules"] |= result.pop("modules", {})
        entry.update(result)
    return sorted(joined.values(), key=_version_key, reverse=True)


def _version_key(entry: Results) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", entry["version"])]


def _upstream(part: Callable[[Results], object]) -> Callable[[Results], str]:
    def cell(entry: Results) -> str:
        return str(part(entry["upstream"])) if "upstream" in entry else _DASH

    return cell


def _module(*names: str) -> Callable[[Results], str]:
    def cell(entry: Results) -> str:
        runs = [entry.get("modules", {}).get(name) for name in names]
        if None in runs:
            return _DASH
        if not all(run["ok"] for run in runs):
            return f"**{sum(run['failed'] for run in runs)} failed**"
        passed = sum(run["ran"] - run["skipped"] for run in runs)
        counts = [f"{passed} passed"]
        for key, what in _COUNTED.items():
            count = sum(run[key] for run in runs)
            counts += [f"{count:,} {what}"] if count else []
        return ", ".join(counts)

    return cell


def _loop(async_scheduling: bool) -> Callable[[Results], str]:
    def cell(entry: Results) -> str:
        runs = [
            run
            for run in entry["loop"]
            if run["options"]["async_scheduling"] == async_scheduling
            and not run["options"]["stock"]
        ]
        if not runs:
            return _DASH
        total = {
            key: sum(run[key] for run in runs)
            for key in ("steps", "returned", "preemptions", "tokens")
        }
        queries = sum(run["cache_queries"] for run in runs)
        hit_rate = sum(run["cache_hits"] for run in runs) / max(1, queries)
        return (
            f"{total['steps']:,} steps, {total['tokens']:,} tokens right, "
            f"{total['returned']:,} slabs returned, "
            f"{total['preemptions']:,} preemptions, hit rate {hit_rate:.2f}"
        )

    return cell


def _shared_pool(entry: Results) -> str:
    runs = entry.get("shared_pool")
    if runs is None:
        return _module("test_engine_loop_shim")(entry)
    total = {
        key: sum(run[key] for run in runs)
        for key in ("steps", "returned", "tokens", "driver_calls_serving")
    }
    return (
        f"{total['steps']:,} steps, {total['tokens']:,} tokens right, "
        f"{total['returned']:,} slabs returned, "
        f"{total['driver_calls_serving']} driver calls while serving"
    )


def _tokens(entry: Results) -> str:
    if "tokens" not in entry:
        return _DASH
    run = entry["tokens"]
    if run["wrong"]:
        return f"**{run['wrong']} of {run['requests']} requests differ**"
    return (
        f"{run['tokens']:,} tokens equal, {run['returned']} slabs returned, "
        f"{run['preemptions']} preemptions"
    )


_Row = tuple[str, Callable[[Results], str]]

def _rows(table_: str) -> tuple[_Row, ...]:
    """Rows of passed tests: "what was exercised [modules]"."""
    rows = re.findall(r"(.*?) \[([\w ]+)\]", " ".join(table_.split()))
    return tuple((title.strip(), _module(*names.split())) for title, names in rows)


# The names in brackets are the modules that are run.
_ON_SCHEDULER = """
Property tests against vLLM's pool [test_pool_properties]
Discovery, seams, refusals, waking [test_pool_engine test_pool_doubles]
Free queue, fence, pool [test_pool_units test_demand]
KV allocation of both model runners in the shim's scope [test_kv_scope]
Formats of the views against what vLLM allocates, what a start sets and
  refuses [test_view test_start]
– of every type of KV that it has (FP8, INT8 and INT4 per token and head,
  NVFP4, TurboQuant, latents and fp8_ds_mla), in each layout, byte by byte;
  blocks of 1, 16, 64 and 128 tokens [test_formats]
– the blocks that a request of a hybrid takes, as admission counts them,
  against what vLLM's managers hand out [test_kv_groups]
"""

_ON_WORKER = """
vLLM's own GPU worker, both runners, against transformers: alone, on a view,
  two engines trading slabs, EngineCore killed; a stale block, a fence left
  out, a slab returned in use are noticed [test_gpu_worker]
– three engines of three formats, two layouts, n-gram speculation, daemon
  killed [test_gpu_trade]
– chunked prefill, preemption, prefix cache, async scheduling, seeds; zeroing
  left out is noticed [test_gpu_features]
– FP8 KV beside FP16, blocks of 64 beside 128 tokens (of 1: refused by vLLM's
  backends), LoRA, vLLM's own Triton attention, with INT8 KV too
  [test_gpu_formats]
– hybrid models: attention within a window (Gemma 3; Gemma 4, with pages of
  two sizes), states beside attention (LFM 2), trading with a dense model; the
  usable share of the pool [test_gpu_hybrid]
– latent attention (DeepSeek V3 without experts), with FP8 KV too, trading
  with a dense model; a stale block is noticed [test_gpu_latent]
– speculative decoding by a draft model, by EAGLE and by a layer of the
  model's own (MTP); a drafter that no fence waits for is noticed
  [test_gpu_drafts]
– tensor parallel 2 and 4, pipeline 2, and 2 × 2, over the emulated device's
  NCCL, without FineServe; a sum left out is noticed [test_gpu_parallel]
– engines on two and four GPUs, tensor and pipeline parallel, with pools of
  different sizes, trading with one on one GPU and with each other; a worker
  killed [test_gpu_ranks]
– data-parallel ranks, each an engine of its own: two models with a rank on
  each of two GPUs trade; a rank killed, and vLLM with it
  [test_gpu_data_parallel]
– models with experts (Mixtral): alone, and split over tensor and data-parallel
  ranks; two models with data-parallel ranks on the same two GPUs trade, a rank
  killed; a rank without requests gives slabs away while it computes for the
  others; experts left out, and a rank that then writes, are noticed
  [test_gpu_experts]
– daemons killed again and again, each one's pool taken over by the next,
  while two engines trade [test_gpu_restart]
– sleep mode, levels 1 and 2: a sleeper's slabs serve another, and it wakes up
  at the same addresses, or is refused while its floor is taken
  [test_sleep test_gpu_sleep]
– sleep mode at tensor parallel 2: all ranks sleep, and all wake up or none
  [test_gpu_sleep_ranks]
– evicted by fsctl and brought back by a request: its weights and KV leave the
  GPU, another takes its slabs; daemon and EngineCore killed [test_gpu_evict]
– the same at tensor parallel 2: all ranks leave their GPUs, and come back
  [test_gpu_evict_ranks]
– two replicas on two GPUs, of which one drops its weights and reads the
  other's: its KV takes their memory; requests under way, weights reloaded, the
  lender and daemons killed [test_weights test_gpu_drop]
– two replicas behind the proxy: in a burst each drops half of its weights, by
  itself, and gets them back; replicas and daemons killed [test_gpu_burst]
– KV offloading to the host (OffloadingConnector): blocks come back right
  while slabs trade; a slab that goes while it is copied is noticed; requests
  that were loaded stop no engine; other connectors refused
  [test_transfers test_loaded_requests test_gpu_offloading]
– the same at tensor parallel 2, beside an engine on the second GPU
  [test_gpu_offloading_ranks]
– prefill and decode on two engines by NixlConnector, each on a GPU and in one
  pool, with a stand-in for NIXL: reads fill the decoder's blocks while it
  trades slabs; aborts, failed reads, the prefiller killed; a slab that goes
  while it is read into, and memory registered too early, are noticed; push is
  refused [test_receives test_gpu_disaggregated]
– a pool of size auto: weights find room although the pool has it, and a
  sleeper's become KV of others until it wakes up [test_gpu_room]
– the same at tensor parallel 2: what the pool of one GPU gave up for weights and
  took back is used again on both [test_gpu_room_ranks]
– a start beside a busy engine, without memory, under a cap [test_gpu_start]
vllm serve behind the proxy without flags, vllm bench serve, kill -9 of
  EngineCore, API server, daemon [test_gpu_serving]
– more of them, of several formats, than their GPU has room for: requests of a
  real trace bring each back [test_gpu_crowded]
– two of them as replicas, each on a GPU of its own, against vllm bench
  serve's chats and responses; one full while the other is free
  [test_gpu_replicas]
"""

_ON_SGLANG = """
Its allocators and radix cache: the fence, the room of what was let in, the
  order of pages, what is evicted; ranks that stay alike, and one that is a step
  late [test_sglang_units]
Its engine, scheduler and model runner, overlapped, against transformers,
  without FineServe [test_sglang_plain]
– at tensor parallel 2 and in two stages of a pipeline, on two GPUs, without
  FineServe; a sum that is left out is noticed [test_sglang_parallel]
– on a view, with pages of 1 and of 16 tokens [test_sglang_view]
– two engines trading slabs, a scheduler killed; undrained slabs are noticed
  [test_sglang_trade]
– KV in FP8 and latents (DeepSeek V3 without experts, with FP8 too), each trading
  with a dense model; undrained slabs of latents are noticed; alone, windows
  (Gemma 3), embeddings, LoRA [test_sglang_formats]
– sliding windows in a pool of their own beside attention to everything on a
  view (Gemma 4), two engines trading slabs, a scheduler killed; undrained slabs
  are noticed [test_sglang_windows]
– states beside attention on a view (LFM 2), with a radix cache and with steps
  ahead of their results: two engines trading slabs, a scheduler killed; undrained
  slabs are noticed [test_sglang_states]
– at tensor parallel 2, and in two stages of a pipeline, on pools of different
  sizes, trading with one on the second GPU; a rank killed [test_sglang_ranks]
– data-parallel ranks, each an engine of its own, trading with one on the second
  GPU; a rank killed; undrained slabs are noticed [test_sglang_data_parallel]
– speculative decoding by a draft model and by EAGLE, trading with an engine that
  drafts nothing; undrained slabs are noticed [test_sglang_drafts]
– KV in the hierarchical cache, written through and back: it comes back right while
  slabs trade; a slab that goes while it is copied is noticed
  [test_sglang_hicache]
– evicted by fsctl and brought back by a request; daemon and scheduler killed
  [test_sglang_evict]
– its memory released and taken back by SGLang's own calls, weights and KV at once
  or apart, or by a request [test_sglang_release]
– two replicas on two GPUs, of which one drops its weights and reads the
  other's [test_sglang_drop]
– beside a vLLM in one pool, killed [test_sglang_vllm]
– SGLang and vLLM behind one fineserve-proxy, requests of a real trace
  [test_sglang_serving]
– both at tensor parallel 2 on the same two pools; a rank, an EngineCore, a
  daemon and the proxy killed [test_sglang_ranks_serving]
What a start sets and refuses [test_sglang_start]
"""
_MODULES = {
    engine: list(dict.fromkeys(re.findall(r"\btest_\w+", tables)))
    for engine, tables in (
        ("vllm", _ON_SCHEDULER + _ON_WORKER),
        ("sglang", _ON_SGLANG),
    )
}

_VLLM_ROWS: tuple[_Row, ...] = (
    (
        "vLLM's own tests/v1/core: passed with its pool and with ours",
        _upstream(lambda u: u["passed_both"]),
    ),
    (
        "– of these built a block pool; block ids handed out, all equal",
        _upstream(
            lambda u: f"{u['passed_that_built_a_pool']}; {u['ids_compared']:,}"
        ),
    ),
    (
        "– follow private pointers of the free list (pass once the free "
        "blocks are linked)",
        _upstream(lambda u: len(u["follows_private_pointers"])),
    ),
    (
        "– pass with its pool and not with ours; with other ids",
        _upstream(lambda u: f"{len(u['differs'])}; {len(u['other_ids'])}"),
    ),
    (
        "– fail with both here, by reason",
        _upstream(
            lambda u: ", ".join(
                f"{len(tests)} {reason}"
                for reason, tests in u["failed_both_by_reason"].items()
            )
            or "0"
        ),
    ),
    *_rows(_ON_SCHEDULER),
    ("EngineCore loop, synchronous", _loop(False)),
    ("EngineCore loop, async scheduling", _loop(True)),
    ("Two EngineCores on one daemon's pool, emulated device", _shared_pool),
    ("Real tokens on a CPU build, leases moving", _tokens),
    *_rows(_ON_WORKER),
)
_ROWS = {"vllm": _VLLM_ROWS, "sglang": _rows(_ON_SGLANG)}


def earlier_cells(text: str, engine: str) -> dict[tuple[str, str], str]:
    """Returns the cells of an engine's table by (row, version)."""
    title = f"{_TITLES[engine]} "
    cells: dict[tuple[str, str], str] = {}
    versions: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            versions = []
            continue
        name, *row = [cell.strip() for cell in line.strip("|").split(" | ")]
        if row and all(cell.startswith(title) for cell in row):
            versions = [cell.removeprefix(title) for cell in row]
        else:
            cells |= {(name, v): cell for v, cell in zip(versions, row)}
    return cells


def table(
    engine: str,
    entries: list[Results],
    earlier: dict[tuple[str, str], str],
) -> str:
    head = "| what was exercised | " + " | ".join(
        f"{_TITLES[engine]} {entry['version']}" for entry in entries
    )
    lines = [head + " |", "|---" * (len(entries) + 1) + "|"]
    for title, cell in _ROWS[engine]:
        new = [(entry["version"], cell(entry)) for entry in entries]
        cells = " | ".join(
            earlier.get((title, version), _DASH) if found == _DASH else found
            for version, found in new
        )
        lines.append(f"| {title} | {cells} |")
    return "\n".join(lines)


_PREAMBLE = """\
# vLLM and SGLang: what was exercised

Generated by tests/vllm/compatibility.py from test results; do not edit.
A dash: not exercised. Cells of runs that were not repeated are those of an
earlier table. No GPU was used. What an engine gets and what it costs:
[reference](../docs/reference.md#what-an-engine-gets).

"""

_REFUSALS = """
## What the {engine} plugin refuses

An engine that was started for a view ends with one line, "FineServe: " and:

"""


def page(results: list[Results], earlier: str) -> str:
    """Returns the page, with one engine after the other. `earlier`: the page so
    far."""
    sections = []
    for engine, title in _TITLES.items():
        cells = earlier_cells(earlier, engine)
        versions = {version for _, version in cells}
        sections.append(
            f"## {title}\n\n"
            + table(engine, join(engine, results, versions), cells)
            + "\n"
            + _REFUSALS.format(engine=title)
            + "".join(f"- {line}\n" for line in refusals(_SHIM / engine))
        )
    return _PREAMBLE + "\n".join(sections) + beside_kvcached.section()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="*", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--run", metavar="VERSION")
    parser.add_argument("--engine", choices=_TITLES, default="vllm")
    parser.add_argument("--modules", nargs="+")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--logs", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument(
        "--dir",
        type=pathlib.Path,
        default=os.environ.get(
            "FINESERVE_VLLM_DIR", pathlib.Path.home() / ".cache" / "fineserve"
        ),
    )
    options = parser.parse_args()
    if options.run:
        results = run_unittests(
            options.engine,
            options.run,
            pathlib.Path(options.dir),
            options.modules or _MODULES[options.engine],
            options.logs,
        )
        text = json.dumps(results, indent=1)
        if options.json:
            options.json.write_text(text)
        else:
            print(text)
        return 0 if all(m["ok"] for m in results["modules"].values()) else 1
    if not options.results:
        parser.error("no results given")
    earlier = ""
    if options.output and options.output.exists():
        earlier = options.output.read_text()
    results = [json.loads(path.read_text()) for path in options.results]
    text = page(results, earlier)
    if options.output:
        options.output.write_text(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
