"""Builds libhost_device.so against the PyTorch of this interpreter.

    PYTHON_WITH_TORCH build.py OUTPUT.so

No CUDA headers are needed. Does nothing if OUTPUT is newer than the sources.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def build(output: pathlib.Path) -> None:
    sources = sorted(HERE.glob("*.cc"))
    newest = max(f.stat().st_mtime for f in [*sources, *HERE.glob("*.h")])
    if output.exists() and output.stat().st_mtime > newest:
        return
    import torch
    from torch.utils import cpp_extension

    include = [f"-isystem{p}" for p in cpp_extension.include_paths()]
    folder = pathlib.Path(torch.__file__).parent / "lib"
    output.parent.mkdir(parents=True, exist_ok=True)
    compiler = [os.environ.get("CXX", "g++")]
    if shutil.which("ccache"):
        compiler.insert(0, "ccache")
    objects = []
    for source in sources:
        objects.append(output.with_suffix(f".{source.stem}.o"))
        subprocess.run(
            [*compiler, "-std=c++20", "-O2", "-fPIC", "-Wall", "-Wextra"]
            + [f"-I{ROOT}", *include, "-c", str(source)]
            + ["-o", str(objects[-1])],
            check=True,
        )
    # The library is renamed into place in one step, because another test may be
    # loading it.
    unfinished = output.with_suffix(f".{os.getpid()}")
    subprocess.run(
        [*compiler[-1:], "-shared", "-o", str(unfinished), *map(str, objects)]
        + [f"-L{folder}", "-lc10", "-ltorch_cpu"],
        check=True,
    )
    unfinished.rename(output)


if __name__ == "__main__":
    build(pathlib.Path(sys.argv[1]))
