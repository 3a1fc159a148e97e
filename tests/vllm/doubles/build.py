"""Builds a scheduler and runs steps, on vLLM or on the doubles."""

from __future__ import annotations

import importlib
import json
import pathlib
import tempfile
import types
from typing import Any

import doubles

REAL = doubles.prepare()
BLOCK_TOKENS = 16

_MODEL = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 64,
    "word_embed_proj_dim": 64,
    "ffn_dim": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 2048,
    "torch_dtype": "float16",
}


def scheduler(
    num_blocks: int, async_scheduling: bool = False, **changed: Any
) -> Any:
    """A new scheduler; `changed` goes into the configuration by path, as in
    parallel_config__nnodes=2."""
    vllm_config, kv_cache_config = configs(num_blocks, async_scheduling)
    for path, value in changed.items():
        owner: Any = types.SimpleNamespace(
            vllm_config=vllm_config, kv_cache_config=kv_cache_config
        )
        *parents, name = path.split("__")
        for parent in parents:
            owner = getattr(owner, parent)
        object.__setattr__(owner, name, value)
    name = "async_scheduler" if REAL and async_scheduling else "scheduler"
    module = importlib.import_module(f"vllm.v1.core.sched.{name}")
    cls = (
        module.AsyncScheduler if name == "async_scheduler" else module.Scheduler
    )
    return cls(
        vllm_config=vllm_config,
        kv_cache_config=kv_cache_config,
        structured_output_manager=_structured_output_manager(vllm_config),
        block_size=BLOCK_TOKENS,
    )


def configs(num_blocks: int, async_scheduling: bool) -> tuple[Any, Any]:
    if not REAL:
        from vllm.v1.kv_cache_interface import FullAttentionSpec

        spec = FullAttentionSpec(BLOCK_TOKENS, page_size_bytes=1)
        return types.SimpleNamespace(
            parallel_config=types.SimpleNamespace(
                world_size=1,
                nnodes=1,
                data_parallel_size=1,
                distributed_executor_backend="uni",
            ),
            model_config=types.SimpleNamespace(
                enable_sleep_mode=False,
                sleep_mode_backend="cumem",
                enable_cumem_allocator=False,
                max_model_len=2048,
                is_moe=False,
            ),
            cache_config=types.SimpleNamespace(kv_cache_layout=None),
            scheduler_config=types.SimpleNamespace(max_num_batched_tokens=512),
            max_in_flight_tokens=1024,
            kv_transfer_config=None,
            speculative_config=None,
        ), types.SimpleNamespace(
            num_blocks=num_blocks,
            kv_cache_groups=[
                types.SimpleNamespace(
                    layer_names=["layer"], kv_cache_spec=spec
                )
            ],
        )
    import torch
    from vllm import config
    from vllm.v1 import kv_cache_interface as kv

    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(_MODEL))
        model_config = config.ModelConfig(
            model=folder,
            skip_tokenizer_init=True,
            dtype="float16",
            seed=0,
            max_model_len=2048,
        )
        vllm_config = config.VllmConfig(
            model_config=model_config,
            scheduler_config=config.SchedulerConfig(
                max_num_seqs=8,
                max_num_batched_tokens=512,
                max_model_len=2048,
                is_encoder_decoder=False,
                async_scheduling=async_scheduling,
            ),
            cache_config=config.CacheConfig(
                block_size=BLOCK_TOKENS, enable_prefix_caching=True
            ),
            device_config=config.DeviceConfig("cpu"),
        )
    vllm_config.cache_config.num_gpu_blocks = num_blocks
    spec = kv.FullAttentionSpec(
        block_size=BLOCK_TOKENS,
        num_kv_heads=1,
        head_size=1,
        dtype=torch.float32,
    )
    return vllm_config, kv.KVCacheConfig(
        num_blocks=num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[kv.KVCacheGroupSpec(["layer"], spec)],
    )


def _structured_output_manager(vllm_config: Any) -> Any:
    if not REAL:
        return None
    from vllm.v1.structured_output import StructuredOutputManager

    return StructuredOutputManager(vllm_config)


def add_request(scheduler: Any, name: str, num_tokens: int) -> None:
    """A request that generates for a long time."""
    if not REAL:
        from vllm.v1.request import Request as request_double

        manager = scheduler.kv_cache_manager
        manager.held[name] = manager.block_pool.get_new_blocks(
            -(-num_tokens // BLOCK_TOKENS)
        )
        scheduler.running.append(request_double(name, num_tokens))
        return
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import (
        get_request_block_hasher,
        init_none_hash,
    )
    from vllm.v1.request import Request

    init_none_hash(sha256)
    params = SamplingParams(max_tokens=1000, ignore_eos=True)
    scheduler.add_request(
        Request(
            request_id=name,
            prompt_token_ids=[hash((name, i)) % 100 for i in range(num_tokens)],
            sampling_params=params,
            pooling_params=None,
            block_hasher=get_request_block_hasher(BLOCK_TOKENS, sha256),
        )
    )


def finish_request(scheduler: Any, name: str) -> None:
    if not REAL:
        (request,) = (r for r in scheduler.running if r.request_id == name)
        scheduler.running.remove(request)
        scheduler.kv_cache_manager.free(request)
        return
    from vllm.v1.request import RequestStatus

    scheduler.finish_requests([name], RequestStatus.FINISHED_ABORTED)


def process(scheduler: Any, output: Any) -> None:
    """Processes a step's result as the engine does: one token per request."""
    if not REAL:
        scheduler.update_from_output(output, None)
        return
    from vllm.v1.outputs import ModelRunnerOutput

    names = list(output.num_scheduled_tokens)
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[[1] for _ in names],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        ),
    )


def step(scheduler: Any) -> Any:
    output = scheduler.schedule()
    process(scheduler, output)
    return output
