"""A separate machine for each test: an emulated GPU, a runtime folder, and
the daemons and PyTorch processes that the test starts on it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from typing import Any

BUILD = pathlib.Path(os.environ["FINESERVE_BUILD_DIR"])
SHIM = BUILD / "lib/libfineserve_shim.so"
EMUCUDA = BUILD / "lib/emucuda"
ENGINE = pathlib.Path(__file__).with_name("engine.py")

MIB = 1 << 20
SLAB = 4 * MIB
POOL_SLABS = 16
DEVICE_MEMORY = 1 << 30
DEADLINE_S = 120


class EngineError(Exception):
    """An error that a request raised in the engine: its type and message."""


def preload(shim: bool) -> dict[str, str]:
    """The environment in which stock PyTorch runs on the emulated device.

    The runtime is preloaded because PyTorch's libraries carry an RPATH to their
    wheel's own runtime, which has the same soname.
    """
    libraries = [SHIM] if shim else []
    libraries.append(EMUCUDA / "libcudart.so.13")
    return {
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "LD_LIBRARY_PATH": str(EMUCUDA),
    }


class Engine:
    """A running engine.py. It is killed at the end of the test."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, str(ENGINE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=os.environ | environment,
            text=True,
        )
        self.pid = self._process.pid

    def run(self, source: str) -> Any:
        """Runs `source` in the engine and returns what it left in `out`."""
        request = json.dumps(textwrap.dedent(source))
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
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

    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._stderr.close()


class Machine(unittest.TestCase):
    """Base of the tests; `shim` says whether engines run under the preload."""

    shim = True

    def setUp(self) -> None:
        self.folder = self._folder(None)
        self.environment = {
            "FINESERVE_RUNTIME_DIR": f"{self.folder}/run",
            "EMUCUDA_DIR": self._folder("/dev/shm"),
            "EMUCUDA_MEMORY": str(DEVICE_MEMORY),
        }

    def _folder(self, where: str | None) -> str:
        path = tempfile.mkdtemp(prefix="fineserve-torch-", dir=where)
        self.addCleanup(shutil.rmtree, path, ignore_errors=True)
        return path

    def start_daemon(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts fineserved with a pool of 16 slabs of 4 MiB; waits until it
        serves."""
        daemon = subprocess.Popen(
            [BUILD / "bin/fineserved", "--gpu", "emulated"]
            + ["--pool", f"{POOL_SLABS * SLAB}", "--slab", f"{SLAB}"]
            + list(arguments),
            env=os.environ | self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self._end, daemon)
        for line in daemon.stderr:
            if " serving " in line:
                return daemon
        raise AssertionError("fineserved ended before it served")

    @staticmethod
    def _end(daemon: subprocess.Popen[str]) -> None:
        daemon.kill()
        daemon.wait()
        daemon.stderr.close()

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

    def eventually(self, condition: Any) -> bool:
        end = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True
