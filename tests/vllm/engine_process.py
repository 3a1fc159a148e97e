"""Inference engines that run in separate processes under a test's control."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import select
import tempfile
from collections.abc import Sequence
from typing import Any

import machine
from tiny_models import Model, Reference


class EngineEnded(AssertionError):
    """Raised if an engine ended instead of answering; the message contains the
    end of its log."""


class EngineProcess(machine.LineProcess):
    """A running engine that answers each line of JSON with a line of JSON."""

    def __init__(
        self, command: Sequence[str], environment: dict[str, str]
    ) -> None:
        super().__init__(command, environment, own_session=True)

    def answer(self) -> Any:
        line = self.receive()
        if not line:
            code = self._process.wait()
            raise EngineEnded(
                f"the engine ended with {code}\n{self.stderr()[-9000:]}"
            )
        return json.loads(line)

    def has_answered(self) -> bool:
        return bool(select.select([self._process.stdout], [], [], 0.1)[0])

    def ask(self, do: str, **arguments: Any) -> None:
        """Sends a request; answer() waits for its answer."""
        self.send(json.dumps({"do": do, **arguments}))

    def run(self, do: str, **arguments: Any) -> Any:
        self.ask(do, **arguments)
        return self.answer()

    def _end(self) -> None:
        """Kills all processes of the engine, including its scheduler."""
        try:
            os.killpg(self._process.pid, 9)
        except ProcessLookupError:
            pass


class EngineTest(machine.Machine):
    """Base of the tests of an engine: its models, and their references."""

    # Least number of operators that the device gets for each time that the host
    # waits for it.
    STEPS_AHEAD = 100

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls._models = pathlib.Path(folder.name)

    @classmethod
    @functools.cache
    def reference(cls, model: Model) -> Reference:
        return Reference(model.make(cls._models))

    def check(self, report: dict[str, Any]) -> None:
        self.assertEqual(report["wrong"], 0)
        self.assertEqual(report.get("driver_calls_serving", 0), 0)
        if machine.REAL_GPU is not None:
            return  # no host device observes its operators
        self.assertEqual(report["skipped_kernels"], 0)
        # The scheduler must continue while steps are in flight.
        waited = sum(report["waited"].values())
        self.assertGreater(report["enqueued"], self.STEPS_AHEAD * waited)
        self.assertEqual(report["stray_writes"], 0)
        if report.get("leased_slabs") and report.get("count", 1):
            self.assertGreater(report.get("watched_writes", 1), 0)
        self.assertEqual(report["dirty_parts"], 0)
