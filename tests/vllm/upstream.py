#!/usr/bin/env python3
"""Runs vLLM's own core tests twice, with vLLM's block pool and with ours.

    tests/vllm/upstream.py --version 0.32.0 [--fetch] [--json FILE]

Our pool has everything leased and must then behave as vLLM's. Compared per
test: the outcome, and every block id that the pools hand out. A test that fails
with ours runs once more with the free blocks in vLLM's linked list, as some
follow its private pointers; if it then passes with equal ids, that is its
reason. Exits 1 if a test passes with the original and not with ours for any
other reason, or gets other ids; 77 if there is nothing to run. vLLM's tests are
read outside the tree and never committed.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
from typing import Any

import upstream_models

_HERE = pathlib.Path(__file__).resolve().parent
_SHIM = _HERE.parent.parent / "shim" / "vllm"
_SKIP = 77
_HUB_HOME = "hub_home"

# A minimal build backend with which pip downloads the sdist: vLLM's own needs
# torch and a compiler just to state the version.
_STUB_BACKEND = """
import os, pathlib
def get_requires_for_build_wheel(config_settings=None):
    return []
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    version = os.environ["FINESERVE_SDIST_VERSION"]
    name = f"vllm-{version}.dist-info"
    target = pathlib.Path(folder) / name
    target.mkdir()
    (target / "METADATA").write_text(
        f"Metadata-Version: 2.1\\nName: vllm\\nVersion: {version}\\n")
    (target / "WHEEL").write_text(
        "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    return name
"""


def fetch_source(version: str, target: pathlib.Path) -> None:
    """Downloads vLLM's sdist and extracts its tests."""
    with tempfile.TemporaryDirectory() as scratch:
        backend = pathlib.Path(scratch) / "setuptools"
        backend.mkdir()
        (backend / "__init__.py").write_text("")
        (backend / "build_meta.py").write_text(_STUB_BACKEND)
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            + ["--no-binary", ":all:", "--no-build-isolation"]
            + ["--dest", scratch, f"vllm=={version}"],
            env=os.environ
            | {"PYTHONPATH": scratch, "FINESERVE_SDIST_VERSION": version},
            check=True,
        )
        target.mkdir(parents=True, exist_ok=True)
        root = f"vllm-{version}/"
        with tarfile.open(f"{scratch}/vllm-{version}.tar.gz") as archive:
            for member in archive.getmembers():
                # Leaves out its vllm/: the installed one is under test.
                if member.isfile() and member.name.startswith(root + "tests/"):
                    member.name = member.name.removeprefix(root)
                    archive.extract(member, target)


def run(
    pool: str,
    python: pathlib.Path,
    source: pathlib.Path,
    selection: list[str],
    scratch: pathlib.Path,
) -> dict[str, Any]:
    """Runs pytest once; returns the results of upstream_plugin."""
    results = scratch / f"{pool}.json"
    results.unlink(missing_ok=True)
    environment = os.environ | {
        "FINESERVE_UPSTREAM_POOL": pool,
        "FINESERVE_UPSTREAM_RESULTS": str(results),
        "PYTHONPATH": f"{_SHIM}:{_HERE}",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HOME": str(scratch / _HUB_HOME),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # Tells vLLM that a wheel for an accelerator runs on the CPU only.
        "VLLM_TARGET_DEVICE": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
    }
    log = scratch / f"{pool}.log"
    with log.open("w") as output:
        subprocess.run(
            [python, "-m", "pytest", "-q", "--noconftest", "--tb=short"]
            + ["-p", "no:cacheprovider", "-p", "upstream_plugin", *selection],
            cwd=source,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if not results.exists():
        tail = log.read_text().splitlines()[-40:]
        raise SystemExit("pytest did not finish:\n" + "\n".join(tail))
    return json.loads(results.read_text())


_REASONS = (
    (r"hub|repository ID|LocalEntryNotFound|offline", "model from the hub"),
    (r"Engine core initialization", "runs a model"),
    (r"infer device|CUDA|cuda|GPU|gpu|NVIDIA|triton", "needs a GPU"),
    (r"No module named|ImportError|fixture '", "package not installed"),
)


def reason_class(reason: str) -> str:
    for pattern, name in _REASONS:
        if re.search(pattern, reason):
            return name
    return reason.split(":")[0][:60] or "unknown"


def compare(
    original: dict[str, Any], leased: dict[str, Any]
) -> dict[str, Any]:
    """Sorts the tests by how the two runs agree."""
    both: collections.Counter[str] = collections.Counter()
    failed_both: dict[str, list[str]] = collections.defaultdict(list)
    differs, other_ids, better = {}, [], []
    with_pool = ids = 0
    for test in sorted(original["tests"].keys() | leased["tests"].keys()):
        a = original["tests"].get(test, {"outcome": "missing"})
        b = leased["tests"].get(test, {"outcome": "missing"})
        if a["outcome"] != b["outcome"]:
            if a["outcome"] in ("failed", "missing"):
                better.append(test)
                continue
            differs[test] = {
                "original": a["outcome"],
                "leased": b["outcome"],
                "reason": b.get("reason", ""),
            }
            continue
        both[a["outcome"]] += 1
        if a["outcome"] == "failed":
            failed_both[reason_class(a.get("reason", ""))].append(test)
        elif a["outcome"] == "passed":
            with_pool += a["pools"] > 0
            ids += a["ids"]
            if a["digest"] != b["digest"]:
                other_ids.append(test)
    return {
        "passed_both": both["passed"],
        "skipped_both": both["skipped"],
        "failed_both": both["failed"],
        "failed_both_by_reason": dict(failed_both),
        "differs": differs,
        "only_original_failed": better,
        "passed_that_built_a_pool": with_pool,
        "ids_compared": ids,
        "other_ids": other_ids,
        "pools": {"original": original["pools"], "leased": leased["pools"]},
    }


def explain(
    verdict: dict[str, Any],
    original: dict[str, Any],
    arguments: tuple[Any, ...],
) -> None:
    """Moves those differences that concern only private pointers to
    "follows_private_pointers"."""
    verdict["follows_private_pointers"] = []
    if not verdict["differs"]:
        return
    python, source, _, scratch = arguments
    files = sorted({test.split("::")[0] for test in verdict["differs"]})
    linked = run("linked", python, source, files, scratch)["tests"]
    for test in list(verdict["differs"]):
        entry = linked.get(test, {"outcome": "missing"})
        if (
            entry["outcome"] == original["tests"][test]["outcome"]
            and entry["digest"] == original["tests"][test]["digest"]
        ):
            verdict["follows_private_pointers"].append(test)
            del verdict["differs"][test]


def print_table(version: str, verdict: dict[str, Any]) -> None:
    print(f"vLLM {version}: tests/v1/core, vLLM's pool against ours")
    rows = [
        ("passed both", verdict["passed_both"]),
        ("  of these built a block pool", verdict["passed_that_built_a_pool"]),
        ("  block ids handed out, all equal", verdict["ids_compared"]),
        ("skipped both", verdict["skipped_both"]),
        ("failed both", verdict["failed_both"]),
    ]
    rows += [
        (f"  {reason}", len(tests))
        for reason, tests in verdict["failed_both_by_reason"].items()
    ]
    rows += [
        ("failed with the original only", len(verdict["only_original_failed"])),
        (
            "pass once free blocks are in vLLM's linked list",
            len(verdict["follows_private_pointers"]),
        ),
        ("passed with the original, not with ours", len(verdict["differs"])),
        ("passed with other ids", len(verdict["other_ids"])),
        (
            "  of these not repeatable with the original either",
            len(verdict["not_repeatable"]),
        ),
    ]
    for name, value in rows:
        print(f"  {name:<52}{value:>8}")
    for test, how in verdict["differs"].items():
        print(f"DIFFERS {test}: {how['leased']}: {how['reason']}")
    for test in verdict["follows_private_pointers"]:
        print(f"FOLLOWS PRIVATE POINTERS {test}")
    for test in verdict["other_ids"]:
        note = " (not repeatable)" if test in verdict["not_repeatable"] else ""
        print(f"OTHER IDS {test}{note}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument(
        "--dir",
        type=pathlib.Path,
        default=os.environ.get(
            "FINESERVE_VLLM_DIR", pathlib.Path.home() / ".cache" / "fineserve"
        ),
        help="holds vllm-VERSION (environment) and vllm-VERSION-src (tests)",
    )
    parser.add_argument("--fetch", action="store_true", help="get the tests")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("tests", nargs="*", default=["tests/v1/core"])
    options = parser.parse_args()

    folder = pathlib.Path(options.dir)
    python = folder / f"vllm-{options.version}" / "bin" / "python"
    source = folder / f"vllm-{options.version}-src"
    if not python.exists():
        print(f"SKIP: no vLLM {options.version}: run scripts/setup --vllm")
        return _SKIP
    if options.fetch and not (source / "tests").exists():
        fetch_source(options.version, source)
    if not (source / "tests" / "v1" / "core").exists():
        print(f"SKIP: no tests of vLLM {options.version}: run with --fetch")
        return _SKIP

    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        arguments = (python, source, options.tests, scratch)
        upstream_models.write(scratch / _HUB_HOME)
        with concurrent.futures.ThreadPoolExecutor() as both:
            runs = [
                both.submit(run, pool, *arguments)
                for pool in ("original", "leased")
            ]
        original, leased = (each.result() for each in runs)
        verdict = compare(original, leased)
        explain(verdict, original, arguments)
        verdict["not_repeatable"] = []
        if verdict["other_ids"]:
            again = run(
                "original", python, source, verdict["other_ids"], scratch
            )
            verdict["not_repeatable"] = [
                test
                for test in verdict["other_ids"]
                if again["tests"][test]["digest"]
                != original["tests"][test]["digest"]
            ]
    print_table(options.version, verdict)
    if options.json:
        options.json.write_text(
            json.dumps({"version": options.version, "upstream": verdict})
        )
    if not verdict["pools"]["leased"].get("LeasedBlockPool"):
        print("no test built our pool: nothing was shown")
        return 1
    wrong_ids = set(verdict["other_ids"]) - set(verdict["not_repeatable"])
    return 1 if verdict["differs"] or wrong_ids else 0


if __name__ == "__main__":
    sys.exit(main())
