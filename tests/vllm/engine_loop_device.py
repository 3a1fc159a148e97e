"""A device for EngineCore that runs no model but keeps a KV cache.

The KV entry of a position is a hash of all tokens up to it, and the next token
is a function of that entry: so a token is right only if every block that the
request's table names still holds what this request, or one with the same
prefix, wrote there. A step runs when EngineCore waits for its result, in the
order of submission, reading and writing through the block tables as they were
when it was scheduled: as on a stream.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

from engine_loop_checker import Checker, Step, Violation

_CANARY = -1  # in slabs that belong to another engine
_VOCABULARY = 50000
STOP = _VOCABULARY + 1  # never in a prompt


def _mix(entry: int, token: int) -> int:
    return (entry * 6364136223846793005 + token * 1442695040888963407 + 1) & (
        (1 << 61) - 1
    )


class Sequence:
    """The tokens a request must get, and the KV entries they leave.

    Args:
        stop_after: output length, in tokens, at which STOP is sampled; later
            than the request's max_tokens if it is to end by that.
    """

    def __init__(
        self, prompt: list[int], block_size: int, stop_after: int
    ) -> None:
        self.prompt_length = len(prompt)
        self._stop_at = len(prompt) + stop_after - 1
        self.tokens: list[int] = []
        self.rows: list[list[int]] = []  # entries by block
        self._block_size = block_size
        self._entry = 0
        for token in prompt:
            self._append(token)

    def extend(self, length: int) -> None:
        while len(self.tokens) < length:
            stop = len(self.tokens) == self._stop_at
            self._append(STOP if stop else self._entry % _VOCABULARY + 1)

    def _append(self, token: int) -> None:
        self._entry = _mix(self._entry, token)
        if len(self.tokens) % self._block_size == 0:
            self.rows.append([])
        self.rows[-1].append(self._entry)
        self.tokens.append(token)


@dataclasses.dataclass(frozen=True)
class _Work:
    """One request's part of a step: positions [start, end)."""

    request_id: str
    sequence: Sequence
    table: tuple[int, ...]
    start: int
    end: int
    samples: bool


class _Pending:
    """A step's result. Waiting for it runs the step."""

    def __init__(self, result: Callable[[], Any]) -> None:
        self._result = result

    def result(self, timeout: float | None = None) -> Any:
        return self._result()

    def done(self) -> bool:
        return False

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Does nothing: EngineCore logs failures through it, but ours
        propagate."""


class FakeExecutor(Executor):
    """Set `setup` before EngineCore constructs it."""

    @dataclasses.dataclass
    class Setup:
        num_blocks: int
        block_size: int
        checker: Checker
        sequences: dict[str, Sequence]
        kv: list[list[int]]

    setup: Setup

    def _init_executor(self) -> None:
        self.scheduler: Any = None  # set once EngineCore has built it
        self.preempted_in_flight = 0
        self._submitted: tuple[Step, list[_Work]] | None = None

    def initialize_from_config(self, kv_cache_configs: list[Any]) -> None:
        pass

    def compile_or_warm_up_model(self) -> None:
        pass

    def determine_available_memory(self) -> list[int]:
        return [1 << 30]

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        spec = FullAttentionSpec(
            block_size=self.setup.block_size,
            num_kv_heads=1,
            head_size=1,
            dtype=torch.float32,
        )
        return [{"layer": spec}]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["LBHNC"]]

    def set_kv_cache_layout(self, layout_name: str, *_: int) -> None:
        pass

    def collective_rpc(self, *args: Any, **kwargs: Any) -> list[Any]:
        return []

    def check_health(self) -> None:
        pass

    # The step.

    def execute_model(
        self, scheduler_output: Any, non_block: bool = False
    ) -> Any:
        step, work = self._submit(scheduler_output)
        if not work:

            def nothing() -> ModelRunnerOutput:
                self.setup.checker.completed(step)
                return EMPTY_MODEL_RUNNER_OUTPUT

            return _Pending(nothing)
        self._submitted = (step, work)
        return _Pending(lambda: None)

    def sample_tokens(
        self, grammar_output: Any, non_block: bool = False
    ) -> Any:
        assert self._submitted is not None
        step, work = self._submitted
        self._submitted = None
        pending = _Pending(lambda: self._run(step, work))
        return pending if non_block else pending.result()

    def _submit(self, scheduler_output: Any) -> tuple[Step, list[_Work]]:
        """Derives the step from the scheduler's state right after
        schedule()."""
        block_size = self.setup.block_size
        manager = self.scheduler.kv_cache_manager
        writes: set[int] = set()
        reads: set[int] = set()
        work = []
        for request_id, count in scheduler_output.num_scheduled_tokens.items():
            request = self.scheduler.requests[request_id]
            end = request.num_computed_tokens  # already advanced by count
            start = end - count
            (table,) = manager.get_block_ids(request_id)
            used = tuple(table[: -(-end // block_size)])
            writes.update(used[start // block_size :])
            reads.update(used)
            work.append(
                _Work(
                    request_id,
                    self.setup.sequences[request_id],
                    used,
                    start,
                    end,
                    samples=not request.is_prefill_chunk,
                )
            )
        assert not scheduler_output.kv_cache_block_copies
        return self.setup.checker.scheduled(writes, reads), work

    def _run(self, step: Step, work: list[_Work]) -> ModelRunnerOutput:
        # All tokens' entries are written before attention reads any, as happens
        # in every layer: vLLM lets a request join blocks that another request
        # fills in this step.
        for item in work:
            self._write(item)
        sampled = [self._attend(step, item) for item in work]
        self.setup.checker.completed(step)
        ids = [item.request_id for item in work]
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={id_: i for i, id_ in enumerate(ids)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )

    def _write(self, item: _Work) -> None:
        block_size, kv = self.setup.block_size, self.setup.kv
        sequence = item.sequence
        sequence.extend(item.end + 1)
        for position in range(item.start, item.end):
            i, slot = divmod(position, block_size)
            kv[item.table[i]][slot] = sequence.rows[i][slot]

    def _attend(self, step: Step, item: _Work) -> list[int]:
        kv, sequence = self.setup.kv, item.sequence
        sampled = [sequence.tokens[item.end]] if item.samples else []
        if not self.setup.checker.check_reads:
            return sampled
        whole, rest = divmod(item.end, self.setup.block_size)
        for i in range(whole):
            if kv[item.table[i]] != sequence.rows[i]:
                self._wrong(step, item, i)
        if rest and kv[item.table[whole]][:rest] != sequence.rows[whole][:rest]:
            self._wrong(step, item, whole)
        return sampled

    def _wrong(self, step: Step, item: _Work, i: int) -> None:
        raise Violation(
            f"step {step.number}: block {item.table[i]} does not hold "
            f"positions from {i * self.setup.block_size} of request "
            f"{item.request_id}"
        )


def new_kv(num_blocks: int, block_size: int) -> list[list[int]]:
    return [[_CANARY] * block_size for _ in range(num_blocks)]


def take_away(kv: list[list[int]], ids: range) -> None:
    """Marks the blocks of a slab that is now another engine's."""
    for block_id in ids:
        kv[block_id][:] = [_CANARY] * len(kv[block_id])


def untouched(kv: list[list[int]], ids: range) -> bool:
    """Returns True if the slab was not written since it was taken away."""
    return all(entry == _CANARY for i in ids for entry in kv[i])
