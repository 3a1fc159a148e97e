"""Collects stock vLLM for a machine that has PyTorch but no vLLM and no network.

    PYTHON_WITH_VLLM carry.py [--python 3.12] FOLDER

FOLDER, on PYTHONPATH there, holds vLLM's Python without its compiled part, and
the packages that an engine imports and such a machine mostly lacks: in this
Python's versions, for the given Python.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import pathlib
import platform
import shutil
import subprocess
import sys

# Packages that the bundle carries. Those that come with transformers or PyTorch
# are missing, and so are those that most machines with PyTorch have (SHARED in
# tests/gpu/vllm_check.py).
PACKAGES = (
    "annotated-types",
    "apache-tvm-ffi",
    "blake3",
    "cachetools",
    "cbor2",
    "compressed-tensors",
    "fastapi",
    "httpcore2",
    "httpx2",
    "jiter",
    "llguidance",
    "loguru",
    "msgspec",
    "openai",
    "opentelemetry-api",
    "oss-harmony",
    "partial-json-parser",
    "py-cpuinfo",
    "pybase64",
    "pydantic",
    "pydantic-core",
    "pydantic-extra-types",
    "pyzmq",
    "setproctitle",
    "sniffio",
    "starlette",
    "truststore",
    "typing-inspection",
    "uvloop",
    "xgrammar",
)
COMPILED = "vllm/_C_stable_libtorch.py"
NO_KERNELS = pathlib.Path(__file__).with_name("no_kernels.py")
# vLLM only checks that this module can be imported, and uses nothing in it.
FLASH_ATTENTION = "vllm/vllm_flash_attn/_vllm_fa2_C.py"
# Tags that pip matches exactly: up to the glibc that the bundle needs.
PLATFORMS = ("1", "2010", "2014", *(f"_2_{n}" for n in range(5, 36)))
# Kernel sizes per GPU are left out: they are as large as the rest and have
# defaults.
_LEFT_OUT = "/fused_moe/configs/"


def copy_vllm(folder: pathlib.Path) -> None:
    files = importlib.metadata.files("vllm") or []
    for file in files:
        name = str(file)
        wanted = name.endswith((".py", ".json")) or ".dist-info/" in name
        if wanted and not name.startswith("..") and _LEFT_OUT not in name:
            copy = folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), copy)


def stand_in(folder: pathlib.Path) -> None:
    """Writes stand-ins for the kernels, because vLLM's CUDA platform and its
    attention import them even if they are not used."""
    shutil.copyfile(NO_KERNELS, folder / COMPILED)
    (folder / FLASH_ATTENTION).write_text("# No kernels (tests/vllm/carry.py).\n")


def install_packages(folder: pathlib.Path, python: str) -> None:
    pinned = [f"{name}=={importlib.metadata.version(name)}" for name in PACKAGES]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        + ["--disable-pip-version-check", "--only-binary=:all:", "--no-compile"]
        + ["--target", str(folder), "--python-version", python]
        + [f"--platform=manylinux{tag}_{platform.machine()}" for tag in PLATFORMS]
        + pinned,
        check=True,
    )
    shutil.rmtree(folder / "bin", ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--python",
        default="{}.{}".format(*sys.version_info),
        help="the version of Python there (%(default)s)",
    )
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    install_packages(options.folder, options.python)
    copy_vllm(options.folder)
    stand_in(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
