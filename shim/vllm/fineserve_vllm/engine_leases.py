"""One engine's leases, driven by its scheduler's own calls.

plugin.install() makes vLLM's Scheduler call the methods below at the entry and
exit of schedule(), at the exit of update_from_output(), and in has_requests().
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from fineserve_vllm import support
from fineserve_vllm.grants import has_left, try_to_come_back
from fineserve_vllm.kv_abi import Presence
from fineserve_vllm.loaded_requests import LoadedRequests
from fineserve_vllm.log import logger
from fineserve_vllm.pool import LeasedBlockPool
from fineserve_vllm.receives import Receives
from fineserve_vllm.usage_report import UsageReport

_log = logger(__name__)

Clock = Callable[[], float]  # seconds, monotonic

_SOON = 10  # tries of a second each


@dataclasses.dataclass(frozen=True)
class AskBackOptions:
    """Handling of an ask-back that running requests hold up.

    deadline_s: after this time it counts as stuck, once.
    preempt: at the deadline, preempt the requests that hold the slab's blocks,
        as vLLM's reset_prefix_cache(reset_running_requests=True) does; they
        recompute. Otherwise the slab waits for them to finish.
    """

    deadline_s: float = 10.0
    preempt: bool = False


@dataclasses.dataclass
class Counters:
    """Totals since the engine started, in slabs (preempted, and let_go by
    loaded_requests.py: in requests)."""

    asked_back: int = 0
    returned: int = 0
    stuck: int = 0
    preempted: int = 0
    let_go: int = 0


class EngineLeases:
    """The leases of one scheduler's pool.

    Confined to the scheduler's thread, except wake(). The scheduler holds
    pool.lock while it builds a step and while it takes in a result; between
    them wake() may answer on a thread of its own.

    Args:
        scheduler: vLLM's Scheduler; used for preemption and --watermark.
        room: the blocks that its requests may take before a want is answered
            (demand.py); a want covers the used blocks and these.
        loaded: None if no connector loads requests.
        receives: None if no connector reads from other engines.
        finish_device: waits until the device has done all that it was given;
            any thread.
        steps_with_others: the KV must never go, because other engines' steps
            include this one (support.py).
    """

    def __init__(
        self,
        scheduler: Any,
        pool: LeasedBlockPool,
        room: Callable[[], int],
        options: AskBackOptions,
        clock: Clock = time.monotonic,
        answers_between_steps: bool = True,
        loaded: LoadedRequests | None = None,
        receives: Receives | None = None,
        finish_device: Callable[[], None] = lambda: None,
        steps_with_others: bool = False,
    ) -> None:
        self.pool = pool
        self.counters = Counters()
        self._scheduler = scheduler
        self._room = room
        self._loaded = loaded
        self._receives = receives
        self._options = options
        self._answers_between_steps = answers_between_steps
        self._finish_device = finish_device
        self._steps_with_others = steps_with_others
        self._launched = 0  # the last step that the device has been given
        self._clock = clock
        # vLLM's --watermark, as a fraction of the pool: vLLM computed the
        # number of blocks from the whole view.
        manager = scheduler.kv_cache_manager
        self._watermark = manager.watermark_blocks / len(pool.blocks)
        self._wanted = -1
        self._usage = UsageReport(pool, clock)
        self._asked_at: dict[int, float] = {}  # view index -> time
        self._stuck: set[int] = set()
        # Set by any thread, cleared by the scheduler's thread. Each is one word,
        # so they need no lock.
        self._wake_pending = False
        self._woken = False  # since EngineCore last looked for work
        self._suspended = False
        self._away = False  # suspended, because the engine has left the GPU
        self._asked = 0  # how often it has asked for its memory since then
        self._post_wakeup: Callable[[], None] | None = None

    # Called from the wrapped Scheduler.

    def schedule_begins(self) -> None:
        self._wake_pending = False
        self._come_back()
        self.pool.fence.schedule_begins()
        self._look()
        self._watch_deadlines()
        self._return_drained()
        self._want()

    def schedule_ends(self, output: object) -> None:
        if self._receives is not None:
            self._receives.step_built(output)
        self.pool.fence.schedule_ends(output)
        if not _writes(output):
            self.pool.fence.step_processed(output)
        if self._loaded is not None:
            self.counters.let_go += self._loaded.step_built(output)

    def step_processed(self, output: object, result: Any = None) -> None:
        """Records that a step was processed; `result` is the worker's report of
        that step."""
        if self._receives is not None:
            self._receives.step_processed(
                getattr(result, "kv_connector_output", None)
            )
        self.pool.fence.step_processed(output)
        returned = self._return_drained()
        # If there are requests, the next step sends the want before it is
        # built. Until then returned slabs must not be wanted, or they would be
        # leased again.
        if returned or not self._scheduler.has_unfinished_requests():
            self._want()
        self._usage.step_ended()

    def steps_launched(self) -> None:
        """Records that the device has been given all steps built so far. Called
        by the engine's thread, while no step is under way in it."""
        self._launched = self.pool.fence.scheduled
        if self._is_stepped_by_its_caller and self.pool.leaving:
            with self.pool.lock:
                self._answer()

    def has_work(self, has_requests: bool) -> bool:
        """Returns True if a scheduler should run a step, which without requests
        only looks at leases. An idle EngineCore runs schedule() only if its
        scheduler's has_requests() is true; the step has no tokens, and its end
        returns slabs that were asked back. EngineCore asks before it sleeps,
        and requests may have been aborted since its last step. While the engine
        is away, only unfinished requests are work: what is known of finished
        ones waits.

        Args:
            has_requests: the scheduler's own answer.
        """
        self._woken = False
        if has_requests and not self._away:
            return True
        with self.pool.lock:
            takes_part = self._follow_presence()
            if has_requests:
                return (
                    not self._away or self._scheduler.has_unfinished_requests()
                )
            if not takes_part:
                return False
            self._want()
            self._usage.step_ended()
        return self._wake_pending

    def can_step(self) -> bool:
        """Called before an EngineCore steps. Returns False if the engine is
        away, and a request needs its memory, which is not back within a second.
        EngineCoreProc then reads its queue, which may hold the end of requests
        or its own, before it asks again. Without such a request a step only
        processes what is left of earlier ones."""
        # With the lock: wake() may be about to leave.
        with self.pool.lock:
            if not self._away:
                return True
            if not self._scheduler.has_unfinished_requests():
                self._asked = 0
                return True
            return self._try_to_come_back()

    # Waking.

    @property
    def attached(self) -> bool:
        return self._post_wakeup is not None

    def attach(self, post_wakeup: Callable[[], None]) -> None:
        """Sets `post_wakeup`, which makes a blocked engine ask has_requests()
        again and must be callable from any thread."""
        self._post_wakeup = post_wakeup

    def wake(self) -> None:
        """Makes the engine poll its grants soon, even if it is idle. Any
        thread. An in-process LLM never sleeps, because its caller steps it. For
        such an engine the calling thread polls between two steps, unless the
        workers are other processes: only one thread may talk to them."""
        if self._post_wakeup is not None:
            self._wake_pending = True
            if not self._woken:
                self._woken = True
                self._post_wakeup()
            return
        if not self._is_stepped_by_its_caller:
            return
        with self.pool.lock:
            busy = self._scheduler.has_unfinished_requests()
            if busy or self._follow_presence():
                self._look()
                self._answer()

    @property
    def _is_stepped_by_its_caller(self) -> bool:
        return self._post_wakeup is None and self._answers_between_steps

    def _answer(self) -> None:
        """Returns drained slabs and sends the want between two steps, perhaps
        after the last one."""
        fence = self.pool.fence
        if self.pool.leaving and fence.in_flight and self._rests():
            self._finish_device()
            fence.device_finished()
        self._return_drained()
        self._want()

    def _rests(self) -> bool:
        """Returns True if the caller may never step again. The last step then
        stays in vLLM's queue of batches, and its end is never reported."""
        return (
            self._launched == self.pool.fence.scheduled
            and not self._scheduler.has_unfinished_requests()
        )

    # Sleep.

    def suspend(self) -> None:
        """Returns all slabs, and wants none until resume(); see pool.suspend().
        Called by the worker, in the scheduler's thread. Does nothing if the
        engine is already suspended.

        Raises:
            RuntimeError: other engines' steps include this one, or its memory
                is away and does not come back soon.
        """
        if self._steps_with_others:
            support.refuse_alone("sleep one at a time", "leave out /sleep")
        with self.pool.lock:
            self._come_back(_SOON)
            if not self._suspended:
                self._suspend(self.pool.grants.suspend)

    def resume(self) -> bool:
        """Takes part again: the pool grows as slabs are leased to it. Returns
        False if the engine was not suspended.

        Raises:
            RuntimeError: its memory is away and does not come back soon.
        """
        with self.pool.lock:
            self._come_back(_SOON)
            if not self._suspended:
                return False
            self.pool.grants.resume()
            self._resumed()
        return True

    # Eviction, with the lock held.

    def _follow_presence(self) -> bool:
        """Called when there is no request. Leaves the GPU if the daemon has
        asked the engine to, and takes part again once the memory is back.
        Returns True if the engine takes part."""
        presence = self.pool.grants.presence
        if self._away and presence != Presence.AWAY:
            if self.pool.grants.came_back():
                self._came_back()
        elif presence == Presence.ASKED_TO_LEAVE and self._may_leave():
            self._away = has_left(
                lambda: self._suspend(self.pool.grants.leave)
            )
        return not self._suspended

    def _may_leave(self) -> bool:
        """Returns True if no block is in use and no step is under way."""
        fence = self.pool.fence
        if self._suspended or self.pool.used_blocks or self._steps_with_others:
            return False
        connector = self.pool.held_by_connector
        if connector is not None and connector():
            return False
        if fence.in_flight:
            if not self._rests():
                return False
            self._finish_device()
            fence.device_finished()
        return True

    def _come_back(self, most: int | None = None) -> None:
        """Waits until the memory is back, because the caller needs it.

        Args:
            most: tries, of a second; None for as many as it takes.

        Raises:
            RuntimeError: it is not back after the last try.
        """
        tries = 0
        while self._away and not self._try_to_come_back():
            tries += 1
            if tries == most:
                raise RuntimeError(
                    "FineServe: this engine's memory has left the GPU and is "
                    "not back: try again; fsctl status says why"
                )

    def _try_to_come_back(self) -> bool:
        self._asked += 1
        if not try_to_come_back(self.pool.grants, self._asked):
            return False
        self._came_back()
        return True

    def _came_back(self) -> None:
        self._away = False
        self._asked = 0
        self._resumed()

    # Inside.

    def _suspend(self, end_leases: Callable[[], None]) -> None:
        held = len(self.pool.linked) + len(self.pool.leaving)
        self.pool.suspend(end_leases)
        self.counters.returned += held
        self._asked_at.clear()
        self._stuck.clear()
        self._usage.forget()
        self._suspended = True

    def _resumed(self) -> None:
        self._suspended = False
        self._wanted = -1
        self._look()
        self._want()

    def _look(self) -> None:
        self.pool.apply(self.pool.grants.poll())
        self._follow_watermark()

    def _return_drained(self) -> int:
        """Gives drained slabs back and returns their number."""
        returned = self.pool.return_drained()
        for index in returned:
            self.counters.returned += 1
            self._usage.returned(index)
        return len(returned)

    def _follow_watermark(self) -> None:
        if self._watermark > 0:
            self._scheduler.kv_cache_manager.watermark_blocks = int(
                self._watermark * self.pool.num_gpu_blocks
            )

    def _watch_deadlines(self) -> None:
        leaving = self.pool.leaving
        if not leaving and not self._asked_at:
            return
        now = self._clock()
        for index in leaving - self._asked_at.keys():
            self._asked_at[index] = now
            self.counters.asked_back += 1
        for index in self._asked_at.keys() - leaving:
            del self._asked_at[index]
            self._stuck.discard(index)
        overdue = {
            index
            for index, asked_at in self._asked_at.items()
            if now - asked_at >= self._options.deadline_s
        }
        for index in overdue - self._stuck:
            self._stuck.add(index)
            self.counters.stuck += 1
            _log.warning(
                "slab %d was asked back %.1f s ago and still holds %d used "
                "blocks",
                index,
                now - self._asked_at[index],
                len(self.pool.used_in_leaving(index)),
            )
        if overdue and self._options.preempt:
            self._preempt_holders(overdue)

    def _preempt_holders(self, overdue: set[int]) -> None:
        held = frozenset[int]().union(
            *(self.pool.used_in_leaving(index) for index in overdue)
        )
        scheduler = self._scheduler
        # The last request is preempted first: each is put at the head of the
        # waiting queue, so they resume in their old order.
        for request in reversed(list(scheduler.running)) if held else ():
            groups = scheduler.kv_cache_manager.get_block_ids(
                request.request_id
            )
            if held.isdisjoint(block_id for ids in groups for block_id in ids):
                continue
            scheduler.running.remove(request)
            # Drops stale output because the request may resume in this very
            # step. For the same reason the request must not look as if it had
            # been scheduled in the previous step.
            scheduler._preempt_request(
                request, time.monotonic(), drop_stale_output=True
            )
            scheduler.prev_step_scheduled_req_ids.discard(request.request_id)
            self.counters.preempted += 1

    def _want(self) -> None:
        wanted = self.pool.wanted_slabs(self._room())
        if wanted != self._wanted:
            self._wanted = wanted
            self.pool.grants.want(wanted)


def _writes(output: Any) -> bool:
    """Returns True if a step may write KV. A connector may load KV in any
    step."""
    return bool(
        output.total_num_scheduled_tokens
        or output.new_block_ids_to_zero
        or output.kv_cache_block_copies
        or output.kv_connector_metadata is not None
    )
