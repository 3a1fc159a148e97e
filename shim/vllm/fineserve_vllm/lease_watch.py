"""The thread that waits for leases to change."""

from __future__ import annotations

import time
from collections.abc import Callable

from fineserve_vllm import kv_abi
from fineserve_vllm.log import logger
from fineserve_vllm.shim_grants import ShimGrants

_log = logger(__name__)

_WAIT_MS = 1000  # bounds the time until a lost daemon is noticed
_POLL_TIMEOUT_S = 1.0  # a step may take longer


def watch(
    grants: ShimGrants,
    wake: Callable[[], None],
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wakes the engine, which may be idle, when leases may have changed. A lost
    daemon may be found again. Does not return: without this loop an idle engine
    neither gives slabs back nor leaves the GPU."""
    failing = False
    while True:
        try:
            changed = grants.wait_for_change(_WAIT_MS)
            if changed:
                wake()
            failing = False
        except Exception as error:  # a KvError, or what ends a step in wake()
            if not failing:
                _log.warning("%s: leases do not change until it ends", error)
            failing, changed = True, False
            # NO_DAEMON is raised only after the timeout, other errors at once.
            if getattr(error, "code", None) != kv_abi.Error.NO_DAEMON:
                pause(_WAIT_MS / 1000)
        if changed:
            grants.wait_for_poll(_POLL_TIMEOUT_S)
