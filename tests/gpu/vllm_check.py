"""Stock vLLM under the shim, in half precision: what gpu_check --vllm runs.

The tests of tests/vllm/test_gpu_half.py, then `bench vllm --only serve`, whose
figures go into the report. vLLM is this Python's, or what scripts/bundle --vllm
has put beside the programs; PyTorch, Triton and transformers are this Python's.
Writes GoogleTest's JSON, as gpu_check's other programs do.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from typing import Any

import torch_check

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "Vllm"
# Packages that an engine imports but a bundle leaves out, because most machines
# with PyTorch have them (tests/vllm/carry.py).
SHARED = (
    "aiohttp",
    "cloudpickle",
    "cv2",
    "einops",
    "google.protobuf",
    "prometheus_client",
    "psutil",
    "requests",
    "sentencepiece",
    "tiktoken",
)

FIRST_ERROR = re.compile(
    r"^(\(EngineCore.*(ERROR|Error)|terminate called|\w*Error\b).*", re.MULTILINE
)


class Results(unittest.TestResult):
    """Collects each test's result as gpu_check reads it."""

    def __init__(self, write: Callable[[list[dict[str, Any]]], None]) -> None:
        super().__init__()
        self.cases: list[dict[str, Any]] = []
        self._write = write

    def _add(self, test: unittest.TestCase, **what: str) -> None:
        name = test.id().split(".")[-1]
        print(name, what or "held", flush=True)
        self.cases.append(torch_check.result(name, **what) | {"classname": NAME})
        self._write(self.cases)

    def addSuccess(self, test: Any) -> None:
        self._add(test)

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self._add(test, failure=str(err[1])[-3000:])

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self._add(test, failure=f"{err[0].__name__}: {err[1]}"[-3000:])

    def addSkip(self, test: Any, reason: str) -> None:
        self._add(test, skip=reason)


def tested(write: Callable[[list[dict[str, Any]]], None]) -> list[dict[str, Any]]:
    sys.path.insert(0, str(ROOT / "tests" / "vllm"))
    results = Results(write)
    unittest.defaultTestLoader.loadTestsFromName("test_gpu_half").run(results)
    return results.cases


def measured() -> dict[str, Any]:
    """Runs the bench and returns its figures, including those that it
    claims."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        ran = subprocess.run(
            [sys.executable, str(ROOT / "bench/vllm/vllm_bench.py")]
            + ["--only", "serve", "--json", file.name],
            env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        if ran.returncode != 0:
            failure = f"the bench ended with {ran.returncode}: {excerpt(ran.stderr)}"
            return torch_check.result("Serve", failure=failure) | {"classname": NAME}
        document = json.load(file)
    case = torch_check.result("Serve") | {"classname": NAME}
    case |= {name: str(value) for name, value in document["figures"].items()}
    return case | {c["claim"]: str(c["value"]) for c in document["claims"]}


def excerpt(log: str) -> str:
    """Returns the first error in an engine's log, and the log's end.

    vLLM's last lines say only that an engine has ended, those before it why.
    """
    first = FIRST_ERROR.search(log)
    if first is None or len(log) - first.start() <= 4000:
        return log[-4000:]
    return f"{log[first.start() :][:2000]}\n[...]\n{log[-2000:]}"


def find_vllm(prefix: pathlib.Path) -> None:
    """Takes the bundle's vLLM if this Python has none."""
    carried = sorted(prefix.glob("lib/vllm-*"))
    if carried and importlib.util.find_spec("vllm") is None:
        os.environ["FINESERVE_TEST_VLLM"] = str(carried[-1])
        # This Python's own packages come first.
        sys.path.append(str(carried[-1]))


def lacking() -> str:
    """Names the module that this Python needs and lacks; empty: none."""
    for module in ("torch", "triton", "transformers", "vllm"):
        try:
            __import__(module)
        except ImportError as error:
            return (
                f"{sys.executable}: {error}; "
                + "vLLM comes with scripts/bundle --vllm, or set FINESERVE_PYTHON"
            )
    missing = [module for module in SHARED if not has(module)]
    if missing:
        return f"{sys.executable} has no {', '.join(missing)}; install them there"
    return ""


def has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefix", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=["real", "emulated"], required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    options = parser.parse_args()
    os.environ["FINESERVE_BUILD_DIR"] = str(options.prefix)
    if options.device == "real":
        os.environ["FINESERVE_TEST_GPU"] = "0"
    find_vllm(options.prefix)

    def write(cases: list[dict[str, Any]]) -> None:
        """Writes the report after each case, so that a killed run has reported
        some."""
        report = {"testsuites": [{"name": NAME, "testsuite": cases}]}
        options.output.write_text(json.dumps(report))

    missing = lacking()
    if missing:
        cases = [torch_check.result("Imports", skip=missing)]
    else:
        cases = tested(write)
        cases.append(measured())
    write(cases)
    return 1 if any("failures" in case for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
