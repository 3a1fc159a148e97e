"""An inference engine that a test controls, in processes of its own."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Sequence
from typing import Any

import machine


class EngineEnded(AssertionError):
    """An engine ended instead of answering; the message holds its log's end."""


class EngineProcess(machine.LineProcess):
    """A running engine that answers a line of JSON with one."""

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
        """Kills all its processes, its scheduler among them."""
        try:
            os.killpg(self._process.pid, 9)
        except ProcessLookupError:
            pass
