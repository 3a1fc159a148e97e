"""Why an engine was refused, as the last line that its user reads.

vLLM ends with the traceback of its first process, which says that an EngineCore
did not start; what that process was refused for is 60 lines above. The first
process opens a file without a name, the others write into it what keeps them
from starting, and the first says it behind its traceback.
"""

from __future__ import annotations

import logging
import os
import pathlib
import sys
from types import TracebackType

# Environment variable of all processes but the first: the path of the file.
_PATH = "FINESERVE_REFUSAL_FILE"
_BEGINNING = "FineServe: "
# Loggers that report why a process does not start, whose handlers vLLM leaves
# alone.
_LOGGERS = ("vllm.v1.engine.core", "vllm.v1.executor.multiproc_executor")


def install() -> None:
    """Installs the handler in this process and in those that it forks. Call it
    once."""
    if _PATH not in os.environ:
        _say_last()
    refusals = _Refusals(pathlib.Path(os.environ[_PATH]))
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(refusals)


class _Refusals(logging.Handler):
    """Writes down why this process does not start, from what vLLM logs about
    it."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        if not record.exc_info or not record.msg.endswith("failed to start."):
            return
        text = str(record.exc_info[1])
        if text.startswith(_BEGINNING):
            try:
                self._path.write_text(text)
            except OSError:  # the first process has ended
                pass


def _say_last() -> None:
    file = os.memfd_create("fineserve-refusal")
    os.environ[_PATH] = f"/proc/{os.getpid()}/fd/{file}"
    original = sys.excepthook

    def hook(
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType | None,
    ) -> None:
        original(kind, error, traceback)
        if refusal := os.pread(file, 4096, 0).decode(errors="replace"):
            print(refusal, file=sys.stderr, flush=True)

    sys.excepthook = hook
