"""The blocks that a request takes of a KV cache with one or several groups.

vLLM puts layers that keep KV in the same way into a group: full attention,
attention within a sliding window, the state of Mamba layers. Each group has a
block table of its own, and all take their block ids from the one block pool, so
that they share the leased slabs as requests need them: a window's blocks come
back while its request runs, a state takes a block or two for ever.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

# Takes a VllmConfig and the specs of one worker's layers.
Planner = Callable[[Any, dict[str, Any]], Sequence[Any]]


def planner() -> Planner:
    """vLLM's function that makes groups of layers, from 0.33 on with what the
    model and the platform have to say about it.

    Raises:
        RuntimeError: this vLLM has none.
    """
    found = _defined("kv_cache_planning", "get_global_kv_cache_groups")
    if found is not None:
        return lambda vllm_config, specs: found(vllm_config, [specs])
    before_0_33: Planner | None = _defined(
        "kv_cache_utils", "get_kv_cache_groups"
    )
    if before_0_33 is None:
        raise RuntimeError(
            "FineServe: this vLLM version is not supported: it defines neither "
            "get_global_kv_cache_groups nor get_kv_cache_groups"
        )
    return before_0_33


def _defined(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(f"vllm.v1.core.{module}"), name)
    except (AttributeError, ModuleNotFoundError):
        return None


def planned(vllm_config: Any, specs: dict[str, Any]) -> Sequence[Any]:
    """Returns the groups that vLLM makes of the layers with these specs."""
    return planner()(vllm_config, dict(specs))


def pages(group: Any) -> list[int]:
    """Returns the bytes that each layer of a group has in a block."""
    spec = group.kv_cache_spec
    # A group whose layers differ in size has a spec for each layer.
    of_layer = getattr(spec, "kv_cache_specs", {})
    return [
        of_layer.get(name, spec).page_size_bytes for name in group.layer_names
    ]


def block_bytes(groups: Sequence[Any]) -> int:
    """Returns the bytes of a block. Groups share the same blocks, so a block is
    as large as the widest group needs."""
    return max(sum(pages(group)) for group in groups)


def longest_request_blocks(groups: Sequence[Any], vllm_config: Any) -> int:
    """Returns the blocks that a request of --max-model-len tokens takes in all
    groups, according to what vLLM itself requires of a KV cache."""
    return sum(
        _most_blocks(group.kv_cache_spec, vllm_config) for group in groups
    )


def longest_length(
    groups: Sequence[Any], vllm_config: Any, blocks: int
) -> int:
    """Returns the length in tokens, at most --max-model-len, of the longest
    request that fits into these blocks; 0 if no request fits."""
    model = vllm_config.model_config
    longest: int = model.max_model_len

    def fits(length: int) -> bool:
        model.max_model_len = length  # where vLLM's specs read it
        return longest_request_blocks(groups, vllm_config) <= blocks

    low, high = 0, longest
    try:
        while low < high:
            middle = (low + high + 1) // 2
            if fits(middle):
                low = middle
            else:
                high = middle - 1
    finally:
        model.max_model_len = longest
    return low


def _most_blocks(spec: Any, vllm_config: Any) -> int:
    """Returns the most blocks that one request takes in a group."""
    most: int = spec.max_memory_usage_bytes(vllm_config)
    return -(-most // spec.page_size_bytes)


def tokens_per_block(
    kv_cache_config: Any, max_model_len: int, longest_request: int
) -> int:
    """Returns how many of a request's tokens a block holds, for a scheduler
    that counts tokens: the block size if there is one group, otherwise the
    average over the longest request."""
    groups = kv_cache_config.kv_cache_groups
    if len(groups) == 1:
        block_tokens: int = groups[0].kv_cache_spec.block_size
        return block_tokens
    return max(1, max_model_len // longest_request)


@dataclasses.dataclass(frozen=True, order=True)
class Kind:
    """A way in which groups keep KV: a token attends to `window` tokens,
    including itself, or to all tokens if `window` is 0."""

    block_tokens: int
    window: int


@dataclasses.dataclass(frozen=True)
class Shape:
    """The blocks that a request takes (fs_kv_format).

    groups: how many there are of a kind.
    states: blocks that hold no tokens.
    filling, answering: tokens of one request in flight at most, while its
    prompt is filled and after that.
    """

    groups: tuple[tuple[Kind, int], ...] = ()
    states: int = 0
    filling: int = 0
    answering: int = 0


_KINDS = 4  # that fs_kv_format has room for


def shape(groups: Sequence[Any], vllm_config: Any) -> Shape:
    """Returns the blocks that a request takes, by the rules of vLLM's block
    managers (SingleTypeKVCacheManager)."""
    counts: collections.Counter[Kind] = collections.Counter()
    states = 0
    for group in groups:
        kind, of_group = _kind(group.kv_cache_spec, vllm_config)
        states += of_group
        if kind is not None:
            counts[kind] += 1
    while len(counts) > _KINDS:  # no fewer blocks than they take
        (one, n), (other, m) = counts.popitem(), counts.popitem()
        block = min(one.block_tokens, other.block_tokens)
        windows = (one.window, other.window)
        window = max(windows) if all(windows) else 0
        counts[Kind(block, window)] += n + m
    filling: int = vllm_config.max_in_flight_tokens
    steps = filling // vllm_config.scheduler_config.max_num_batched_tokens
    drafts = vllm_config.speculative_config
    drafted = 0 if drafts is None else drafts.num_speculative_tokens or 0
    return Shape(
        tuple(sorted(counts.items())), states, filling, steps * (1 + drafted)
    )


def _kind(spec: Any, vllm_config: Any) -> tuple[Kind | None, int]:
    """Returns how a group keeps tokens, and the number of its blocks that hold
    no tokens."""
    # The layers of a group keep the same tokens even if they differ in size.
    spec = next(iter(getattr(spec, "kv_cache_specs", {}).values()), spec)
    block: int = spec.block_size
    types = {cls.__name__ for cls in type(spec).__mro__}
    if "SlidingWindowSpec" in types:
        kept = getattr(spec, "extra_retained_tokens", 0)
        return Kind(block, spec.sliding_window + kept), 0
    if "ChunkedLocalAttentionSpec" in types:
        # A chunk begins with a block.
        return Kind(block, max(1, spec.attention_chunk_size - block + 1)), 0
    if "MambaSpec" in types and spec.mamba_cache_mode != "align":
        # There is a state behind each block, and the last state is kept.
        return Kind(block, 1), spec.num_speculative_blocks
    if "FullAttentionSpec" in types:
        return Kind(block, 0), 0
    # The number does not depend on the length: states, an encoder's tokens,
    # rings.
    return None, _most_blocks(spec, vllm_config)


@dataclasses.dataclass(frozen=True)
class Taken:
    """The blocks of a group that a request needs to be let in.

    most: that hold its tokens: a window does not grow with them.
    fixed: that hold none, whatever its length: states, an encoder's output.
    """

    block_tokens: int
    most: int
    fixed: int = 0


def taken(kv_cache_config: Any, vllm_config: Any) -> list[Taken]:
    """Returns, for each group, the blocks that a request needs to be let in."""
    return [
        _taken(group.kv_cache_spec, vllm_config)
        for group in kv_cache_config.kv_cache_groups
    ]


def _taken(spec: Any, vllm_config: Any) -> Taken:
    kind, fixed = _kind(spec, vllm_config)
    if kind is None:
        return Taken(spec.block_size, 0, fixed)
    most = _most_blocks(spec, vllm_config)
    if kind.window == 1:  # states behind each block: it is let in with all
        most = -(-vllm_config.model_config.max_model_len // kind.block_tokens)
    return Taken(kind.block_tokens, most, fixed)
