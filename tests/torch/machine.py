"""A separate machine for each test: an emulated GPU, a runtime folder, and
the daemons and PyTorch processes that the test starts on it. With
$FINESERVE_TEST_GPU it is that GPU of this computer (fineserved's --gpu)."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from collections.abc import Sequence
from typing import Any

# A build folder or a bundle.
BUILD = pathlib.Path(os.environ["FINESERVE_BUILD_DIR"])
_INSTALLED = BUILD / "lib/fineserve"
SHIM = (
    _INSTALLED if _INSTALLED.exists() else BUILD / "lib"
) / "libfineserve_shim.so"
EMUCUDA = BUILD / "lib/emucuda"
REAL_GPU = os.environ.get("FINESERVE_TEST_GPU")
ENGINE = pathlib.Path(__file__).with_name("engine.py")

MIB = 1 << 20
SLAB = 4 * MIB
POOL_SLABS = 16
DEVICE_MEMORY = 1 << 30
CONTEXT_MEMORY = DEVICE_MEMORY // 64  # what the emulated device takes for one
DEADLINE_S = 120


class EngineError(Exception):
    """An error that a request raised in the engine: its type and message."""


def preload(shim: bool) -> dict[str, str]:
    """The environment in which stock PyTorch runs on the test's device.

    The emulated device's runtime and NCCL are preloaded because PyTorch's
    libraries carry an RPATH to their wheels' own, which have the same sonames.
    """
    libraries = [SHIM] if shim else []
    if REAL_GPU is not None:
        return {"LD_PRELOAD": ":".join(map(str, libraries))}
    libraries += [EMUCUDA / "libcudart.so.13", EMUCUDA / "libnccl.so.2"]
    return {
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "LD_LIBRARY_PATH": str(EMUCUDA),
    }


def kill_9(pid: int) -> None:
    """Kills one process; the others must survive. compatibility.py counts the
    lines."""
    os.kill(pid, signal.SIGKILL)
    print(f"killed {pid}", flush=True)


class LineProcess:
    """A running program that answers lines with lines."""

    def __init__(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        *,
        own_session: bool = False,
    ) -> None:
        self._stderr = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=os.environ | environment,
            text=True,
            start_new_session=own_session,
        )
        self.pid = self._process.pid

    def send(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def receive(self) -> str:
        """The next line; empty if the program has ended."""
        return self._process.stdout.readline()

    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    def kill(self) -> None:
        self._end()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._stderr.close()

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()


class Engine(LineProcess):
    """A running engine.py. It is killed at the end of the test."""

    def __init__(self, environment: dict[str, str]) -> None:
        super().__init__([sys.executable, str(ENGINE)], environment)

    def run(self, source: str) -> Any:
        """Runs `source` in the engine and returns what it left in `out`."""
        try:
            self.send(json.dumps(textwrap.dedent(source)))
            line = self.receive()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            raise AssertionError(
                f"the engine ended with {code}\n{self.stderr()}"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer["out"]


class Machine(unittest.TestCase):
    """Base of the tests; `shim` says whether engines run under the preload."""

    shim = True
    slab_bytes = SLAB
    pool_slabs = POOL_SLABS
    device_memory = DEVICE_MEMORY

    def setUp(self) -> None:
        self.folder = self._folder(None)
        self.environment = {
            "FINESERVE_RUNTIME_DIR": f"{self.folder}/run",
            "EMUCUDA_DIR": self._folder("/dev/shm"),
            "EMUCUDA_MEMORY": str(self.device_memory),
            "EMUCUDA_POISON": "165",
        }

    def _folder(self, where: str | None) -> str:
        path = tempfile.mkdtemp(prefix="fineserve-torch-", dir=where)
        self.addCleanup(shutil.rmtree, path, ignore_errors=True)
        return path

    def start_daemon(
        self, *arguments: str, device: int = 0, slabs: int | None = None
    ) -> subprocess.Popen[str]:
        """Starts fineserved for a device with a pool of `slabs`, or of the
        test's; waits until it serves."""
        # A file, because no test reads it later and a full pipe would hold up
        # the daemon.
        log = pathlib.Path(self._folder(None)) / "log"
        with log.open("w") as stderr:
            daemon = subprocess.Popen(
                [BUILD / "bin/fineserved"]
                + ["--gpu", REAL_GPU or f"emulated:{device}"]
                + ["--pool", f"{(slabs or self.pool_slabs) * self.slab_bytes}"]
                + ["--slab", f"{self.slab_bytes}"]
                + list(arguments),
                env=os.environ | self.environment,
                stderr=stderr,
                text=True,
            )
        self.addCleanup(self._end, daemon)
        self.eventually(
            lambda: " serving " in log.read_text() or daemon.poll() is not None
        )
        said = log.read_text()
        if " serving " not in said:
            raise AssertionError(f"fineserved does not serve:\n{said}")
        return daemon

    @staticmethod
    def _end(daemon: subprocess.Popen[str]) -> None:
        daemon.kill()
        daemon.wait()

    def start_engine(self, **environment: str) -> Engine:
        engine = Engine(self.environment | preload(self.shim) | environment)
        self.addCleanup(engine.kill)
        return engine

    def fsctl(self, *arguments: str) -> Any:
        result = subprocess.run(
            [BUILD / "bin/fsctl", "--json", *arguments],
            env=os.environ | self.environment,
            capture_output=True,
            check=True,
            text=True,
        )
        return json.loads(result.stdout)

    def free_slabs(self) -> int:
        return self.fsctl("slabs")["states"]["free"]["slabs"]

    def slabs_held(self) -> dict[int, int]:
        """By engine, from 1 in the order of registration; 0: no engine's."""
        held: dict[int, int] = {}
        for run in self.fsctl("slabs")["slabs"]:
            engine = run["engine"] or 0
            held[engine] = held.get(engine, 0) + run["last"] - run["first"] + 1
        return held

    def eventually(self, condition: Any) -> bool:
        end = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True
