"""The pages that an engine's requests can take before it may get more."""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.schedule_policy import CLIP_MAX_NEW_TOKENS

# Number of steps until a want is answered. Heuristic, until the daemon measures
# it.
_STEPS_PER_ROUND_TRIP = 4


def _batches(scheduler: Any) -> list[Any]:
    # `running_mbs` exists once a pipeline's loop has begun.
    return getattr(scheduler, "running_mbs", [scheduler.running_batch])


def reopen_admission(scheduler: Any) -> None:
    """Has SGLang look again for room for requests that wait. Once it found none
    it looks only when a request has ended: its own pools do not grow."""
    for batch in _batches(scheduler):
        batch.batch_is_full = False


def _by_batch(scheduler: Any) -> list[list[Any]]:
    """Returns the running requests, by micro-batch: a pipeline has one
    micro-batch per step in flight, other engines have one in all. SGLang adds
    the requests of a prompt step to their micro-batch when that micro-batch
    begins its next step; here they are already in it, except a request whose
    prompt continues, in a pipeline in another micro-batch."""
    found = []
    all_launched = getattr(scheduler, "mbs", [scheduler.last_batch])
    for batch, launched in zip(_batches(scheduler), all_launched):
        requests = batch.reqs
        elsewhere = {id(scheduler.chunked_req)}
        if launched is not None and launched is not batch:
            both = [*batch.reqs, *launched.reqs]
            requests = {id(request): request for request in both}.values()
        if launched is not None and launched.forward_mode.is_extend():
            elsewhere.add(id(launched.chunked_req))
        found.append(
            [
                request
                for request in requests
                if id(request) not in elsewhere and not request.finished()
            ]
        )
    return found


def running(scheduler: Any) -> list[Any]:
    """Returns the running requests of all micro-batches."""
    return [r for requests in _by_batch(scheduler) for r in requests]


class Demand:
    """The demand of one scheduler within a round trip to the daemon. Confined
    to the scheduler's thread.

    SGLang lets a request in if there is room for what it and all running ones
    may still generate (PrefillAdder). While requests wait, the engine must
    therefore want that much; otherwise what the next steps compute.

    ahead: tokens for which a running request has room beyond those it has: the
    drafts of the step in flight and of the next one.
    """

    def __init__(self, scheduler: Any, ahead: int) -> None:
        self._scheduler = scheduler
        self._page = scheduler.page_size
        self._ahead = ahead
        # The most tokens of one sequence of a request in a step.
        self._a_step = max(1, ahead // 2)
        step = scheduler.chunked_prefill_size or scheduler.max_prefill_tokens
        # The most prompt tokens that these steps can read.
        self._most_tokens = _STEPS_PER_ROUND_TRIP * step

    def has_requests(self) -> bool:
        """Returns True if a request runs or waits."""
        scheduler = self._scheduler
        return bool(
            running(scheduler)
            or scheduler.waiting_queue
            or scheduler.chunked_req is not None
            or scheduler.grammar_manager.has_waiting_grammars()
        )

    @property
    def is_paused(self) -> bool:
        """True if no step is built. A pipeline goes on when it is paused."""
        scheduler = self._scheduler
        return bool(scheduler._engine_paused and len(_batches(scheduler)) == 1)

    def pages(self) -> int:
        """Returns the most pages that the requests can take; 0 for an engine
        without requests."""
        scheduler = self._scheduler
        begun = running(scheduler)
        # One that is paused keeps room for what has begun.
        waiting = [] if self.is_paused else list(scheduler.waiting_queue)
        if scheduler.chunked_req is not None:
            waiting.insert(0, scheduler.chunked_req)
        if not waiting:
            return sum(
                self._pages(
                    min(
                        _STEPS_PER_ROUND_TRIP * self._a_step * _sequences(request),
                        _left(request),
                    )
                )
                for request in begun
            )
        pages = sum(self._pages(_left(request)) for request in begun)
        # Each micro-batch keeps one extra page for the requests of the other
        # micro-batches (_longest), and SGLang wants more pages to be free than
        # it needs.
        batches = len(_batches(scheduler))
        pages += batches if batches > 1 else 0
        prompts = 0
        room = scheduler.max_running_requests - len(begun)
        for request in waiting[: max(0, room)]:
            tokens = len(request.origin_input_ids) + len(request.output_ids)
            pages += self._pages(tokens + _left(request))
            prompts += tokens
            if prompts >= self._most_tokens:
                break
        return pages

    def tokens_begun(self) -> int:
        """Returns the tokens that the request whose prompt is being read and
        one running request of each micro-batch can take until they end. If that
        much is free when slabs leave, one of these requests can always
        continue: the others can be retracted, each by its own micro-batch."""
        tokens = sum(map(self._longest, _by_batch(self._scheduler)))
        chunked = self._scheduler.chunked_req
        if chunked is not None:
            tokens += (
                len(chunked.origin_input_ids)
                + len(chunked.output_ids)
                - chunked.kv.kv_allocated_len
                + self._longest([chunked])
            )
        return tokens

    def tokens_of_others(self) -> int:
        """Returns the tokens that one running request of each micro-batch can
        take until it ends, without the micro-batch whose step begins."""
        scheduler = self._scheduler
        batches = _batches(scheduler)
        if len(batches) == 1:
            return 0
        return sum(
            self._longest(requests)
            for requests, batch in zip(_by_batch(scheduler), batches)
            if batch is not scheduler.running_batch
        )

    def _longest(self, requests: list[Any]) -> int:
        """Returns the most tokens that one of the requests can take; 0 if there
        are no requests."""
        ahead = self._ahead + 2 * self._page
        return max((_left(request) + ahead for request in requests), default=0)

    def _pages(self, tokens: int) -> int:
        """Returns the pages that one request takes for `tokens`, including its
        drafts and a partly filled page."""
        return -(-(tokens + self._ahead) // self._page) + 1


def _left(request: Any) -> int:
    """Returns the tokens that a request may still generate, as far as SGLang
    looks ahead."""
    most: int = request.sampling_params.max_new_tokens
    left = min(most - len(request.output_ids), CLIP_MAX_NEW_TOKENS)
    return max(0, left) * _sequences(request)


def _sequences(request: Any) -> int:
    """Returns the number of sequences that a request generates: one, or its
    beams (`beam_width`)."""
    beams = request.beam_group
    return 1 if beams is None else int(beams.beam_width)
