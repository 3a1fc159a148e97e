"""Blocks that a request takes of a hybrid's KV cache: by the shape that the
plugin sends to the daemon, and by vLLM's own managers.

On vLLM itself (label vllm); nothing computes.
"""

from __future__ import annotations

import random
import types
import unittest
from typing import Any

import doubles

REAL = doubles.prepare()

from fineserve_vllm import kv_groups  # noqa: E402
from fineserve_vllm.demand import Demand  # noqa: E402
from fineserve_vllm.kv_groups import Kind, Shape  # noqa: E402

BLOCK = 16  # tokens
LONGEST = 131_072  # tokens of a request
STEP = 2048  # --max-num-batched-tokens
ENCODED = 1500  # tokens of an encoder's output

if REAL:
    import torch
    from vllm.sampling_params import SamplingParams
    from vllm.v1 import kv_cache_interface as kv
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.kv_cache_layout import KVCacheLayout
    from vllm.v1.request import Request


def vllm_config(steps: int = 1, drafted: int = 0) -> Any:
    return types.SimpleNamespace(
        cache_config=types.SimpleNamespace(
            num_gpu_blocks_override=None,
            mamba_cache_mode="none",
            get_resolved_kv_cache_layout=lambda: KVCacheLayout.BLHNC,
        ),
        model_config=types.SimpleNamespace(
            max_model_len=LONGEST, supports_kv_cache_grouping=False
        ),
        scheduler_config=types.SimpleNamespace(
            disable_hybrid_kv_cache_manager=False, max_num_batched_tokens=STEP
        ),
        parallel_config=types.SimpleNamespace(
            decode_context_parallel_size=1, prefill_context_parallel_size=1
        ),
        attention_config=types.SimpleNamespace(hisparse_config=None),
        speculative_config=(
            types.SimpleNamespace(num_speculative_tokens=drafted)
            if drafted
            else None
        ),
        num_prefill_lookahead_tokens=0,
        max_in_flight_tokens=steps * STEP,
    )


def attention(cls: Any, **more: Any) -> Any:
    return cls(
        block_size=BLOCK,
        num_kv_heads=16,
        head_size=128,
        dtype=torch.bfloat16,
        **more,
    )


def groups(*specs: tuple[int, Any]) -> list[Any]:
    """Returns `count` groups of one layer each for every (count, spec)."""
    found = []
    for count, spec in specs:
        for _ in range(count):
            name = f"layer{len(found)}"
            found.append(kv.KVCacheGroupSpec([name], spec))
    return found


def gemma() -> list[Any]:
    """Returns the groups of Gemma 3 27B: 10 layers attend to everything, 52 to
    1,024 tokens."""
    every = attention(kv.FullAttentionSpec)
    window = attention(kv.SlidingWindowSpec, sliding_window=1024)
    return list(
        kv_groups.planned(
            vllm_config(),
            {
                f"layer{i}": every if i % 6 == 5 else window
                for i in range(62)
            },
        )
    )


def blocks_of(shape: Shape, tokens: int, in_flight: int) -> int:
    """Computes the same as daemon/contract/abi/kv_shape.h."""
    blocks = shape.states
    for kind, count in shape.groups:
        its = -(-tokens // kind.block_tokens)
        if kind.window:
            kept = kind.window - 1 + in_flight
            its = min(its, -(-kept // kind.block_tokens) + 1)
        blocks += count * its
    return blocks


class Sequence:
    """One request in vLLM's KVCacheManager, with steps in flight."""

    def __init__(self, its_groups: list[Any], tokens: int, steps: int) -> None:
        self.manager = KVCacheManager(
            kv.KVCacheConfig(
                num_blocks=4000,
                kv_cache_tensors=[],
                kv_cache_groups=its_groups,
            ),
            max_model_len=LONGEST,
            scheduler_block_size=LONGEST,
            hash_block_size=BLOCK,
        max_in_flight_tokens=steps * STEP,
            enable_caching=False,
        )
        self.request = Request(
            request_id="request",
            prompt_token_ids=[1] * tokens,
            sampling_params=SamplingParams(max_tokens=4096),
            pooling_params=None,
        )
        self.steps = steps
        self.in_flight: list[int] = []
        self.free = self.manager.block_pool.get_num_free_blocks()

    def step(self, tokens: int) -> int:
        """Begins a step; returns the number of blocks that the request then
        has."""
        if len(self.in_flight) == self.steps:
            self.in_flight.pop(0)
        request = self.request
        request.num_in_flight_tokens = sum(self.in_flight)
        found = self.manager.allocate_slots(request, tokens)
        assert found is not None
        request.num_computed_tokens += tokens
        self.in_flight.append(tokens)
        return self.free - self.manager.block_pool.get_num_free_blocks()

    def fill(self) -> int:
        """Fills the prompt; returns the most blocks that the request had on the
        way."""
        most = 0
        left = self.request.num_prompt_tokens
        while left:
            step = min(left, STEP)
            most = max(most, self.step(step))
            left -= step
        return most


@unittest.skipUnless(REAL, "needs vLLM")
class KvGroupsTest(unittest.TestCase):
    def test_gemmas_window_is_six_groups(self) -> None:
        shape = kv_groups.shape(gemma(), vllm_config())
        self.assertEqual(
            shape,
            Shape(((Kind(BLOCK, 0), 1), (Kind(BLOCK, 1024), 6)), 0, STEP, 1),
        )
        self.assertEqual(blocks_of(shape, 1000, STEP), 441)
        self.assertEqual(Sequence(gemma(), 1000, 1).fill(), 441)

    def test_the_longest_request_takes_what_vllm_requires(self) -> None:
        shape = kv_groups.shape(gemma(), vllm_config())
        self.assertEqual(
            blocks_of(shape, LONGEST, shape.filling),
            kv_groups.longest_request_blocks(gemma(), vllm_config()),
        )

    def test_each_type_of_layer_takes_what_it_should(self) -> None:
        state: dict[str, Any] = {"shapes": ((4, 4),), "dtypes": (torch.uint8,)}
        for name, spec in {
            "window": attention(kv.SlidingWindowSpec, sliding_window=100),
            "chunk": attention(
                kv.ChunkedLocalAttentionSpec, attention_chunk_size=128
            ),
            "state": kv.MambaSpec(block_size=LONGEST, **state),
            "states": kv.MambaSpec(
                block_size=32, mamba_cache_mode="all", **state
            ),
        }.items():
            for seed in range(20):
                with self.subTest(name, seed=seed):
                    rng = random.Random(seed)
                    steps = rng.randint(1, 3)
                    self.check(spec, steps, rng.randint(1, 4 * STEP))

    def check(self, spec: Any, steps: int, tokens: int) -> None:
        """Checks three groups of such layers beside a group that keeps
        everything."""
        every = attention(kv.FullAttentionSpec)
        its_groups = groups((1, every), (3, spec))
        shape = kv_groups.shape(its_groups, vllm_config(steps))
        sequence = Sequence(its_groups, tokens, steps)
        reported = blocks_of(shape, tokens, shape.filling)
        most = sequence.fill()
        self.assertLessEqual(most, reported)
        if tokens <= STEP:
            self.assertEqual(most, reported)
        for _ in range(steps):  # the prompt's last steps end
            sequence.step(1)
        for answered in range(steps + 1, 60):
            reported = blocks_of(shape, tokens + answered, shape.answering)
            most = sequence.step(1)
            self.assertLessEqual(most, reported)
            if isinstance(spec, kv.ChunkedLocalAttentionSpec):
                continue  # behind a chunk's end it keeps nothing
            # A window's ends may be anywhere in their blocks.
            self.assertGreaterEqual(most, reported - 3 * 2)

    def test_aligned_states_and_drafts_are_counted(self) -> None:
        spec = kv.MambaSpec(
            block_size=BLOCK,
            shapes=((4, 4),),
            dtypes=(torch.uint8,),
            mamba_cache_mode="align",
            num_speculative_blocks=3,
        )
        config = vllm_config(steps=2, drafted=3)
        config.cache_config.mamba_cache_mode = "align"
        self.assertEqual(
            kv_groups.shape(groups((2, spec)), config),
            Shape((), 2 * (2 + 3), 2 * STEP, 2 * (1 + 3)),
        )

    def test_blocks_for_an_admission_are_wanted(self) -> None:
        state: dict[str, Any] = {"shapes": ((4, 4),), "dtypes": (torch.uint8,)}
        for name, spec in {
            "all": attention(kv.FullAttentionSpec),
            "window": attention(kv.SlidingWindowSpec, sliding_window=1000),
            "chunk": attention(
                kv.ChunkedLocalAttentionSpec, attention_chunk_size=1024
            ),
            "encoder": attention(kv.CrossAttentionSpec),
            "state": kv.MambaSpec(
                block_size=LONGEST, num_speculative_blocks=5, **state
            ),
            "states": kv.MambaSpec(
                block_size=32, mamba_cache_mode="all", **state
            ),
            "aligned": kv.MambaSpec(
                block_size=512, mamba_cache_mode="align", **state
            ),
        }.items():
            for tokens in (1, 100, 3000, 60_000, LONGEST):
                with self.subTest(name, tokens=tokens):
                    self.check_let_in(spec, tokens)

    def check_let_in(self, spec: Any, tokens: int) -> None:
        config = vllm_config()
        config.scheduler_config.max_num_encoder_input_tokens = ENCODED
        aligned = getattr(spec, "mamba_cache_mode", "") == "align"
        if aligned:
            config.cache_config.mamba_cache_mode = "align"
        cache = kv.KVCacheConfig(
            num_blocks=4000,
            kv_cache_tensors=[],
            kv_cache_groups=groups((1, spec)),
        )
        manager = KVCacheManager(
            cache,
            max_model_len=LONGEST,
            scheduler_block_size=LONGEST,
            hash_block_size=BLOCK,
            max_in_flight_tokens=STEP,
            enable_caching=False,
        )
        required = manager.coordinator.get_num_blocks_to_allocate(
            request_id="waiting",
            num_tokens=tokens,
            new_computed_blocks=([],),
            num_encoder_tokens=ENCODED,
            total_computed_tokens=0,
            num_local_computed_tokens=0,
            num_tokens_main_model=tokens,
            apply_admission_cap=True,
        )
        request = types.SimpleNamespace(
            num_tokens=tokens, num_computed_tokens=0
        )
        scheduler = types.SimpleNamespace(
            running=[],
            waiting=[request],
            kv_holding_waiting=[],
            pause_state=PauseState.UNPAUSED,
            max_num_scheduled_tokens=STEP,
            max_num_running_reqs=8,
            num_spec_tokens=0,
            kv_cache_manager=manager,
        )
        wanted = Demand(scheduler, kv_groups.taken(cache, config)).blocks()
        self.assertGreaterEqual(wanted, required)
        self.assertLessEqual(wanted, required + 2 + aligned)

    def test_many_kinds_become_four_that_take_no_less(self) -> None:
        every = attention(kv.FullAttentionSpec)
        windows = [
            (1, attention(kv.SlidingWindowSpec, sliding_window=size))
            for size in (32, 64, 128, 256, 512)
        ]
        its_groups = groups((1, every), *windows)
        shape = kv_groups.shape(its_groups, vllm_config())
        self.assertEqual(len(shape.groups), 4)
        self.assertEqual(sum(count for _, count in shape.groups), 6)
        for tokens in (10, 1000, 10_000):
            reported = blocks_of(shape, tokens, STEP)
            self.assertGreaterEqual(
                reported, Sequence(its_groups, tokens, 1).fill()
            )
