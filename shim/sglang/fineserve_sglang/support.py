"""Refuses what leases do not support yet, before the KV cache is allocated."""

from __future__ import annotations

import re
from typing import Any

import sglang
from sglang.srt.environ import envs

# Features that keep KV, or page numbers of it, in separate books, or split it
# over several pools; each with the flag that turns it on.
_REFUSED = {
    "hicache_storage_backend": "--hicache-storage-backend",
    "enable_hisparse": "--enable-hisparse",
    "enable_lmcache": "--enable-lmcache",
    "enable_flexkv": "--enable-flexkv",
    "enable_unified_cache_external_linker": (
        "--enable-unified-cache-external-linker"
    ),
    "enable_unified_memory": "--enable-unified-memory",
    "enable_session_radix_cache": "--enable-session-radix-cache",
    "enable_streaming_session": "--enable-streaming-session",
    "radix_cache_backend": "--radix-cache-backend",
    "enable_kv_cache_sharding": "--enable-kv-cache-sharding",
    "enable_pdmux": "--enable-pdmux",
    "prefill_only_disable_kv_cache": "--prefill-only-disable-kv-cache",
    "enable_multi_layer_eagle": "--enable-multi-layer-eagle",
    "dllm_algorithm": "--dllm-algorithm",
}
# Drafters whose drafts are verified in the slots that the model's allocator
# gives them.
_DRAFTERS = (None, "EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
_NO_VIEW = "unset FINESERVE_VIEW"  # a cure
# Sizes of engines whose ranks do not all decide and compute alike in each step.
# The ranks of --data-parallel-size are separate engines.
_SIZES = {
    "attn_dp_size": "--attention-data-parallel-size",
    "attn_cp_size": "--attention-context-parallel-size",
    "dcp_size": "--decode-context-parallel-size",
    "moe_dp_size": "--moe-data-parallel-size",
    "dwdp_size": "--dwdp-size",
    "ep_size": "--expert-parallel-size",
    "nnodes": "--nnodes",
}


def refuse(server_args: Any) -> None:
    """Raises RuntimeError, naming the flag, for a configuration that would
    corrupt or strand leased memory. Takes SGLang's ServerArgs."""
    for name, flag in _REFUSED.items():
        value = getattr(server_args, name)
        if value:
            raise RuntimeError(
                f"FineServe: {flag} is not supported on a view yet: remove it, "
                f"or unset FINESERVE_VIEW"
            )
    for name, flag in _SIZES.items():
        value = getattr(server_args, name)
        if value != 1:
            raise RuntimeError(
                f"FineServe: of several GPUs only --tensor-parallel-size, "
                f"--pipeline-parallel-size and --data-parallel-size are "
                f"supported on a view yet: set {flag} 1 (it is {value})"
            )
    if server_args.tp_size * server_args.pp_size > 1:
        _refuse_with_ranks(server_args)
    algorithm = server_args.speculative_algorithm
    if algorithm not in _DRAFTERS:
        raise RuntimeError(
            f"FineServe: --speculative-algorithm {algorithm} is not supported "
            f"on a view yet: set EAGLE, EAGLE3, NEXTN or STANDALONE"
        )
    if algorithm and server_args.enable_hierarchical_cache:
        raise RuntimeError(
            "FineServe: speculation and the hierarchical cache are not "
            "supported together yet: remove --speculative-algorithm or "
            "--enable-hierarchical-cache"
        )
    if server_args.disaggregation_mode != "null":
        raise RuntimeError(
            "FineServe: prefill and decode on different engines are not "
            "supported yet: set --disaggregation-mode null"
        )


def _refuse_with_ranks(server_args: Any) -> None:
    """Refuses features that let ranks decide differently, or that keep no books
    of a pipeline's micro-batches."""
    stages = server_args.pp_size > 1
    skips = "SGLANG_PP_SKIP_PURE_CHUNKED_OUTPUT_COMM"
    ranks = "--pipeline-parallel-size" if stages else "--tensor-parallel-size"
    for found, what in (
        # Each rank lets a request in when its own copy of the adapter has been
        # loaded.
        (
            server_args.enable_lora_overlap_loading,
            "--enable-lora-overlap-loading",
        ),
        # An engine that spans GPUs cannot leave them.
        (server_args.enable_memory_saver, "--enable-memory-saver"),
        (
            stages and server_args.speculative_algorithm,
            "--speculative-algorithm",
        ),
        (
            stages and server_args.enable_hierarchical_cache,
            "--enable-hierarchical-cache",
        ),
        # Only the first stage measures, and it uses pages that are not leased
        # yet.
        (
            stages and server_args.enable_dynamic_chunking,
            "--enable-dynamic-chunking",
        ),
        # A stage that skips a step gets its requests a step later.
        (
            stages and server_args.scheduler_recv_interval > 1,
            "--scheduler-recv-interval",
        ),
        # A step that skips this communication is processed before all stages
        # have run it.
        (stages and envs.SGLANG_PP_SKIP_PURE_CHUNKED_OUTPUT_COMM.get(), skips),
    ):
        if found:
            raise RuntimeError(
                f"FineServe: {ranks} and {what} are not supported together "
                f"yet: remove one of them"
            )


def _excluded(configurator: Any) -> tuple[tuple[Any, str, str], ...]:
    """Returns the features that are not supported yet with engine memory
    outside the view: whether each is on, its name, and the cure."""
    server_args = configurator.server_args
    return (
        (
            server_args.speculative_algorithm,
            "--speculative-algorithm",
            "remove it",
        ),
        (
            server_args.enable_hierarchical_cache,
            "--enable-hierarchical-cache",
            "remove it",
        ),
        (server_args.tp_size > 1, "--tensor-parallel-size", "set 1"),
        (server_args.pp_size > 1, "--pipeline-parallel-size", "set 1"),
        (configurator.use_mla_backend, "latents (MLA)", _NO_VIEW),
    )


def _refuse_windows(configurator: Any) -> None:
    """Refuses the features that are not supported with a separate pool for
    sliding windows. SGLang supports each of them without such a pool."""
    others = configurator.layer_info.full_attention_layer_ids
    for found, what, _ in (
        *_excluded(configurator),
        (not others, "a model without other layers", ""),
    ):
        if found:
            raise RuntimeError(
                f"FineServe: a pool of its own for sliding windows is not "
                f"supported with {what} yet: set --disable-hybrid-swa-memory"
            )
    if sglang_version() < (0, 5, 23):
        raise RuntimeError(
            "FineServe: a pool of its own for sliding windows needs SGLang "
            "0.5.23, because earlier versions may free pages that their cache "
            "still holds: set --disable-hybrid-swa-memory"
        )


def sglang_version() -> tuple[int, ...]:
    """Returns the first three numbers of SGLang's version."""
    numbers = re.findall(r"\d+", sglang.__version__)
    return tuple(int(number) for number in numbers[:3])


def _refuse_states(configurator: Any) -> None:
    """Refuses the features that are not supported with state-space layers."""
    attention = configurator.mambaish_config.full_attention_layer_ids
    windows = "a pool of its own for sliding windows"
    for found, what, cure in (
        *_excluded(configurator),
        (configurator.is_hybrid_swa, windows, _NO_VIEW),
        (not attention, "no attention", _NO_VIEW),
    ):
        if found:
            raise RuntimeError(
                f"FineServe: state-space layers with {what} are not supported "
                f"yet: {cure}"
            )


def refuse_model(configurator: Any) -> None:
    """Raises RuntimeError for a model whose KV cache is not one tensor per
    layer, of keys and values or of latents. Takes SGLang's
    KVCacheConfigurator."""
    from sglang.srt.configs.model_config import (
        is_deepseek_dsa,
        is_minimax_sparse,
    )
    from sglang.srt.layers.attention.qsa.config import is_qwen_qsa

    model = configurator.model_config
    if configurator.mambaish_config is not None:
        _refuse_states(configurator)
    if configurator.is_hybrid_swa:
        _refuse_windows(configurator)
    for found, what in (
        (
            is_deepseek_dsa(model.hf_config)
            or is_minimax_sparse(model.hf_config)
            or is_qwen_qsa(model.hf_config),
            "an indexer's keys beside its KV (sparse attention)",
        ),
        (
            not configurator.use_mla_backend
            and model.head_dim != model.v_head_dim,
            "values that are not as wide as keys",
        ),
    ):
        if found:
            raise RuntimeError(
                f"FineServe: an SGLang model with {what} is not supported yet: "
                f"unset FINESERVE_VIEW"
            )
