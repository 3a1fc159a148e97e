"""Takes leases from the daemon, through the preloaded shim."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from fineserve_vllm import kv_abi, ranks
from fineserve_vllm.grants import Changes, Slab
from fineserve_vllm.log import logger

_log = logger(__name__)

_RETRY_S = 1.0  # between two tries to take the blocks over again


class ShimGrants:
    """Implements grants.Grants on a registered view (kv_abi.Shim.register), or
    on the active ones of an engine that spans GPUs (kv_abi.Shim.join_ranks).

    Confined to the thread that holds the pool's lock, except
    wait_for_change().
    """

    def __init__(
        self,
        shim: kv_abi.Shim,
        geometry: kv_abi.Geometry,
        num_blocks: int,
        active: bool = False,
    ) -> None:
        self._shim = shim
        # Set while the view is active.
        self._active = threading.Event()
        if active:
            self._active.set()
        self._suspensions = 0
        # Set by poll(), cleared by the thread that waits for changes.
        self._polled = threading.Event()
        self._slabs = [
            Slab(index, _within(shim.slab_blocks(index), num_blocks))
            for index in range(1, geometry.slab_count + 1)
        ]

    def activate(self) -> None:
        """Puts the pool in place of the memory that the engine started on."""
        if not self._active.is_set():
            self._shim.activate()
        self._active.set()

    def suspend(self) -> None:
        self._stop(self._shim.suspend)

    def _stop(self, suspend: Callable[[], None]) -> None:
        # Cleared first, so that the thread that waits for changes does not take
        # the suspension for the end of the view: see wait_for_change().
        self._active.clear()
        self._suspensions += 1
        try:
            suspend()
        except BaseException:
            self._active.set()
            raise

    def resume(self) -> None:
        self._shim.resume()
        self._active.set()

    @property
    def presence(self) -> kv_abi.Presence:
        return self._shim.presence()

    def leave(self) -> None:
        self._stop(self._shim.leave)

    def come_back(self, timeout_s: float) -> bool:
        return self._shim.come_back(int(1000 * timeout_s))

    def came_back(self) -> bool:
        self._active.set()
        return True

    @property
    def active(self) -> bool:
        return self._active.is_set()

    def slabs(self) -> Sequence[Slab]:
        return self._slabs

    def poll(self) -> Changes:
        if not self.active:  # the pool is built before activation
            return Changes()
        if not self._polled.is_set():
            self._polled.set()
        found = self._shim.poll()
        if not found:
            return Changes()
        return Changes(
            leased=[i for i, kind in found if kind == kv_abi.LEASED],
            asked_back=[i for i, kind in found if kind == kv_abi.ASKED_BACK],
        )

    def want(self, slab_count: int) -> None:
        if self.active:
            self._shim.want(slab_count)

    def return_slab(self, index: int) -> None:
        self._shim.return_slab(index)

    def publish(self, index: int, used_blocks: int) -> None:
        if self.active:
            self._shim.publish(index, used_blocks)

    # For the thread that wakes the engine.

    def wait_for_change(self, timeout_ms: int) -> bool:
        """Sleeps until there may be something to poll, until the timeout, or
        until the view is suspended. While the engine is away, sleeps until it
        is back."""
        # Read first: if the view turns out to be active, this value is from
        # before any later suspend(), which clears `active` before it counts.
        suspensions = self._suspensions
        try:
            if self.active or self.presence != kv_abi.Presence.AWAY:
                if not self._active.wait(timeout_ms / 1000):
                    return False
                self._polled.clear()
            return self._shim.wait(timeout_ms)
        except kv_abi.KvError as error:
            if error.code == kv_abi.Error.STATE and (
                self._suspensions != suspensions or not self.active
            ):
                return False
            raise

    def wait_for_poll(self, timeout_s: float) -> None:
        """Sleeps until poll() was called since wait_for_change()."""
        self._polled.wait(timeout_s)


class GroupGrants(ShimGrants):
    """ShimGrants for an engine that spans GPUs. The engine leaves them together
    with all its workers, which are called, and takes over the workers' blocks
    again once all workers are back."""

    def __init__(
        self,
        shim: kv_abi.Shim,
        geometry: kv_abi.Geometry,
        num_blocks: int,
        workers: ranks.Ranks,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(shim, geometry, num_blocks, active=True)
        self._workers = workers
        self._clock = clock
        self._pause = pause
        self._retry_at = clock()  # the next try, once one was refused
        self._left = False

    def suspend(self) -> None:
        super().suspend()
        try:
            self._workers.suspend()
        except RuntimeError as failure:
            # The engine's leases have ended, and its blocks must not be used
            # from now on.
            raise SystemExit(
                f"FineServe: the engine ends, because a worker could not fall "
                f"asleep ({failure})"
            ) from failure

    def resume(self) -> None:
        self._workers.resume()
        try:
            super().resume()
        except BaseException:
            self._workers.suspend()
            raise

    def leave(self) -> None:
        super().leave()
        self._left = True
        self._workers.leave()

    def come_back(self, timeout_s: float) -> bool:
        self._pause(min(timeout_s, max(0.0, self._retry_at - self._clock())))
        return super().come_back(timeout_s) and (
            self._is_asked_to_leave or self._workers.come_back(timeout_s)
        )

    def came_back(self) -> bool:
        # Some workers may have no room; then all of them leave again.
        if self._is_asked_to_leave:
            self._leave_again()
            return False
        if self._clock() < self._retry_at or not self._workers.come_back(0):
            return False
        try:
            self._shim.resume()
        except kv_abi.KvError as error:
            if error.is_for_good:
                raise
            _log.info("%s", error)
            self._retry_at = self._clock() + _RETRY_S
            return False
        self._left = False
        return super().came_back()

    @property
    def _is_asked_to_leave(self) -> bool:
        return self.presence == kv_abi.Presence.ASKED_TO_LEAVE

    def _leave_again(self) -> None:
        try:
            self._shim.leave()
        except kv_abi.KvError as error:
            if error.code != kv_abi.Error.STATE:  # it was too late
                raise
        else:
            self._workers.leave()

    def wait_for_change(self, timeout_ms: int) -> bool:
        """Does what ShimGrants.wait_for_change() does. Also returns True after
        the timeout if some workers may be back: the pool then looks."""
        changed = super().wait_for_change(timeout_ms)
        return changed or (
            self._left and self.presence != kv_abi.Presence.AWAY
        )


def _within(ids: range, num_blocks: int) -> range:
    """Removes id 0, the null block's, and ids beyond the pool's blocks."""
    return range(max(1, ids.start), max(1, min(ids.stop, num_blocks)))
