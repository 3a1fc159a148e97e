#!/usr/bin/env python3
"""Writes the compatibility table from the results of the vLLM tests.

    compatibility.py RESULT.json... --output TABLE.md

Results come from upstream.py --json and engine_loop.py --json, and from
compatibility.py --run VERSION --json FILE, which runs the plugin's tests in
that version's environment, those on vLLM's GPU worker too (half an hour; they
need $FINESERVE_BUILD_DIR). What the plugin refuses is read from its source. Results of one version from several files are
joined. What they do not have is taken from the table that was there, of an
earlier run; what has not been exercised shows as a dash.
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

from refusals import refusals

_HERE = pathlib.Path(__file__).resolve().parent
_SHIM = _HERE.parent.parent / "shim" / "vllm"
_DASH = "–"

Results = dict[str, Any]  # of one version

_MODULES = (
    "test_demand",
    "test_pool_properties",
    "test_pool_engine",
    "test_pool_units",
    "test_pool_doubles",
    "test_kv_scope",
    "test_start",
    "test_view",
    "test_formats",
    "test_kv_groups",
    "test_gpu_worker",
    "test_gpu_trade",
    "test_gpu_features",
    "test_gpu_formats",
    "test_gpu_hybrid",
    "test_gpu_latent",
    "test_gpu_drafts",
    "test_gpu_ranks",
    "test_gpu_restart",
    "test_sleep",
    "test_gpu_sleep",
    "test_transfers",
    "test_gpu_offloading",
    "test_gpu_start",
    "test_gpu_serving",
)


def run_unittests(
    version: str, folder: pathlib.Path, modules: Sequence[str]
) -> Results:
    """Runs the plugin's tests on the real vLLM, module by module."""
    python = folder / f"vllm-{version}" / "bin" / "python"
    environment = os.environ | {
        "PYTHONPATH": f"{_SHIM}:{_HERE}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    results: Results = {"version": version, "modules": {}}
    for module in modules:
        finished = subprocess.run(
            [python, "-m", "unittest", "-v", module],
            cwd=_HERE,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        ran = re.search(r"^Ran (\d+) tests?", finished.stderr, re.MULTILINE)
        last = finished.stderr.strip().splitlines()[-1:]
        skipped = re.search(r"skipped=(\d+)", last[0]) if last else None
        bad = re.findall(r"(?:failures|errors)=(\d+)", last[0]) if last else []
        judged = re.findall(r"\b(\d+) tokens, \d+ wrong", finished.stdout)
        results["modules"][module] = {
            "tokens": sum(map(int, judged)),
            "ran": int(ran[1]) if ran else 0,
            "skipped": int(skipped[1]) if skipped else 0,
            "failed": sum(map(int, bad)),
            "ok": finished.returncode == 0 and ran is not None,
        }
        if finished.returncode:
            sys.stderr.write(finished.stdout[-4000:])
            sys.stderr.write(finished.stderr[-4000:])
    return results


def join(paths: list[pathlib.Path]) -> list[Results]:
    """One entry per version, newest first."""
    joined: dict[str, Results] = {}
    for path in paths:
        result = json.loads(path.read_text())
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
        tokens = sum(run["tokens"] for run in runs)
        return f"{passed} passed" + (
            f", {tokens:,} tokens judged" if tokens else ""
        )

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
        return _DASH
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


_ROWS: tuple[tuple[str, Callable[[Results], str]], ...] = (
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
    ("Property tests against vLLM's pool", _module("test_pool_properties")),
    (
        "Discovery, seams, refusals, waking",
        _module("test_pool_engine", "test_pool_doubles"),
    ),
    ("Free queue, fence, pool", _module("test_pool_units", "test_demand")),
    (
        "KV allocation of both model runners in the shim's scope",
        _module("test_kv_scope"),
    ),
    (
        "Formats of the views against what vLLM allocates, what a start sets "
        "and refuses",
        _module("test_view", "test_start"),
    ),
    (
        "– of every type of KV that it has (FP8, INT8 and INT4 per token and "
        "head, NVFP4, TurboQuant, latents and fp8_ds_mla), in each layout, "
        "byte by byte; blocks of 1, 16, 64 and 128 tokens",
        _module("test_formats"),
    ),
    (
        "– the blocks that a request of a hybrid takes, as admission counts "
        "them, against what vLLM's managers hand out",
        _module("test_kv_groups"),
    ),
    ("EngineCore loop, synchronous", _loop(False)),
    ("EngineCore loop, async scheduling", _loop(True)),
    ("Two EngineCores on one daemon's pool, emulated device", _shared_pool),
    ("Real tokens on a CPU build, leases moving", _tokens),
    (
        "vLLM's own GPU worker, both runners, against transformers: alone, on "
        "a view, two engines trading slabs, EngineCore killed; a stale block, "
        "a fence left out, a slab returned in use are noticed",
        _module("test_gpu_worker"),
    ),
    (
        "– three engines of three formats, two layouts, n-gram speculation, "
        "daemon killed",
        _module("test_gpu_trade"),
    ),
    (
        "– chunked prefill, preemption, prefix cache, async scheduling, seeds; "
        "zeroing left out is noticed",
        _module("test_gpu_features"),
    ),
    (
        "– FP8 KV beside FP16, blocks of 64 beside 128 tokens (of 1: refused "
        "by vLLM's backends), LoRA, vLLM's own Triton attention, with INT8 KV "
        "too",
        _module("test_gpu_formats"),
    ),
    (
        "– hybrid models: attention within a window (Gemma 3; Gemma 4, with "
        "pages of two sizes), states beside attention (LFM 2), trading with a "
        "dense model; the usable share of the pool",
        _module("test_gpu_hybrid"),
    ),
    (
        "– latent attention (DeepSeek V3 without experts), with FP8 KV too, "
        "trading with a dense model; a stale block is noticed",
        _module("test_gpu_latent"),
    ),
    (
        "– speculative decoding by a draft model and by EAGLE; a drafter that "
        "nobody waits for is noticed",
        _module("test_gpu_drafts"),
    ),
    (
        "– engines on two GPUs, tensor and pipeline parallel, with pools of "
        "different sizes, trading with one on one GPU and with each other; a "
        "worker killed",
        _module("test_gpu_ranks"),
    ),
    (
        "– daemons killed again and again, each one's pool taken over by the "
        "next, while two engines trade",
        _module("test_gpu_restart"),
    ),
    (
        "– sleep mode, levels 1 and 2: a sleeper's slabs serve another, and it "
        "wakes up at the same addresses, or is refused while its floor is taken",
        _module("test_sleep", "test_gpu_sleep"),
    ),
    (
        "– KV offloading to the host (OffloadingConnector): blocks come back "
        "right while slabs trade; a slab that goes while it is copied is "
        "noticed; other connectors refused",
        _module("test_transfers", "test_gpu_offloading"),
    ),
    (
        "– a start beside a busy engine, without memory, under a cap",
        _module("test_gpu_start"),
    ),
    (
        "vllm serve behind the proxy without flags, vllm bench serve, kill -9 "
        "of EngineCore, API server, daemon",
        _module("test_gpu_serving"),
    ),
)


def earlier_cells(text: str) -> dict[tuple[str, str], str]:
    """The cells of a table by (row, version)."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    versions = [title.removeprefix("vLLM ") for title in rows[0][1:]]
    return {
        (row[0], version): cell
        for row in rows[1:]
        for version, cell in zip(versions, row[1:])
    }


def table(
    entries: list[Results], earlier: dict[tuple[str, str], str]
) -> str:
    head = "| what was exercised | " + " | ".join(
        f"vLLM {entry['version']}" for entry in entries
    )
    lines = [head + " |", "|---" * (len(entries) + 1) + "|"]
    for title, cell in _ROWS:
        new = [(entry["version"], cell(entry)) for entry in entries]
        cells = " | ".join(
            earlier.get((title, version), _DASH) if found == _DASH else found
            for version, found in new
        )
        lines.append(f"| {title} | {cells} |")
    return "\n".join(lines)


_PREAMBLE = """\
# vLLM versions: what was exercised

Generated by tests/vllm/compatibility.py from test results; do not edit.
A dash: not exercised. Cells of runs that were not repeated are those of an
earlier table. No GPU was used.

"""

_REFUSALS = """
## What is refused

An engine that was started for a view ends with one line, "FineServe: " and:

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="*", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--run", metavar="VERSION")
    parser.add_argument("--modules", nargs="+", default=_MODULES)
    parser.add_argument("--json", type=pathlib.Path)
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
            options.run, pathlib.Path(options.dir), options.modules
        )
        text = json.dumps(results, indent=1)
        if options.json:
            options.json.write_text(text)
        else:
            print(text)
        return 0 if all(m["ok"] for m in results["modules"].values()) else 1
    if not options.results:
        parser.error("no results given")
    earlier = {}
    if options.output and options.output.exists():
        earlier = earlier_cells(options.output.read_text())
    text = _PREAMBLE + table(join(options.results), earlier) + "\n"
    text += _REFUSALS + "".join(f"- {line}\n" for line in refusals())
    if options.output:
        options.output.write_text(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
