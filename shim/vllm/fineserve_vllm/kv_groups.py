"""How many blocks a request takes of a KV cache with one or several groups.

vLLM puts layers that keep KV in the same way into a group: full attention,
attention within a sliding window, the state of Mamba layers. Each group has a
block table of its own, and all take their block ids from the one block pool, so
that they share the leased slabs as requests need them: a window's blocks come
back while its request runs, a state takes a block or two for ever.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

_PLANNER = "get_kv_cache_groups"


def planner() -> Any:
    """vLLM's function that makes groups of layers.

    Raises:
        RuntimeError: this vLLM has none.
    """
    module = importlib.import_module("vllm.v1.core.kv_cache_utils")
    found = getattr(module, _PLANNER, None)
    if found is None:
        raise RuntimeError(
            f"FineServe: this vLLM version is not supported: "
            f"{module.__name__} defines no {_PLANNER}"
        )
    return found


def planned(vllm_config: Any, specs: dict[str, Any]) -> Sequence[Any]:
    """The groups that vLLM makes of the layers with these specs."""
    groups: Sequence[Any] = planner()(vllm_config, dict(specs))
    return groups


def pages(group: Any) -> list[int]:
    """The bytes that each layer of a group has in a block."""
    spec = group.kv_cache_spec
    # A group of layers that differ in size has a spec for each.
    of_layer = getattr(spec, "kv_cache_specs", {})
    return [
        of_layer.get(name, spec).page_size_bytes for name in group.layer_names
    ]


def block_bytes(groups: Sequence[Any]) -> int:
    """Groups overlay each other: a block is as large as the widest needs."""
    return max(sum(pages(group)) for group in groups)


def longest_request_blocks(groups: Sequence[Any], vllm_config: Any) -> int:
    """The blocks of a request of --max-model-len tokens, over all groups, by
    what vLLM itself requires of a KV cache."""
    specs = [group.kv_cache_spec for group in groups]
    return sum(
        -(-spec.max_memory_usage_bytes(vllm_config) // spec.page_size_bytes)
        for spec in specs
    )


def tokens_per_block(
    kv_cache_config: Any, max_model_len: int, longest_request: int
) -> int:
    """How many of a request's tokens a block holds, for a scheduler that counts
    tokens: with one group its block size, with several the average over the
    longest request."""
    groups = kv_cache_config.kv_cache_groups
    if len(groups) == 1:
        block_tokens: int = groups[0].kv_cache_spec.block_size
        return block_tokens
    return max(1, max_model_len // longest_request)


def block_sizes(kv_cache_config: Any) -> list[int]:
    """Tokens per block of each group."""
    return [
        group.kv_cache_spec.block_size
        for group in kv_cache_config.kv_cache_groups
    ]
