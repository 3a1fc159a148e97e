#!/usr/bin/env python3
"""An engine on vLLM's doubles with a view of a real daemon's pool.

Run under the preload on the emulated device, steered by a test: lines of JSON
in, one line out each. It starts as vLLM does (plugin, KV cache, warm-up,
scheduler), then serves as many requests at once as it is asked to. A request's
KV entries are a hash of all before them, in device memory, checked in every
step; a step runs while the next is scheduled, as with async scheduling.

  {"do": "load", "requests": 8}   from now on; answers with the report
  {"do": "report"}
  {"do": "wait", "for": "leased", "at_least": 5}   or at_most; in steps
"""

from __future__ import annotations

import collections
import importlib
import json
import os
import random
import sys
import threading
import time
from typing import Any

import doubles

doubles.prepare()

from device_kv import Device, SlabTable, Worker  # noqa: E402
from doubles import build  # noqa: E402
from fineserve_vllm import kv_abi, plugin  # noqa: E402
from vllm.v1.kv_cache_interface import KVCacheTensor  # noqa: E402

BLOCK_TOKENS = 16
LONGEST = 6 * BLOCK_TOKENS  # tokens of a request
_DEADLINE_S = 120


def entry(seed: int, position: int) -> int:
    return hash((seed, position)) & ((1 << 61) - 1)


class Request:
    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed
        self.length = random.Random(seed).randrange(8, LONGEST + 1)
        self.done = 0  # tokens in the KV cache
        self.request_id = name


class Engine:
    def __init__(
        self, layout: str, layers: int, page: int, blocks: int
    ) -> None:
        plugin.register()
        device = Device()
        self.weights = device.allocate(4 << 20)
        wrapper = worker_wrapper(Worker(device))
        wrapper.initialize_from_config(
            [kv_cache_config(layout, layers, page, blocks)]
        )
        self.kv = wrapper.worker.kv
        for block in range(1, blocks):  # warm-up writes where it likes
            self.kv[block][0] = -1
        self.scheduler = build.scheduler(blocks)
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.table = SlabTable()
        self.slab_of = {
            block: slab.index
            for slab in self.pool.grants.slabs()
            for block in slab.ids
        }
        self.load = 0
        self.requests: dict[str, Request] = {}
        self.in_flight: collections.deque[tuple[Any, list[Any]]] = (
            collections.deque()
        )
        self.totals = dict.fromkeys(("steps", "finished", "tokens"), 0)
        self.most = self.least = len(self.pool.linked)

    # Runs one step as EngineCore does with a second step in flight.

    def step(self) -> None:
        output = self.scheduler.schedule()
        self._admit()
        work = []
        for request in list(self.requests.values()):
            work.append((request, self._table(request), request.done))
            request.done += 1
        self._require_leased(work)
        # Requests end unexpectedly, while the step that notices it is in
        # flight.
        for request in list(self.requests.values()):
            if request.done == request.length:
                del self.requests[request.name]
                build.finish_request(self.scheduler, request.name)
                self.totals["finished"] += 1
        self.in_flight.append((output, work))
        if len(self.in_flight) > 1 or not work:
            self._complete()
        self.totals["steps"] += 1
        leased = len(self.pool.linked)
        self.most, self.least = max(self.most, leased), min(self.least, leased)

    def _require_leased(self, work: list[Any]) -> None:
        used = {block for _, table, _ in work for block in table}
        self.table.require_leased({self.slab_of[block] for block in used})

    def _table(self, request: Request) -> list[int]:
        (ids,) = self.scheduler.kv_cache_manager.get_block_ids(request.name)
        return ids

    def _admit(self) -> None:
        while len(self.requests) < self.load:
            number = self.totals["finished"] + len(self.requests)
            request = Request(f"r{number}", random.randrange(1 << 40))
            blocks = -(-request.length // BLOCK_TOKENS)
            if self.pool.get_num_free_blocks() < blocks:
                return
            build.add_request(self.scheduler, request.name, request.length)
            self.requests[request.name] = request

    def _complete(self) -> None:
        while self.in_flight:
            output, work = self.in_flight.popleft()
            self._require_leased(work)  # still, though requests have ended
            for request, table, position in work:
                self._run(request, table, position)
            build.process(self.scheduler, output)
            if self.requests:
                return  # the newest stays in flight

    def _run(self, request: Request, table: list[int], position: int) -> None:
        block, slot = divmod(position, BLOCK_TOKENS)
        self.kv[table[block]][slot] = entry(request.seed, position)
        first = min(position + 1, BLOCK_TOKENS)  # slots in use of block 0
        for i, count in ((0, first), (block, slot + 1)):
            start = i * BLOCK_TOKENS
            expected = [entry(request.seed, start + s) for s in range(count)]
            if self.kv[table[i]] != expected:
                raise AssertionError(
                    f"{request.name}: block {table[i]} does not hold positions "
                    f"from {start}"
                )
        self.totals["tokens"] += 1

    def report(self) -> dict[str, Any]:
        stats = kv_abi.Shim().stats()
        return self.totals | {
            "leased": len(self.pool.linked),
            "held": stats.leased_slabs,
            "least": self.least,
            "most": self.most,
            "wanted": stats.wanted_slabs,
            "running": len(self.requests),
            "driver_calls_serving": stats.driver_calls_serving,
            "returned": stats.returned_slabs,
            "used": stats.used_blocks,
            "slabs": len(self.pool.grants.slabs()),
            "null_block": self.pool.null_block.block_id,
        }


def worker_wrapper(worker: Worker) -> Any:
    module = importlib.import_module("vllm.v1.worker.worker_base")
    wrapper = module.WorkerWrapperBase()
    wrapper.worker = worker
    wrapper.vllm_config, _ = build.configs(2, False)
    wrapper.vllm_config.model_config.max_model_len = LONGEST
    return wrapper


def kv_cache_config(layout: str, layers: int, page: int, blocks: int) -> Any:
    """page: bytes of a block in one layer."""
    _, config = build.configs(blocks, False)
    outermost = layout == "blocks"
    config.kv_cache_tensors = [
        KVCacheTensor(
            size=layers * page * blocks,
            layers=[f"layer{i}" for i in range(layers)],
            layer_stride=page if outermost else page * blocks,
            block_stride=layers * page if outermost else page,
        )
    ]
    config.kv_cache_groups[0].layer_names = config.kv_cache_tensors[0].layers
    return config


class Core(importlib.import_module("vllm.v1.engine.core").EngineCoreProc):
    """An EngineCore with a busy loop that sleeps while there is nothing to
    do."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.scheduler)
        self.engine = engine
        self.commands: collections.deque[dict[str, Any]] = collections.deque()
        self.waits: list[tuple[float, dict[str, Any]]] = []

    def has_work(self) -> bool:
        engine = self.engine
        return (
            super().has_work()
            or bool(self.commands or engine.in_flight or engine.load)
        )

    def _notify_idle_state_callbacks(self) -> None:
        self._answer_waits()

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._tick, daemon=True).start()
        while True:
            self._process_input_queue()
            while self.commands:
                self._obey(self.commands.popleft())
            self.engine.step()
            self._answer_waits()
            time.sleep(0.0005)

    def _tick(self) -> None:
        """Wakes an idle engine so that it checks its waits, but not its
        leases."""
        while True:
            time.sleep(0.05)
            self.input_queue.put(None)

    def _listen(self) -> None:
        for line in sys.stdin:
            self.commands.append(json.loads(line))
            self.input_queue.put(None)
        os._exit(0)

    def _obey(self, command: dict[str, Any]) -> None:
        if command["do"] == "load":
            self.engine.load = command["requests"]
        if command["do"] == "wait":
            self.waits.append((time.monotonic() + _DEADLINE_S, command))
        else:
            say(self.engine.report())

    def _answer_waits(self) -> None:
        for wait in list(self.waits):
            deadline, command = wait
            report = self.engine.report()
            value = report[command["for"]]
            if (
                command.get("at_least", value)
                <= value
                <= command.get("at_most", value)
                or time.monotonic() > deadline
            ):
                self.waits.remove(wait)
                say(report)


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    layout, layers, page, blocks = json.loads(sys.argv[1])
    engine = Engine(layout, layers, page, blocks)
    say(engine.report())
    Core(engine).run()


if __name__ == "__main__":
    main()
