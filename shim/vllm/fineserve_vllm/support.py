"""Refuses what leases do not support yet, where the scheduler is built."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from fineserve_vllm import kv_abi, ranks, transfers

# Methods of speculative decoding that look at tokens only: they have no model
# and no KV.
_DRAFT_FROM_TOKENS = ("ngram", "ngram_gpu", "suffix")


def step_writes_after_its_tokens(vllm_config: Any) -> bool:
    """Returns True if a step may write KV after its tokens are there
    (fence.py)."""
    # The connector's work on blocks that have arrived is enqueued behind the
    # step's tokens, or by a step that has no tokens.
    if transfers.receives(vllm_config):
        return True
    if vllm_config.speculative_config is None:
        return False
    if _drafts_with_a_model(vllm_config):
        return True
    # The second model runner then moves the state of layers that keep one
    # (Mamba) to the block of the accepted tokens. Without drafts the state
    # stays where it is.
    return _has_states(vllm_config)


def _drafts_with_a_model(vllm_config: Any) -> bool:
    speculative = vllm_config.speculative_config
    return (
        speculative is not None
        and speculative.method not in _DRAFT_FROM_TOKENS
    )


def _has_states(vllm_config: Any) -> bool:
    model = vllm_config.model_config
    return bool(model.is_hybrid or model.is_attention_free)


def refuse(vllm_config: Any) -> None:
    """Raises RuntimeError, naming the flag to set, for a configuration that
    would corrupt or strand leased memory. Takes vLLM's VllmConfig."""
    parallel = vllm_config.parallel_config
    backend = parallel.distributed_executor_backend
    if parallel.world_size > 1 and not ranks.has_ranks(vllm_config):
        raise RuntimeError(
            f"FineServe: workers of the executor {backend} are not supported "
            f"yet: set --distributed-executor-backend mp"
        )
    if parallel.nnodes > 1:
        raise RuntimeError(
            f"FineServe: an engine on several machines is not supported yet: "
            f"set --nnodes 1 (it is {parallel.nnodes})"
        )
    refuse_eviction(vllm_config)
    if steps_with_other_engines(vllm_config):
        _refuse_with_idle_batches(vllm_config)
    transfer = vllm_config.kv_transfer_config
    if transfer is not None:
        _refuse_connector(vllm_config, transfer)
    model = vllm_config.model_config
    if model.enable_sleep_mode and model.sleep_mode_backend != "cumem":
        raise RuntimeError(
            f"FineServe: the sleep-mode backend {model.sleep_mode_backend} is "
            f"not supported, because it would free the KV cache itself: use "
            f"vLLM's own, cumem"
        )


def steps_with_other_engines(vllm_config: Any) -> bool:
    """Returns True for a data-parallel rank that computes a part of each other
    rank's step. A rank without a step then runs a batch that its scheduler has
    not built (an idle batch), because the others wait for its part. Ranks of a
    model without experts are independent: vLLM sets their size to 1."""
    parallel = vllm_config.parallel_config
    return bool(
        parallel.data_parallel_size > 1 and vllm_config.model_config.is_moe
    )


def _refuse_with_idle_batches(vllm_config: Any) -> None:
    """The slots of an idle batch are padding, and the second model runner
    points its states at the null block, which is in no slab. The first one
    leaves the states of earlier requests in place, and its draft model the
    slots of its last real step: an idle batch could write them after their
    blocks have been returned."""
    parallel = vllm_config.parallel_config
    for refused, cannot, flag in (
        (
            _has_states(vllm_config) and not vllm_config.use_v2_model_runner,
            "keep states by vLLM's first model runner",
            "set VLLM_USE_V2_MODEL_RUNNER=1",
        ),
        (
            _drafts_with_a_model(vllm_config),
            "draft with a model yet",
            "remove --speculative-config",
        ),
        (
            vllm_config.model_config.enable_sleep_mode,
            "wake up one at a time",
            "remove --enable-sleep-mode",
        ),
        (
            vllm_config.kv_transfer_config is not None,
            "use a KV connector yet",
            "remove --kv-transfer-config and --kv-offloading-size",
        ),
        (
            parallel.enable_elastic_ep,
            "change in number yet",
            "remove --enable-elastic-ep",
        ),
        (
            parallel.enable_fault_tolerance,
            "go on after a failed step yet",
            "remove --enable-fault-tolerance",
        ),
    ):
        if refused:
            refuse_alone(cannot, flag)


def refuse_eviction(vllm_config: Any) -> None:
    """Raises RuntimeError for an engine that must not leave the GPU (note 0039)
    while other engines step, with or without a view."""
    if kv_abi.may_be_evicted() and steps_with_other_engines(vllm_config):
        refuse_alone("leave the GPU one at a time", "unset FINESERVE_EVICT")


def refuse_alone(what: str, flag: str) -> NoReturn:
    raise RuntimeError(
        f"FineServe: data-parallel ranks of a model with experts (MoE) step "
        f"together and cannot {what}: {flag}"
    )


def _refuse_connector(vllm_config: Any, transfer: Any) -> None:
    connector = transfer.kv_connector
    if connector == "NixlPushConnector":
        raise RuntimeError(
            "FineServe: the KV connector NixlPushConnector is not supported, "
            "because another process writes the blocks, and neither this "
            "engine nor its end stops it: set NixlConnector, which reads them"
        )
    if connector != transfers.OFFLOADING and not transfers.receives(vllm_config):
        raise RuntimeError(
            f"FineServe: the KV connector {connector} is not supported, because "
            f"it may read and write blocks that have left the engine: "
            f"set NixlConnector, set --kv-offloading-size without "
            f"VLLM_USE_SIMPLE_KV_OFFLOAD, or remove --kv-transfer-config"
        )
    if vllm_config.model_config.enable_sleep_mode:
        raise RuntimeError(
            "FineServe: sleep mode and KV connectors are not supported "
            "together yet: remove --enable-sleep-mode, or "
            "--kv-transfer-config and --kv-offloading-size"
        )
    if transfers.receives(vllm_config) and ranks.has_ranks(vllm_config):
        raise RuntimeError(
            "FineServe: NixlConnector of workers that are processes of their "
            "own is not supported yet: remove --kv-transfer-config"
        )
    if transfers.receives(vllm_config) and transfer.kv_buffer_device != "cuda":
        raise RuntimeError(
            f"FineServe: NixlConnector's buffers in memory of the "
            f"{transfer.kv_buffer_device} are not supported yet: remove "
            f"kv_buffer_device from --kv-transfer-config"
        )


def refuse_allocator() -> None:
    """Raises RuntimeError for an environment in which the KV cache would not be
    allocated by one cuMemAlloc."""
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if "expandable_segments:True" in os.environ.get(name, ""):
            raise RuntimeError(
                f"FineServe: PyTorch's expandable segments would map the KV "
                f"cache piece by piece: remove expandable_segments:True from "
                f"{name}"
            )


def refuse_scheduler_class(cls: type, base: type) -> None:
    """Raises RuntimeError for a scheduler that overrides the step: it may skip
    the fence."""
    for name in ("schedule", "update_from_output"):
        if getattr(cls, name) is not getattr(base, name):
            raise RuntimeError(
                f"FineServe: {cls.__module__}.{cls.__qualname__} overrides "
                f"{name}(), so its steps cannot be counted: remove "
                f"--scheduler-cls"
            )
