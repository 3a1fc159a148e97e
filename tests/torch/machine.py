"""A separate machine for each test: an emulated GPU, a runtime folder, and the
daemons and PyTorch processes that the test starts on it. If $FINESERVE_TEST_GPU
is set, the machine uses that GPU of this computer (fineserved's --gpu)."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
from collections.abc import Sequence
from typing import Any

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools/lab/stage"))

import stage  # noqa: E402

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
DEADLINE_S = stage.PATIENCE_S


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
        """Returns the next line; empty if the program has ended."""
        return self._process.stdout.readline()

    def close_input(self) -> None:
        self._process.stdin.close()

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
        self.ask(source)
        return self.answer()

    def ask(self, source: str) -> None:
        """Sends `source` like run(); answer() waits for the result."""
        try:
            self.send(json.dumps(textwrap.dedent(source)))
        except BrokenPipeError:
            pass  # answer() says how it ended

    def answer(self) -> Any:
        line = self.receive()
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
        self.machine = stage.Machine(BUILD / "bin")
        self.addCleanup(self.machine.close, signal.SIGKILL)
        self.folder = str(self.machine.folder)
        self.environment = self.machine.environment
        self.environment["EMUCUDA_MEMORY"] = str(self.device_memory)
        self.environment["EMUCUDA_POISON"] = "165"

    def start_daemon(
        self, *arguments: str, device: int = 0, slabs: int | None = None
    ) -> subprocess.Popen[str]:
        """Starts fineserved for a device with a pool of `slabs` slabs (by
        default, the test's number) and waits until it serves."""
        return self.machine.start_daemon(
            *("--gpu", REAL_GPU or f"emulated:{device}"),
            *("--pool", (slabs or self.pool_slabs) * self.slab_bytes),
            *("--slab", self.slab_bytes, *arguments),
        )

    def start_engine(self, **environment: str) -> Engine:
        engine = Engine(self.environment | preload(self.shim) | environment)
        self.addCleanup(engine.kill)
        return engine

    def fsctl(self, *arguments: str) -> Any:
        return self.machine.report(*arguments)

    def free_slabs(self) -> int:
        return self.fsctl("slabs")["states"]["free"]["slabs"]

    def slabs_held(self) -> dict[int, int]:
        """Returns each engine's number of slabs, by engine from 1 in the order
        of registration; 0 is for slabs of no engine."""
        held: dict[int, int] = {}
        for run in self.fsctl("slabs")["slabs"]:
            engine = run["engine"] or 0
            held[engine] = held.get(engine, 0) + run["last"] - run["first"] + 1
        return held

    def eventually(
        self, condition: Any, seconds: float = DEADLINE_S
    ) -> bool:
        return stage.eventually(condition, seconds)
