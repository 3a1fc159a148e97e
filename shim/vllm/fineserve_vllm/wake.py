"""Waking an idle engine.

EngineCoreProc blocks in input_queue.get() until a scheduler has requests. Its
own WAKEUP message makes it look again; has_requests() is then true once
(EngineLeases.has_work), so it runs one step without tokens.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any


def poster(input_queue: queue.Queue[Any]) -> Callable[[], None]:
    """Posts WAKEUP to an EngineCoreProc; callable from any thread."""
    from vllm.v1.engine import EngineCoreRequestType

    wakeup = (EngineCoreRequestType.WAKEUP, None)
    return lambda: input_queue.put_nowait(wakeup)
