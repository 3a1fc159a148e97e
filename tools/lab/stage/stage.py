"""A separate machine for a test or a bench: emulated GPUs, a runtime folder,
and those of our programs that are started on it. Runs on Python 3.8."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE_S = 120


def eventually(condition: Callable[[], Any], seconds: float = PATIENCE_S) -> bool:
    """Returns True if the condition becomes true within that time."""
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if condition():
            return True
        ended = time.monotonic()
        if ended > end:
            return False
        # A condition that takes long to check, because it starts a program, is
        # checked less often.
        time.sleep(min(0.02 + 4 * (ended - began), 0.5))


class Machine:
    """close() ends all processes."""

    def __init__(
        self,
        bin_: pathlib.Path,
        folder: pathlib.Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Creates a new machine with a new folder. `folder` replaces that
        folder, and close() keeps it; `environment` is that of an existing
        machine to use."""
        self.bin = bin_
        self._own: list[pathlib.Path] = []
        self.folder = folder or self._new_folder(None)
        if environment is None:
            environment = {
                "FINESERVE_RUNTIME_DIR": str(self.folder / "run"),
                "EMUCUDA_DIR": str(self._new_folder("/dev/shm")),
                "EMUCUDA_MEMORY": "1GiB",
            }
        self.environment = environment
        self.running: dict[str, subprocess.Popen[str]] = {}
        self._started = 0

    def _new_folder(self, where: str | None) -> pathlib.Path:
        path = pathlib.Path(tempfile.mkdtemp(prefix="fineserve-stage-", dir=where))
        self._own.append(path)
        return path

    def program(self, name: str) -> str:
        return str(self.bin / name)

    def start(
        self,
        program: str,
        *words: Any,
        name: str = "",
        stdout: int | None = None,
        **environment: str,
    ) -> subprocess.Popen[str]:
        """Starts a program with `environment` besides the machine's variables.
        Output goes into the log called `name`; with `stdout`, standard output
        goes there instead."""
        self._started += 1
        name = name or f"{pathlib.Path(program).name}-{self._started}"
        with self.log_path(name).open("a") as log:
            self.running[name] = subprocess.Popen(
                [self.program(program), *map(str, words)],
                env={**os.environ, **self.environment, **environment},
                stdout=stdout or log,
                stderr=log,
                text=True,
            )
        return self.running[name]

    def start_daemon(self, *words: Any, **environment: str) -> subprocess.Popen[str]:
        """Starts fineserved and waits until it serves."""
        daemon = self.start("fineserved", *words, **environment)
        name = next(n for n, process in self.running.items() if process is daemon)
        eventually(lambda: " serving " in self.log(name) or daemon.poll() is not None)
        if " serving " not in self.log(name):
            raise AssertionError(f"fineserved does not serve:\n{self.log(name)}")
        return daemon

    def fsctl(
        self, *words: str, patience_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program("fsctl"), *words],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=patience_s,
        )

    def report(self, *words: str, patience_s: float = PATIENCE_S) -> Any:
        """Runs a command of fsctl with --json, which must succeed, and returns
        its parsed output."""
        done = self.fsctl("--json", *words, patience_s=patience_s)
        done.check_returncode()
        return json.loads(done.stdout)

    def named(self, program: str) -> list[subprocess.Popen[str]]:
        """All processes of a program."""
        return [
            process
            for process in self.running.values()
            if pathlib.Path(process.args[0]).name == program
        ]

    def stop(self, program: str, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends all processes of a program."""
        for process in self.named(program):
            self.end(process, how)

    def end(self, process: subprocess.Popen[str], how: signal.Signals) -> int:
        """Sends a process the signal `how`, waits for its end and returns its
        exit status. Kills the process if it does not end in time."""
        process.send_signal(how)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
        if process.stdout:
            process.stdout.close()
        self.running = {n: p for n, p in self.running.items() if p is not process}
        return process.wait()

    @contextlib.contextmanager
    def paused(self, program: str) -> Iterator[None]:
        """Pauses all processes of a program while the context is open."""
        processes = self.named(program)
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                process.send_signal(signal.SIGCONT)

    def wait_for(
        self, what: str, holds: Callable[[], Any], patience_s: float = PATIENCE_S
    ) -> None:
        if not eventually(holds, patience_s):
            raise AssertionError(f"{what}: not within {patience_s} s{self.logs()}")

    def log_path(self, name: str) -> pathlib.Path:
        return self.folder / f"{name}.log"

    def log(self, name: str) -> str:
        """Returns the output of the program of that name; empty if it has no
        log yet."""
        path = self.log_path(name)
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self, most: int = 4000) -> str:
        """The end of each program's log."""
        return "".join(
            f"\n== {path.name}\n{path.read_text(errors='replace')[-most:]}"
            for path in sorted(self.folder.glob("**/*.log"))
        )

    def close(self, how: signal.Signals = signal.SIGTERM) -> None:
        for process in reversed(list(self.running.values())):
            self.end(process, how)
        for path in self._own:
            shutil.rmtree(path, ignore_errors=True)


def toml(value: Any) -> str:
    """A value of a fleet file."""
    if isinstance(value, dict):
        keys = ", ".join(f"{key} = {toml(v)}" for key, v in value.items())
        return f"{{ {keys} }}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def table(header: str, **keys: Any) -> str:
    """A table of a fleet file; `header` has its brackets."""
    lines = (f"{key} = {toml(value)}\n" for key, value in keys.items())
    return f"{header}\n{''.join(lines)}"


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


def free_port() -> int:
    return free_ports(1)[0]


def http_answer(
    port: int,
    path: str,
    body: dict[str, Any] | None = None,
    fields: dict[str, str] | None = None,
    timeout: float = 60,
) -> tuple[int, str]:
    """Returns the status and body of the answer to a POST of `body` as JSON, or
    to a GET if there is no body."""
    method = "GET" if body is None else "POST"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request(
            method,
            path,
            None if body is None else json.dumps(body),
            {"Content-Type": "application/json", **(fields or {})},
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
