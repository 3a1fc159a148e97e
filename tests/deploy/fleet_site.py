"""Runs a fleet file of tools/deploy/examples as real processes on the emulated
GPU: one fineserved per GPU, `fsctl up` and fineserve-proxy."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/lab/stage"))

from stage import Machine, free_port, http_answer  # noqa: E402

# Stands in for vLLM: this script is at the path where the examples expect vLLM,
# and takes vLLM's command line.
_VLLM = """#!/bin/sh
[ "$1" = serve ] || exit 64
shift 2
while [ $# -gt 0 ]; do
  case "$1" in
    --served-model-name) model=$2 ;;
    --port) port=$2 ;;
    --host | --max-num-batched-tokens | --max-num-seqs) ;;
    *) exit 64 ;;
  esac
  shift 2
done
exec {bin}/tinyserve --model "$model" --port "$port" --speed 20
"""
# Replaces the control program of NVIDIA's MPS, which comes only with a driver.
_MPS = """#!/bin/sh
[ "$#" = 0 ] && cat
echo "$CUDA_MPS_PIPE_DIRECTORY $*" >>{folder}/mps.calls
"""


class FleetSite(Machine):
    def __init__(self, bin_: pathlib.Path, gpus: int = 1) -> None:
        super().__init__(bin_)
        self._gpus = gpus
        self.port = self.admin_port = 0  # the proxy's
        self.environment["EMUCUDA_DEVICES"] = str(gpus)
        self.environment["PATH"] = f"{self.folder}:{os.environ['PATH']}"
        self._write_program("vllm", _VLLM)
        self._write_program("nvidia-cuda-mps-control", _MPS)

    def _write_program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text.format(bin=self.bin, folder=self.folder))
        path.chmod(0o755)

    def adapt(self, example: pathlib.Path) -> pathlib.Path:
        """Returns a copy of the example that uses this machine's programs,
        ports and GPUs."""
        text = example.read_text()
        text = text.replace("/usr/libexec/fineserve/tinyserve", f"{self.bin}/tinyserve")
        text = text.replace("/opt/vllm/bin/vllm", f"{self.folder}/vllm")
        for port in sorted(set(re.findall(r"\b90\d\d\b", text))):
            text = text.replace(port, str(free_port()))
        for uuid in sorted(set(re.findall(r'"(GPU-\d{8})"', text))):
            number = int(uuid[4])
            text = text.replace(uuid, self.uuids()[number])
        fleet = self.folder / "fleet.toml"
        fleet.write_text(text)
        return fleet

    def start_daemons(self, fleet: pathlib.Path | None = None) -> None:
        more = ["--fleet", str(fleet)] if fleet else []
        for number in range(self._gpus):
            self.start(
                *("fineserved", "--gpu", f"emulated:{number}"),
                *("--pool", "64MiB", "--slab", "2MiB", *more),
            )
        self.wait_for("fineserved serves", lambda: len(self.uuids()) == self._gpus)

    def start_replaceable_daemon(self) -> pathlib.Path:
        """Starts a daemon under --supervise, whose program `fsctl upgrade` may
        replace. Returns the program that it was copied from."""
        installed = self.folder / "installed"
        (installed / "bin").mkdir(parents=True)
        (installed / "lib").symlink_to(self.bin.parent / "lib")
        shutil.copy(self.bin / "fineserved", installed / "bin")
        self.start(
            *(str(installed / "bin/fineserved"), "--gpu", "emulated:0"),
            *("--pool", "64MiB", "--slab", "2MiB", "--supervise"),
        )
        self.wait_for("fineserved serves", lambda: len(self.uuids()) == 1)
        return self.bin / "fineserved"

    def uuids(self) -> list[str]:
        """Returns the UUIDs of the GPUs whose daemon serves, in their order."""
        return sorted(
            socket_.stem for socket_ in (self.folder / "run").glob("GPU-*.sock")
        )

    def serve(self, fleet: pathlib.Path, *up_flags: str) -> None:
        """Until every engine serves."""
        self.start("fsctl", "up", str(fleet), *up_flags)
        self.start_proxy(fleet)
        self.wait_for("all engines serve", self._all_serve)

    def start_proxy(self, fleet: pathlib.Path) -> None:
        """Starts the proxy that requests are sent to from now on."""
        proxy = self.start(
            *("fineserve-proxy", "--fleet", str(fleet)),
            *("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"),
            stdout=subprocess.PIPE,
        )
        said = re.search(r":(\d+), admin .*:(\d+)$", proxy.stdout.readline())
        self.port, self.admin_port = int(said[1]), int(said[2])

    def _all_serve(self) -> bool:
        for uuid in self.uuids():
            done = self.fsctl("--gpu", uuid, "models", "--json")
            if done.returncode != 0:
                return False
            models = json.loads(done.stdout)["models"]
            engines = [e for model in models for e in model["engines"]]
            if not engines or not all(e["serves"] for e in engines):
                return False
        return True

    def ask(self, model: str) -> tuple[int, str]:
        """A request's status and body."""
        body = {"model": model, "prompt": "four words of prompt", "max_tokens": 4}
        return http_answer(self.port, "/v1/completions", body)
