"""vLLM's sleep mode on a view: the KV cache is ours, the rest is vLLM's.

A worker falls asleep, wakes up and discards what it holds by tag: "weights",
"kv_cache" and others. vLLM's own allocator keeps all but the KV cache, which is
a view of the pool: falling asleep returns its slabs and unmaps it, waking up
maps it at the same addresses. Before vLLM calls a worker it has aborted,
preempted or finished all requests and emptied the prefix cache, so that no
block is in use.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from fineserve_vllm.log import logger

_log = logger(__name__)

_TAG = "kv_cache"

# The error of a worker that is asleep but finds that memory usage grew.
_OTHERS_TOOK = "Memory usage increased after sleeping."


@dataclasses.dataclass(frozen=True)
class Kv:
    """Suspends and resumes the KV cache of this process's engine. If one of
    them raises, it has changed nothing. Both do nothing if there is nothing to
    do; resume then returns False."""

    suspend: Callable[[], None]
    resume: Callable[[], bool]


def wrap(worker: Any, kv: Kv) -> None:
    """Makes one worker suspend and resume its KV cache with the rest. A worker
    that cannot sleep (the CPU's) is left alone. If the workers are separate
    processes, `worker` is the executor that calls them, in the process that
    runs their block pool; a worker itself then has no KV cache to suspend."""
    for name, wrapper in (
        ("sleep", functools.partial(_sleep, worker)),
        ("wake_up", functools.partial(_wake_up, worker)),
        ("discard", _discard),
    ):
        original = getattr(worker, name, None)
        if original is not None:
            setattr(worker, name, functools.partial(wrapper, kv, original))


def _sleep(
    worker: Any, kv: Kv, original: Callable[[int], None], level: int = 1
) -> None:
    # An executor whose weights are asleep leaves all as it is, also a KV cache
    # that has woken up alone.
    if "weights" in getattr(worker, "sleeping_tags", ()):
        original(level)
        return
    kv.suspend()
    try:
        original(level)
    except BaseException as error:
        if not isinstance(error, AssertionError) or str(error) != _OTHERS_TOOK:
            _stay_awake(kv, error)
            raise
        # vLLM compares the free memory of the device, which other processes
        # use, too.
        _log.info("FineServe: asleep; others took more than this engine freed")


def _stay_awake(kv: Kv, failure: BaseException) -> None:
    """Resumes the KV cache, because vLLM takes a worker that failed to fall
    asleep for awake."""
    try:
        kv.resume()
    except Exception as refusal:
        raise SystemExit(
            f"FineServe: the engine ends, because it could not fall asleep "
            f"({failure}) and its KV cache cannot come back ({refusal})"
        ) from failure


def _wake_up(
    worker: Any,
    kv: Kv,
    original: Callable[[list[str] | None], None],
    tags: list[str] | None = None,
) -> None:
    """Resumes the KV cache first: if that is refused, everything stays
    asleep."""
    # vLLM's engine also calls an executor that is awake, to go on after a pause.
    if not getattr(worker, "is_sleeping", True):
        original(tags)
        return
    resumed = (tags is None or _TAG in tags) and kv.resume()
    try:
        original(tags)
    except BaseException:
        if resumed:  # so that others may use the slabs
            kv.suspend()
        raise


def _discard(
    kv: Kv, original: Callable[[tuple[str, ...]], None], tags: tuple[str, ...]
) -> None:
    if _TAG in tags:
        kv.suspend()
    original(tags)
