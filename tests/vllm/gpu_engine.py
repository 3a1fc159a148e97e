"""A stock vLLM engine that a test controls: one line of JSON in, one out.

    gpu_engine.py '{"model": DIR, ...}'    (vLLM's engine arguments)

The first answer says that it serves and how long its start took; each request
is a dict whose "do" names a function below, with its arguments.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

# Only answers may go to this process's stdout, but vLLM prints there too.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

_began = time.monotonic()


class Engine:
    def __init__(self, arguments: dict[str, Any]) -> None:
        from vllm import LLM

        self._llm = LLM(**arguments)

    def generate(
        self,
        prompts: list[list[int]],
        max_tokens: list[int],
        adapters: list[str | None] | None = None,
        **sampling: Any,
    ) -> dict[str, Any]:
        """Returns exactly as many tokens after each prompt as were asked for.
        `adapters`: the folder of each prompt's LoRA adapter, or None."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        folders = sorted(filter(None, set(adapters or [])))
        began = time.monotonic()
        outputs = self._llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts],
            [
                SamplingParams(
                    max_tokens=count,
                    ignore_eos=True,
                    detokenize=False,
                    **({"temperature": 0} | sampling),
                )
                for count in max_tokens
            ],
            use_tqdm=False,
            lora_request=adapters
            and [
                path and LoRARequest(path, 1 + folders.index(path), path)
                for path in adapters
            ],
        )
        return {
            "tokens": [list(o.outputs[0].token_ids) for o in outputs],
            "seconds": time.monotonic() - began,
            # Without disable_log_stats.
            "first_token_s": [
                o.metrics.first_token_latency for o in outputs if o.metrics
            ],
            "ended": time.monotonic(),
        }

    def sleep(self, level: int) -> list[str]:
        """Returns the tags that are asleep, or the error's text if it
        failed."""
        try:
            self._llm.sleep(level)
        except Exception as error:
            return [str(error)]
        return self._sleeping_tags()

    def wake_up(self, tags: list[str] | None = None) -> list[str]:
        """Returns the tags that are still asleep, or the error's text if waking
        up is refused."""
        try:
            self._llm.wake_up(tags)
        except Exception as error:
            return [str(error)]
        return self._sleeping_tags()

    def _sleeping_tags(self) -> list[str]:
        return ["asleep"] if self._llm.llm_engine.is_sleeping() else []

    def reload_weights(self) -> None:
        """Reloads the weights, which sleep at level 2 has dropped."""
        self._in_workers("reload_weights")

    def metrics(self) -> dict[str, int]:
        """Returns vLLM's counters since its start; needs
        disable_log_stats=False."""
        return {
            metric.name.removeprefix("vllm:"): metric.value
            for metric in self._llm.get_metrics()
            if hasattr(metric, "value")
        }

    def stats(self) -> dict[str, Any]:
        """Returns the figures of EngineCore's process, which is also the
        worker's. If the engine's workers are separate processes, returns the
        sums over them."""
        stats = self._in_workers(worker_stats)
        if len(stats) == 1:
            return stats[0]
        return {"pids": [one["pid"] for one in stats]} | {
            name: sum(one[name] for one in stats)
            for name in ("stray_writes", "dirty_parts", "skipped_kernels")
            + ("driver_calls_serving", "enqueued")
            if name in stats[0]
        } | {"waited": {str(i): sum(one.get("waited", {}).values())
                        for i, one in enumerate(stats)}}

    def stats_of_all(self) -> list[dict[str, Any]]:
        """Returns the figures of all workers, in the order of their ranks."""
        return self._in_workers(worker_stats)

    def call(self, module: str, function: str) -> Any:
        """Calls a module's function in EngineCore's process and returns its
        result."""
        (answer,) = self.call_all(module, function)
        return answer

    def call_all(self, module: str, function: str) -> list[Any]:
        """Calls a module's function in all workers and returns the results in
        the order of their ranks."""

        def there(_worker: Any) -> Any:
            import importlib

            return getattr(importlib.import_module(module), function)()

        return self._in_workers(there)

    def _in_workers(self, what: str | Callable[[Any], Any]) -> list[Any]:
        return self._llm.collective_rpc(what)


class Asynchronous(Engine):
    """An engine behind the front end of `vllm serve`. It can have several
    EngineCores, which `LLM` refuses, and its requests can be aborted."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._llm = self._wait(self._start(arguments))
        self._asked = 0
        self._under_way: list[asyncio.Task[Any]] = []

    async def _start(self, arguments: dict[str, Any]) -> Any:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))

    def generate(
        self,
        prompts: list[list[int]],
        max_tokens: list[int],
        rank: int | None = None,
        **sampling: Any,
    ) -> dict[str, Any]:
        """As Engine.generate. `rank`: the data-parallel rank that serves the
        requests; by default the front end chooses one for each."""
        began = time.monotonic()
        tokens = self._wait(self._generate(prompts, max_tokens, sampling, rank))
        return {"tokens": tokens, "seconds": time.monotonic() - began}

    async def _generate(
        self,
        prompts: list[list[int]],
        max_tokens: list[int],
        sampling: dict[str, Any],
        rank: int | None,
    ) -> list[list[int]]:
        outputs = await asyncio.gather(*[
            self._output(prompt, count, sampling, rank)
            for prompt, count in zip(prompts, max_tokens)
        ])
        return [list(one.outputs[0].token_ids) for one in outputs]

    async def _output(
        self,
        prompt: list[int],
        count: int,
        sampling: dict[str, Any],
        rank: int | None = None,
    ) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self._asked += 1
        parameters = SamplingParams(
            max_tokens=count,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **({"temperature": 0} | sampling),
        )
        async for output in self._llm.generate(
            {"prompt_token_ids": prompt},
            parameters,
            str(self._asked),
            data_parallel_rank=rank,
        ):
            last = output
        return last

    def begin(
        self,
        prompts: list[list[int]],
        max_tokens: list[int],
        transfers: list[dict[str, Any]],
        **sampling: Any,
    ) -> int:
        """Sends requests whose KV comes from or goes to another engine;
        finish() waits for them. `transfers`: vLLM's kv_transfer_params of
        each."""
        return self._wait(
            self._begin(
                prompts,
                max_tokens,
                [
                    sampling | {"extra_args": {"kv_transfer_params": transfer}}
                    for transfer in transfers
                ],
            )
        )

    async def _begin(
        self,
        prompts: list[list[int]],
        max_tokens: list[int],
        samplings: list[dict[str, Any]],
    ) -> int:
        self._under_way += [
            asyncio.ensure_future(self._output(*given))
            for given in zip(prompts, max_tokens, samplings)
        ]
        return len(self._under_way)

    def abort(self, indices: list[int]) -> None:
        """Cancels requests under way; `indices` in the order of begin()."""
        for i in indices:
            self._loop.call_soon_threadsafe(self._under_way[i].cancel)

    def finish(self) -> dict[str, Any]:
        """Returns the tokens of all requests, and the KV that other engines may
        read. Both are null for a request that was aborted or has failed."""
        outputs = [
            None if isinstance(one, BaseException) else one
            for one in self._wait(self._finish())
        ]
        return {
            "tokens": [one and list(one.outputs[0].token_ids) for one in outputs],
            "transfers": [one and one.kv_transfer_params for one in outputs],
        }

    async def _finish(self) -> list[Any]:
        under_way, self._under_way = self._under_way, []
        return await asyncio.gather(*under_way, return_exceptions=True)

    def _in_workers(self, what: str | Callable[[Any], Any]) -> list[Any]:
        of_ranks = self._wait(self._ask_all(what))
        return [one for answers in of_ranks for one in answers]

    async def _ask_all(self, what: str | Callable[[Any], Any]) -> list[Any]:
        """Asks all ranks, because vLLM's own collective_rpc() returns only the
        first rank's answer."""
        core = self._llm.engine_core
        return await asyncio.gather(*[
            core._call_utility_async(
                "collective_rpc", what, None, (), None, engine=rank
            )
            for rank in core.core_engines
        ])

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def worker_stats(worker: Any) -> dict[str, Any]:
    from fineserve_vllm import kv_abi, plugin, view

    scheduler = worker.vllm_config.scheduler_config
    found = {
        "pid": os.getpid(),
        "device": worker.device.index,
        "async_scheduling": scheduler.async_scheduling,
    }
    if view.is_wanted():
        stats = kv_abi.Shim().stats()
        found |= {name: getattr(stats, name) for name, _ in stats._fields_}
        for engine in plugin._engines:  # none in a worker alone
            found["slabs_returned"] = engine.counters.returned
            found["let_go"] = engine.counters.let_go
    if "HOST_DEVICE_LIBRARY" in os.environ:
        found |= observed_on_the_host()
    return found


def observed_on_the_host() -> dict[str, Any]:
    import ctypes

    import torch
    from host_device_vllm import observation

    driver = ctypes.CDLL("libcuda.so.1")
    driver.emucuda_skipped_launches.restype = ctypes.c_uint64
    host_device = torch.ops.host_device
    return {
        "skipped_kernels": driver.emucuda_skipped_launches(),
        "enqueued": host_device.enqueued(),
        "waited": dict(host_device.waited()),
        "fence_waits": observation.fence_waits,
        "stray_writes": observation.stray_writes,
        "watched_writes": observation.watched_writes,
        "stray_copies": observation.stray_copies,
        "copies": observation.copies,
        "dirty_parts": observation.dirty_parts,
        "idle_batches": observation.idle_batches,
    } | observation.transfers()


def main() -> None:
    arguments = json.loads(sys.argv[1])
    asynchronous = arguments.pop("asynchronous", False)
    asynchronous |= arguments.get("data_parallel_size", 1) > 1
    engine = (Asynchronous if asynchronous else Engine)(arguments)
    ready = {"serving": True, "seconds": time.monotonic() - _began}
    print(json.dumps(ready), file=_answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(engine, request.pop("do"))(**request)
        print(json.dumps(answer), file=_answers, flush=True)


if __name__ == "__main__":
    main()
