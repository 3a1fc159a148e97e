"""An engine wants room for its requests only."""

from __future__ import annotations

import collections
import types
import unittest
from collections.abc import Iterator, Sequence
from typing import Any

import doubles

doubles.prepare()

from fineserve_vllm.demand import Demand  # noqa: E402
from fineserve_vllm.kv_groups import Taken  # noqa: E402
from vllm.v1.core.sched.interface import PauseState  # noqa: E402

BLOCK_TOKENS = 16
MOST_TOKENS = 512  # in a step
MOST_REQUESTS = 8
MOST_BLOCKS = 10_000  # of a request
ATTENTION = Taken(BLOCK_TOKENS, MOST_BLOCKS)


def request(num_tokens: int, computed: int = 0) -> Any:
    return types.SimpleNamespace(
        num_tokens=num_tokens,
        num_computed_tokens=computed,
        # As vLLM reports it for running requests once a step is built.
        is_prefill_chunk=0 < computed < num_tokens - 1,
    )


def blocks(
    running: list[Any],
    waiting: list[Any] | None = None,
    drafted: int = 0,
    groups: Sequence[Taken] = (ATTENTION,),
    loaded: list[Any] | None = None,
    watermark_blocks: int = 0,
    paused: PauseState = PauseState.UNPAUSED,
) -> int:
    scheduler = types.SimpleNamespace(
        pause_state=paused,
        running=running,
        waiting=waiting or [],
        kv_holding_waiting=loaded or [],
        max_num_scheduled_tokens=MOST_TOKENS,
        max_num_running_reqs=MOST_REQUESTS,
        num_spec_tokens=drafted,
        kv_cache_manager=types.SimpleNamespace(
            watermark_blocks=watermark_blocks
        ),
    )
    return Demand(scheduler, groups).blocks()


class Growing:
    """A request that, when it is read, adds another to the queue, as another
    thread would."""

    num_computed_tokens = 0

    def __init__(self, queue: collections.deque[Any]) -> None:
        self._queue = queue

    @property
    def num_tokens(self) -> int:
        self._queue.append(request(160))
        return 160


class Interrupted(collections.deque[Any]):
    """A queue that gets another request as soon as it is read, as from another
    thread."""

    def __iter__(self) -> Iterator[Any]:
        found = super().__iter__()
        if len(self) < 3:
            self.append(request(160))
        return found


class DemandTest(unittest.TestCase):
    def test_an_engine_without_requests_needs_no_room(self) -> None:
        self.assertEqual(blocks([]), 0)

    def test_a_request_that_generates_needs_a_block_or_two(self) -> None:
        self.assertEqual(blocks([request(100, 99)]), 2)
        self.assertEqual(blocks([request(100, 99)] * 8), 8 + 3)

    def test_a_prompt_needs_what_is_not_computed_of_it(self) -> None:
        self.assertEqual(blocks([], [request(160)]), 11 + 1)
        self.assertEqual(blocks([request(160, 80)]), 6 + 1)

    def test_the_rest_of_a_prompt_that_is_being_computed_needs_room(
        self,
    ) -> None:
        generating = [request(100, 99)] * 3
        tokens = 3 * 5 + (5 + 90)
        self.assertEqual(
            blocks([*generating, request(160, 70)]),
            -(-tokens // BLOCK_TOKENS) + 4,
        )

    def test_a_preempted_request_needs_all_its_blocks_again(self) -> None:
        self.assertEqual(
            blocks([request(20, 19)], [request(320)]),
            -(-(5 + 324) // BLOCK_TOKENS) + 2,
        )

    def test_a_request_loaded_from_the_host_needs_the_rest_of_its_blocks(
        self,
    ) -> None:
        loaded = [request(160, 80)]
        self.assertEqual(blocks([], loaded=loaded), 6 + 1)
        self.assertEqual(
            blocks([], [request(160)], loaded=loaded),
            -(-(84 + 164) // BLOCK_TOKENS) + 2,
        )

    def test_output_that_is_not_known_yet_takes_nothing_away(self) -> None:
        # Async scheduling computes tokens before they are counted.
        self.assertEqual(blocks([request(100, 102)]), 2)

    def test_drafted_tokens_need_room_too(self) -> None:
        self.assertEqual(blocks([request(100, 99)], drafted=7), 3 + 1)

    def test_each_group_of_layers_takes_blocks_of_its_own(self) -> None:
        prompt = [request(160)]
        groups = (ATTENTION, Taken(64, MOST_BLOCKS))
        self.assertEqual(blocks([], prompt, groups=groups), 12 + 4)

    def test_a_window_takes_only_what_vllm_lets_it(self) -> None:
        window = Taken(BLOCK_TOKENS, most=20)
        self.assertEqual(blocks([], [request(100)], groups=(window,)), 7 + 1)
        prompts = [request(5000), request(100)]
        of_all = -(-(5004 + 104) // BLOCK_TOKENS) + 2
        self.assertEqual(
            blocks([], prompts[::-1], groups=(ATTENTION, window)),
            of_all + 8 + 20,
        )

    def test_a_request_begins_with_the_blocks_that_hold_no_tokens(self) -> None:
        encoded = Taken(BLOCK_TOKENS, most=0, fixed=94)
        drafts = Taken(1000, most=1, fixed=3)
        for group, running in ((encoded, 2), (drafts, 2)):
            with self.subTest(group):
                one, two = ([request(160)] * n for n in (1, 2))
                beside = [request(100, 99)]
                self.assertEqual(blocks(beside, groups=(group,)), running)
                self.assertEqual(
                    blocks(beside, two, groups=(group,))
                    - blocks(beside, one, groups=(group,)),
                    group.fixed + 1,
                )

    def test_a_prompt_of_many_steps_needs_all_its_blocks_to_be_let_in(
        self,
    ) -> None:
        all_of_it = -(-100_004 // BLOCK_TOKENS) + 1
        self.assertEqual(blocks([], [request(100_000)]), all_of_it)
        # The next prompt has to wait until the steps have advanced that far.
        self.assertEqual(blocks([], [request(100_000)] * 3), all_of_it)

    def test_the_first_that_waits_counts_beside_a_prompt_of_many_steps(
        self,
    ) -> None:
        tokens = 5 + 90_000 + 1004
        self.assertEqual(
            blocks([request(100_000, 10_000)], [request(1000)] * 3),
            -(-tokens // BLOCK_TOKENS) + 2,
        )

    def test_only_the_prompts_that_the_steps_of_a_round_trip_compute(
        self,
    ) -> None:
        four = -(-4 * (MOST_TOKENS + 4) // BLOCK_TOKENS) + 4
        self.assertEqual(blocks([], [request(MOST_TOKENS)] * 8), four)

    def test_free_blocks_at_admission_are_room_for_it(
        self,
    ) -> None:
        self.assertEqual(
            blocks([request(100, 99)], [request(160)], watermark_blocks=30),
            -(-(5 + 164) // BLOCK_TOKENS) + 2 + 30,
        )
        self.assertEqual(blocks([request(100, 99)], watermark_blocks=30), 2)

    def test_a_paused_engine_needs_room_for_what_has_begun(
        self,
    ) -> None:
        running, waiting = [request(100, 99)], [request(160)]
        loaded = [request(160, 80)]
        for paused in (PauseState.PAUSED_NEW, PauseState.PAUSED_ALL):
            with self.subTest(paused):
                self.assertEqual(
                    blocks(running, waiting, loaded=loaded, paused=paused),
                    blocks(running, loaded=loaded),
                )

    def test_requests_may_come_while_those_that_wait_are_looked_at(
        self,
    ) -> None:
        for queue in ("waiting", "loaded"):
            with self.subTest(queue):
                requests = collections.deque([request(160)] * 2)
                requests[0] = Growing(requests)
                queues: dict[str, Any] = {"waiting": [], queue: requests}
                self.assertEqual(
                    blocks([], **queues),
                    -(-2 * 164 // BLOCK_TOKENS) + 2,
                )

    def test_a_queue_that_changes_as_its_copy_begins_is_copied_again(
        self,
    ) -> None:
        self.assertEqual(
            blocks([], Interrupted([request(160)])),
            -(-3 * 164 // BLOCK_TOKENS) + 3,
        )

    def test_only_the_requests_that_run_at_a_time(self) -> None:
        self.assertEqual(
            blocks([request(10, 9)] * 5, [request(1)] * 1000),
            -(-(5 * 5 + 3 * 5) // BLOCK_TOKENS) + MOST_REQUESTS,
        )
