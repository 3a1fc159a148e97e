#!/usr/bin/env python3
"""vLLM's own EngineCore, Scheduler and KVCacheManager on moving leases.

    engine_loop.py --steps 100000 --async --seed 1 [--json FILE]

Run with an environment that has vLLM, and PYTHONPATH=shim/vllm. Only the
executor is ours (engine_loop_device.py); with --async EngineCore keeps two
steps in flight. Random requests with shared prefixes, aborts and cache resets,
against a lessor that leases and asks back slabs at random between a floor (one
longest request) and the whole view. Exits 1 on the first violation.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import pathlib
import random
import sys
import tempfile
import time
from typing import Any

# Set before vLLM is imported, because a CPU-only job may have an accelerator's
# wheel.
os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
os.environ.setdefault("VLLM_PLUGINS", "")  # install() is called here
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

logging.getLogger("vllm").setLevel(logging.CRITICAL)

import vllm  # noqa: E402
from vllm.config import (  # noqa: E402
    CacheConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.v1.engine.core import EngineCore  # noqa: E402
from vllm.v1.request import Request  # noqa: E402

import engine_loop_device as device  # noqa: E402
import upstream_models  # noqa: E402
from engine_loop_checker import (  # noqa: E402
    CheckedGrants,
    Checker,
    Violation,
)
from fineserve_vllm import plugin  # noqa: E402
from fineserve_vllm.engine_leases import AskBackOptions  # noqa: E402
from fineserve_vllm.grants import Slab  # noqa: E402

BLOCK_SIZE = 4  # tokens
BLOCKS_PER_SLAB = 8
SLAB_COUNT = 12
NUM_BLOCKS = (SLAB_COUNT + 1) * BLOCKS_PER_SLAB  # index 0 is private
MAX_PROMPT, MAX_OUTPUT = 48, 24  # tokens
# Slabs for one request of the longest length (19 blocks), like the daemon's
# floor.
FLOOR = 3
# Number of steps within which an ask-back must be met: a heuristic, about
# thirty times what the longest request needs alone.
ASK_BACK_BOUND = 2000


@dataclasses.dataclass
class Options:
    steps: int = 3000
    seed: int = 1
    async_scheduling: bool = True
    preempt: bool = False
    stock: bool = False
    # For the tests of the checker: if False, steps that only read a returned
    # slab are ignored, to show that the checker finds a step that writes one.
    check_reads: bool = True


@dataclasses.dataclass
class Totals:
    steps: int = 0
    empty_steps: int = 0
    finished: int = 0
    aborted: int = 0
    tokens: int = 0
    preemptions: int = 0
    cache_queries: int = 0
    cache_hits: int = 0
    cache_resets: int = 0
    leased: int = 0
    asked_back: int = 0
    returned: int = 0
    returned_with_steps_in_flight: int = 0
    longest_wait_steps: int = 0
    mean_wait_steps: float = 0.0
    idle_returns: int = 0
    seconds: float = 0.0

    @property
    def hit_rate(self) -> float:
        return self.cache_hits / max(1, self.cache_queries)


def _config(
    async_scheduling: bool, folder: pathlib.Path, num_blocks: int
) -> VllmConfig:
    config = upstream_models.MODELS["facebook/opt-125m"]["config"]
    (folder / "config.json").write_text(json.dumps(config))
    cache = CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True)
    cache.num_gpu_blocks_override = num_blocks
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder),
            dtype="float16",
            skip_tokenizer_init=True,
            max_model_len=MAX_PROMPT + MAX_OUTPUT,
        ),
        cache_config=cache,
        scheduler_config=SchedulerConfig(
            max_num_seqs=8,
            max_num_batched_tokens=64,
            max_model_len=MAX_PROMPT + MAX_OUTPUT,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=async_scheduling,
        ),
    )
    # The CPU platform turns async scheduling off because of its workers; our
    # worker is a fake.
    vllm_config.scheduler_config.async_scheduling = async_scheduling
    # The CPU platform also puts each worker in a separate process; ours is in
    # this one.
    vllm_config.parallel_config.distributed_executor_backend = "uni"
    assert vllm_config.cache_config.block_size == BLOCK_SIZE
    return vllm_config


class Loop:
    """One engine, its clients and its lessor."""

    slab_count = SLAB_COUNT
    blocks_per_slab = BLOCKS_PER_SLAB
    executor: type[device.FakeExecutor] = device.FakeExecutor

    @property
    def num_blocks(self) -> int:
        return (self.slab_count + 1) * self.blocks_per_slab

    def __init__(self, options: Options) -> None:
        self.options = options
        self.totals = Totals()
        self.random = random.Random(options.seed)
        self.slabs = [
            Slab(
                i,
                range(i * self.blocks_per_slab, (i + 1) * self.blocks_per_slab),
            )
            for i in range(1, self.slab_count + 1)
        ]
        self.checker = Checker(self.slabs, self.num_blocks, options.check_reads)
        self.kv = device.new_kv(self.num_blocks, BLOCK_SIZE)
        self.sequences: dict[str, device.Sequence] = {}
        self.received: dict[str, list[int]] = {}  # live requests' output
        self.due: dict[str, int] = {}  # their output length
        self._next_id = 0
        self._families = [
            [self.random.randrange(1, 50000) for _ in range(MAX_PROMPT)]
            for _ in range(6)
        ]
        self._low_tide = 0
        self.grants: CheckedGrants | None = None
        self._build()

    def _install(self) -> None:
        """Makes the engine use leases of this loop."""

        def grants(num_blocks: int) -> CheckedGrants:
            assert num_blocks == self.num_blocks
            self.grants = CheckedGrants(
                self.slabs,
                range(1, self.slab_count // 2 + 1),
                self.checker,
                self._on_return,
            )
            return self.grants

        # At deadline 0 preemption is immediate and repeatable.
        deadline = 0.0 if self.options.preempt else 1e9
        plugin.install(
            grants,
            ask_back=AskBackOptions(
                deadline_s=deadline, preempt=self.options.preempt
            ),
        )

    def _build(self) -> None:
        if self.options.stock:
            # vLLM's pool has the whole view, without leases.
            self.checker.held.update(range(self.slab_count + 1))
        else:
            self._install()
        self.executor.setup = device.FakeExecutor.Setup(
            self.num_blocks, BLOCK_SIZE, self.checker, self.sequences, self.kv
        )
        with tempfile.TemporaryDirectory() as folder:
            self.core = EngineCore(
                _config(
                    self.options.async_scheduling,
                    pathlib.Path(folder),
                    self.num_blocks,
                ),
                self.executor,
                log_stats=True,
            )
        depth = self.core.batch_queue_size
        assert depth >= 2 if self.options.async_scheduling else depth == 1
        self.scheduler = self.core.scheduler
        self.core.model_executor.scheduler = self.scheduler
        if engine := plugin.leases_of(self.scheduler):
            # An EngineCoreProc calls has_requests() in each turn, so nothing
            # else has to wait for the device between two steps.
            engine.attach(lambda: None)
        manager = self.scheduler.kv_cache_manager
        pool = manager.block_pool
        assert pool.num_gpu_blocks == self._blocks_at_start()
        self.checker.blocks = pool.blocks
        self.checker.tables = lambda: {
            request_id: manager.get_block_ids(request_id)[0]
            for request_id in self.scheduler.requests
        }
        self._watch(pool)

    def _blocks_at_start(self) -> int:
        if self.options.stock:
            return self.num_blocks
        return 1 + self.slab_count // 2 * self.blocks_per_slab

    def _watch(self, pool: Any) -> None:
        """Checks what the pool hands out, and counts preemptions."""
        get_new_blocks = pool.get_new_blocks

        def checked(count: int) -> Any:
            blocks = get_new_blocks(count)
            if not self.options.stock:
                self._handed_out([block.block_id for block in blocks])
            return blocks

        pool.get_new_blocks = checked
        preempt = self.scheduler._preempt_request

        def counted(*args: Any, **kwargs: Any) -> None:
            self.totals.preemptions += 1
            preempt(*args, **kwargs)

        self.scheduler._preempt_request = counted

    def _handed_out(self, block_ids: list[int]) -> None:
        self.checker.handed_out(block_ids)

    # The lessor.

    def _on_return(self, index: int) -> None:
        device.take_away(self.kv, self.slabs[index - 1].ids)

    def _move_leases(self) -> None:
        grants, checker = self.grants, self.checker
        if grants is None:
            return
        for slab in self.slabs:
            if slab.index not in checker.held and not device.untouched(
                self.kv, slab.ids
            ):
                raise Violation(
                    f"step {checker.steps}: slab {slab.index} was written "
                    f"after it had been returned"
                )
        if self.random.random() >= 0.06:
            return
        # Tides come and go, so that memory is sometimes scarce for long.
        if self.random.random() < 0.03:
            self._low_tide = not self._low_tide
        staying = sorted(checker.held - checker.asked_back.keys())
        free = sorted({slab.index for slab in self.slabs} - checker.held)
        shrink = self.random.random() < (0.75 if self._low_tide else 0.35)
        count = self.random.choice((1, 1, 1, 2, self.slab_count))
        if shrink:
            count = min(count, len(staying) - FLOOR)
            for index in self.random.sample(staying, max(0, count)):
                grants.ask_back(index)
                self.totals.asked_back += 1
        else:
            for index in self.random.sample(free, min(count, len(free))):
                grants.lease(index)
                self.totals.leased += 1
        plugin.wake_all()

    # The clients.

    def _add_request(self) -> None:
        family = self.random.choice(self._families)
        shared = self.random.randrange(0, MAX_PROMPT - 8)
        fresh = self.random.randrange(1, min(9, MAX_PROMPT - shared))
        prompt = family[:shared] + [
            self.random.randrange(1, 50000) for _ in range(fresh)
        ]
        request_id = f"r{self._next_id}"
        self._next_id += 1
        # A stop token ends a request by surprise: with async scheduling, its
        # next step is then in flight. vLLM foresees an end by length.
        max_tokens = self.random.randrange(1, MAX_OUTPUT + 1)
        stop_after = self.random.randrange(1, 2 * MAX_OUTPUT)
        parameters = SamplingParams(
            max_tokens=max_tokens,
            ignore_eos=True,
            stop_token_ids=[device.STOP],
        )
        self.sequences[request_id] = device.Sequence(
            prompt, BLOCK_SIZE, stop_after
        )
        self.received[request_id] = []
        self.due[request_id] = min(max_tokens, stop_after)
        self.core.add_request(
            Request(
                request_id=request_id,
                prompt_token_ids=prompt,
                sampling_params=parameters,
                pooling_params=None,
                block_hasher=self.core.request_block_hasher,
            )
        )

    def _clients(self, may_add: bool) -> None:
        if may_add and len(self.received) < 14 and self.random.random() < 0.35:
            self._add_request()
        if self.received and self.random.random() < 0.012:
            request_id = self.random.choice(list(self.received))
            # Aborts a request during a step, as a client's disconnection does.
            self.core.aborts_queue.put_nowait([request_id])
            del self.received[request_id]
            self.totals.aborted += 1
        if self.random.random() < 0.001:
            running = self.random.random() < 0.5
            self.totals.cache_resets += self.scheduler.reset_prefix_cache(
                reset_running_requests=running
            )

    def _receive(self, outputs: dict[int, Any] | None) -> None:
        for batch in (outputs or {}).values():
            for output in batch.outputs:
                self._receive_output(output)
            stats = batch.scheduler_stats
            if stats is not None and stats.prefix_cache_stats is not None:
                self.totals.cache_queries += stats.prefix_cache_stats.queries
                self.totals.cache_hits += stats.prefix_cache_stats.hits

    def _receive_output(self, output: Any) -> None:
        request_id = output.request_id
        if request_id not in self.received:
            return  # aborted, the step was in flight
        received = self.received[request_id]
        received += output.new_token_ids
        self.totals.tokens += len(output.new_token_ids)
        if output.finish_reason is None:
            return
        sequence = self.sequences.pop(request_id)
        begin, count = sequence.prompt_length, self.due.pop(request_id)
        if received != sequence.tokens[begin : begin + count]:
            raise Violation(
                f"step {self.checker.steps}: request {request_id} got "
                f"{len(received)} tokens, {count} were due, or wrong ones"
            )
        del self.received[request_id]
        self.totals.finished += 1

    # The loop.

    def _step(self) -> None:
        """One turn of EngineCoreProc's busy loop, without blocking."""
        core = self.core
        if not (self.scheduler.has_requests() or core.batch_queue):
            self.checker.check_idle()
            return
        outputs, executed = core.step_fn()
        core.post_step(executed)
        self._receive(outputs)
        if not executed:
            self.totals.empty_steps += 1

    def run(self) -> Totals:
        begin = time.perf_counter()
        arrivals_stop = 0
        while self.checker.steps < self.options.steps:
            self._clients(self.checker.steps >= arrivals_stop)
            if self.random.random() < 0.002:  # let it run dry and idle
                arrivals_stop = self.checker.steps + 60
            elif not self.received:
                arrivals_stop -= self.random.random() < 0.2
            idle, before = not self.received, self.checker.returned
            self._move_leases()
            self._step()
            if idle:
                self.totals.idle_returns += self.checker.returned - before
            if self.checker.steps % 64 == 0:
                self._tidy()
        self._finish()
        self.totals.seconds = time.perf_counter() - begin
        return self.totals

    def _tidy(self) -> None:
        self.checker.check_waits(ASK_BACK_BOUND)
        alive = self.scheduler.requests.keys() | self.received.keys()
        for request_id in self.sequences.keys() - alive:  # aborted
            del self.sequences[request_id], self.due[request_id]

    def _finish(self) -> None:
        """Finishes all requests, and then checks that all slabs can be taken
        back."""
        for _ in range(20_000):
            if not (self.scheduler.has_requests() or self.core.batch_queue):
                break
            self._step()
        if self.received:
            raise Violation(f"requests never finished: {sorted(self.received)}")
        checker, totals = self.checker, self.totals
        if self.grants is not None:
            for index in sorted(checker.held - checker.asked_back.keys()):
                self.grants.ask_back(index)
                totals.asked_back += 1
            plugin.wake_all()
            while self.scheduler.has_requests() or self.core.batch_queue:
                self._step()
            checker.check_idle()
            if checker.held or self.scheduler.kv_cache_manager.usage != 0:
                raise Violation(
                    f"an idle engine keeps slabs {sorted(checker.held)}"
                )
        totals.steps = checker.steps
        totals.returned = checker.returned
        totals.returned_with_steps_in_flight = (
            checker.returned_with_steps_in_flight
        )
        totals.longest_wait_steps = max(checker.waits, default=0)
        totals.mean_wait_steps = sum(checker.waits) / max(1, len(checker.waits))

    def close(self) -> None:
        plugin.uninstall()


def run(options: Options) -> Totals:
    loop = Loop(options)
    try:
        return loop.run()
    finally:
        loop.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--async", action="store_true", dest="async_scheduling")
    parser.add_argument(
        "--preempt", action="store_true", help="preempt holders at ask-back"
    )
    parser.add_argument(
        "--stock", action="store_true", help="vLLM's pool, the whole view"
    )
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    values = vars(arguments).copy()
    path = values.pop("json")
    options = Options(**values)
    print(f"vLLM {vllm.__version__}, {options}", flush=True)
    try:
        totals = run(options)
    except Violation as violation:
        print(f"FAILED (seed {options.seed}): {violation}")
        return 1
    report = {
        "version": vllm.__version__,
        "options": dataclasses.asdict(options),
        "hit_rate": totals.hit_rate,
        "steps_per_s": totals.steps / totals.seconds,
        **dataclasses.asdict(totals),
    }
    for name, value in report.items():
        if name not in ("version", "options"):
            print(f"  {name:<32}{value:>14,.6g}")
    if path:
        path.write_text(
            json.dumps({"version": vllm.__version__, "loop": [report]})
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
