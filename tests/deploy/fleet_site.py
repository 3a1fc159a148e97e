"""A fleet file of tools/deploy/examples as real processes on the emulated GPU:
fineserved for each of its GPUs, `fsctl up`, fineserve-proxy."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE_S = 120
# Is at the path where the examples expect vLLM, and takes its command line.
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
# Replaces the control program of NVIDIA's MPS, which only a driver brings.
_MPS = """#!/bin/sh
[ "$#" = 0 ] && cat
echo "$CUDA_MPS_PIPE_DIRECTORY $*" >>{folder}/mps.calls
"""


class FleetSite:
    """close() ends all processes."""

    def __init__(self, bin_: pathlib.Path, gpus: int = 1) -> None:
        self._bin = bin_
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fineserve-example-"))
        self._device = pathlib.Path(
            tempfile.mkdtemp(prefix="fineserve-example-", dir="/dev/shm")
        )
        self._running: list[subprocess.Popen[str]] = []
        self._gpus = gpus
        self.port = self.admin_port = 0  # the proxy's
        self.environment = os.environ | {
            "FINESERVE_RUNTIME_DIR": str(self.folder / "run"),
            "EMUCUDA_DIR": str(self._device),
            "EMUCUDA_MEMORY": "1GiB",
            "EMUCUDA_DEVICES": str(gpus),
            "PATH": f"{self.folder}:{os.environ['PATH']}",
        }
        self._write_program("vllm", _VLLM)
        self._write_program("nvidia-cuda-mps-control", _MPS)

    def _write_program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text.format(bin=self._bin, folder=self.folder))
        path.chmod(0o755)

    def adapt(self, example: pathlib.Path) -> pathlib.Path:
        """A copy whose programs, ports and GPUs are those of this machine."""
        text = example.read_text()
        text = text.replace("/usr/libexec/fineserve/tinyserve", f"{self._bin}/tinyserve")
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
        """One under --supervise, whose program `fsctl upgrade` may replace;
        returns the program that it was copied from."""
        installed = self.folder / "installed"
        (installed / "bin").mkdir(parents=True)
        (installed / "lib").symlink_to(self._bin.parent / "lib")
        shutil.copy(self._bin / "fineserved", installed / "bin")
        self.start(
            *(str(installed / "bin/fineserved"), "--gpu", "emulated:0"),
            *("--pool", "64MiB", "--slab", "2MiB", "--supervise"),
        )
        self.wait_for("fineserved serves", lambda: len(self.uuids()) == 1)
        return self._bin / "fineserved"

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
        """The one that requests are sent to from now on."""
        proxy = self.start(
            *("fineserve-proxy", "--fleet", str(fleet)),
            *("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"),
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

    def program(self, name: str) -> str:
        return str(self._bin / name)

    def fsctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._bin / "fsctl", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def ask(self, model: str) -> tuple[int, str]:
        """A request's status and body."""
        body = {"model": model, "prompt": "four words of prompt", "max_tokens": 4}
        return http_answer(self.port, "/v1/completions", body)

    def start(
        self, program: str, *words: str, **environment: str
    ) -> subprocess.Popen[str]:
        """With these variables besides the site's."""
        name = pathlib.Path(program).name
        log = (self.folder / f"{name}-{len(self._running)}.log").open("w")
        started = subprocess.Popen(
            [self._bin / program, *words],
            env=self.environment | environment,
            stdout=subprocess.PIPE if program == "fineserve-proxy" else log,
            stderr=log,
            text=True,
        )
        log.close()
        self._running.append(started)
        return started

    def stop(self, program: str, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends all processes of a program."""
        for process in list(self._running):
            if pathlib.Path(process.args[0]).name == program:
                self.end(process, how)

    def end(self, process: subprocess.Popen[str], how: signal.Signals) -> None:
        process.send_signal(how)
        process.wait(PATIENCE_S)
        self._running.remove(process)

    @contextlib.contextmanager
    def paused(self, program: str) -> Iterator[None]:
        """No process of a program runs inside the block."""
        processes = [
            process
            for process in self._running
            if pathlib.Path(process.args[0]).name == program
        ]
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                process.send_signal(signal.SIGCONT)

    def wait_for(
        self, what: str, holds: Callable[[], bool], patience_s: float = PATIENCE_S
    ) -> None:
        deadline = time.monotonic() + patience_s
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {patience_s} s{self.logs()}")
            time.sleep(0.1)

    def logs(self) -> str:
        return "".join(
            f"\n== {path.name}\n{path.read_text()[-2000:]}"
            for path in sorted(self.folder.glob("**/*.log"))
        )

    def close(self) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self._device, ignore_errors=True)


def http_answer(
    port: int,
    path: str,
    body: dict[str, Any] | None = None,
    fields: dict[str, str] | None = None,
    timeout: float = 60,
) -> tuple[int, str]:
    """The status and body of the answer to a POST of this JSON, or to a GET."""
    method = "GET" if body is None else "POST"
    fields = {"Content-Type": "application/json"} | (fields or {})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        words = None if body is None else json.dumps(body)
        connection.request(method, path, words, fields)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]
