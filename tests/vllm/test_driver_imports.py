"""The emulated driver has every function of the driver that PyTorch, Triton and
vLLM import.

On the packages of this interpreter's environment (label vllm); nothing runs.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import unittest
from collections.abc import Iterator

EMULATED = (
    pathlib.Path(os.environ["FINESERVE_BUILD_DIR"])
    / "lib/emucuda/libcuda.so.1"
)
# Packages whose libraries are linked with the driver, and Triton's sources that
# look up its functions by name or are compiled where Triton runs.
LINKED = ("torch", "triton", "vllm")
TRITON = "backends/nvidia/driver"


def package(name: str) -> pathlib.Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    return pathlib.Path(spec.origin).parent


def symbols(library: pathlib.Path, kind: str) -> set[str]:
    """Returns the names of the dynamic symbols, without their versions."""
    done = subprocess.run(
        ["nm", "-D", f"--{kind}-only", library], capture_output=True, text=True
    )
    return {
        line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()
    }


def declared() -> set[str]:
    """Returns the functions that the driver's header in Triton declares."""
    header = package("triton") / "backends/nvidia/include/cuda.h"
    return set(re.findall(r"CUDAAPI\s+(cu\w+)\s*\(", header.read_text()))


def first(name: str) -> str:
    """Returns the name without a version suffix, under which cuda.h declares
    the function."""
    return re.sub(r"_v\d+$", "", name)


def imported() -> Iterator[tuple[str, set[str]]]:
    """Yields each library or source with the names that it may take from a
    driver."""
    for name in LINKED:
        for library in package(name).rglob("*.so*"):
            yield library.name, symbols(library, "undefined")
    for source in package("triton").glob(f"{TRITON}.*"):
        if source.suffix in (".c", ".py"):
            names = re.findall(r"\bcu[A-Z]\w+", source.read_text())
            yield source.name, set(names)


@unittest.skipIf(importlib.util.find_spec("vllm") is None, "needs vLLM")
class DriverImportsTest(unittest.TestCase):
    def test_the_emulated_driver_exports_what_is_imported(self) -> None:
        emulated, in_header = symbols(EMULATED, "defined"), declared()
        used = [
            (origin, {name for name in names if first(name) in in_header})
            for origin, names in imported()
        ]
        found = set[str]().union(*(names for _, names in used))
        self.assertIn("cuLaunchKernel", found)
        missing = {
            origin: sorted(names - emulated)
            for origin, names in used
            if names - emulated
        }
        self.assertEqual(missing, {})
