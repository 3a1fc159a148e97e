"""A stock SGLang engine that a test controls: one line of JSON in, one out.

    sglang_engine.py '{"model_path": DIR, ...}'    (SGLang's engine arguments)

The first answer says that it serves and how long its start took; each request
is a dict whose "do" names a function below, with its arguments.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import pathlib
import signal
import sys
import tempfile
import time
from typing import Any


def _sampling(tokens: int, **more: Any) -> dict[str, Any]:
    return {
        "temperature": 0,
        "max_new_tokens": tokens,
        "ignore_eos": "stop_token_ids" not in more,
    } | more


class Engine:
    def __init__(self, arguments: dict[str, Any]) -> None:
        import sglang

        self._model_path = arguments["model_path"]
        self._engine = sglang.Engine(**arguments)
        self._ranks = math.prod(
            arguments.get(size, 1) for size in ("dp_size", "pp_size", "tp_size")
        )

    def generate(
        self,
        prompts: list[list[int]],
        max_tokens: list[int],
        adapters: list[str | None] | None = None,
        **sampling: Any,
    ) -> dict[str, Any]:
        """Returns the tokens that follow each prompt: exactly the requested
        number, unless `stop_token_ids` end them."""
        began = time.monotonic()
        outputs = self._engine.generate(
            input_ids=prompts,
            sampling_params=[
                _sampling(count, **sampling) for count in max_tokens
            ],
            lora_path=adapters,
        )
        return {
            "tokens": [output["output_ids"] for output in outputs],
            "cached": sum(o["meta_info"]["cached_tokens"] for o in outputs),
            "retracted": sum(
                o["meta_info"]["num_retractions"] for o in outputs
            ),
            # Steps in which drafts were judged.
            "judged": sum(
                o["meta_info"].get("spec_verify_ct", 0) for o in outputs
            ),
            "seconds": time.monotonic() - began,
        }

    def generate_beside(
        self,
        process: int,
        until: int,
        prompts: list[list[int]],
        tokens: int,
    ) -> list[list[int]]:
        """Returns the `tokens` tokens that follow each prompt. `process` is
        stopped until the first prompt has got `until` tokens."""
        sampling = _sampling(tokens)

        async def first() -> list[dict[str, Any]]:
            parts = await self._engine.async_generate(
                input_ids=prompts[0], sampling_params=sampling, stream=True
            )
            count = 0
            async for part in parts:
                count += 1
                if count == until:
                    os.kill(process, signal.SIGCONT)
            return [part]

        async def all_of_them() -> list[list[int]]:
            outputs = await asyncio.gather(
                first(),
                self._engine.async_generate(
                    input_ids=prompts[1:], sampling_params=sampling
                ),
            )
            return [its["output_ids"] for part in outputs for its in part]

        os.kill(process, signal.SIGSTOP)
        try:
            found: list[list[int]] = self._engine.loop.run_until_complete(
                all_of_them()
            )
        finally:
            os.kill(process, signal.SIGCONT)
        return found

    def embed(self, prompts: list[list[int]]) -> list[list[float]]:
        from sglang.srt.managers.io_struct import EmbeddingReqInput

        # Engine.encode takes texts only.
        answers = self._engine.tokenizer_manager.generate_request(
            EmbeddingReqInput(input_ids=prompts), None
        )
        outputs = self._engine.loop.run_until_complete(answers.__anext__())
        return [output["embedding"] for output in outputs]

    def stats(self) -> dict[str, Any]:
        """Returns the figures of the first scheduler's process
        (host_device_sglang/observation.py)."""
        return self.stats_of_all()[0]

    def stats_of_all(self) -> list[dict[str, Any]]:
        """Returns the figures of all schedulers, in the order of their
        ranks."""
        from sglang.srt.managers.io_struct import RpcReqInput

        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "stats"
            os.mkfifo(path)
            # Opens the pipe for writing too, so that open() does not wait for
            # the schedulers.
            with open(os.open(path, os.O_RDWR)) as lines:
                # Engine.collective_rpc reaches no data-parallel rank.
                self._send(
                    RpcReqInput(
                        method="write_stats", parameters={"path": str(path)}
                    )
                )
                found = [
                    json.loads(lines.readline()) for _ in range(self._ranks)
                ]
        return sorted(found, key=lambda stats: stats["rank"])

    def _send(self, request: Any) -> None:
        self._engine.loop.run_until_complete(
            self._engine.tokenizer_manager._async_dispatch_to_scheduler(request)
        )

    def reload_weights(self) -> bool:
        done: bool = self._engine.update_weights_from_disk(self._model_path)[0]
        return done

    def flush(self) -> bool:
        return self._engine.flush_cache().success

    def release(self, tags: list[str] | None = None) -> None:
        self._engine.release_memory_occupation(tags)

    def resume(self, tags: list[str] | None = None) -> None:
        self._engine.resume_memory_occupation(tags)


def main() -> None:
    # Only answers may go to this process's stdout, but SGLang prints there too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    began = time.monotonic()
    engine = Engine(json.loads(sys.argv[1]))
    ready = {"serving": True, "seconds": time.monotonic() - began}
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(engine, request.pop("do"))(**request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":  # SGLang's processes import this file again
    main()
