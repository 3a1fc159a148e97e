"""Computes the format of a view that fits the KV cache that vLLM allocates.

vLLM makes one allocation for all layers and places each layer's page of block b
at offset + layer × layer_stride + b × block_stride (KVCacheTensor). Two such
placements are planes in the shim's sense: blocks outermost (one plane, a page
holds all layers) and layers outermost (a plane per layer, one behind another).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from fineserve_vllm import kv_groups

# Granularity of cuMemMap on every GPU we know; the shim checks it against the
# driver's.
GRANULARITY = 2 << 20  # bytes

_BLOCKS_OUTERMOST = "set VLLM_KV_CACHE_LAYOUT=BLHNC"


@dataclasses.dataclass(frozen=True)
class ViewFormat:
    """One allocation of `planes` planes of `blocks` pages each.

    floor_blocks: the blocks of the longest request.
    """

    planes: int
    page_bytes: int
    blocks: int
    block_tokens: int
    floor_blocks: int

    @property
    def block_bytes(self) -> int:
        return self.planes * self.page_bytes

    @property
    def allocation_bytes(self) -> int:
        return self.block_bytes * self.blocks


def view_format(kv_cache_config: Any, vllm_config: Any) -> ViewFormat:
    """The format of vLLM's KVCacheConfig. Its groups overlay each other: a
    block belongs to one of them at a time.

    Raises:
        RuntimeError: no view fits this KV cache; the message names what to set.
    """
    tensors = kv_cache_config.kv_cache_tensors
    blocks: int = kv_cache_config.num_blocks
    if not tensors:
        raise RuntimeError(
            "FineServe: this model has no KV cache to share: unset "
            "FINESERVE_VIEW"
        )
    if any(tensor.host_resident for tensor in tensors):
        raise RuntimeError(
            "FineServe: KV cache in host memory is not supported yet: turn "
            "HiSparse off"
        )
    sizes = {tensor.size for tensor in tensors}
    if len(sizes) > 1:
        raise RuntimeError(
            f"FineServe: this vLLM version is not supported: its KV cache is "
            f"{len(sizes)} allocations instead of one"
        )
    (size,) = sizes
    planes, page_bytes = _planes(kv_cache_config, size)
    if planes > 1:
        _check_alignment(page_bytes, blocks)
    longest_request = kv_groups.longest_request_blocks(
        kv_cache_config.kv_cache_groups, vllm_config
    )
    block_tokens = kv_groups.tokens_per_block(
        kv_cache_config, vllm_config.model_config.max_model_len, longest_request
    )
    found = ViewFormat(
        planes, page_bytes, blocks, block_tokens, longest_request
    )
    assert found.allocation_bytes == size
    return found


def _planes(kv_cache_config: Any, size: int) -> tuple[int, int]:
    """Planes and their page bytes."""
    tensors = kv_cache_config.kv_cache_tensors
    strides = {tensor.block_stride for tensor in tensors}
    if len(strides) == 1:
        (stride,) = strides
        plane = stride * kv_cache_config.num_blocks
        starts = [
            sorted(_layer_starts(tensors, set(group.layer_names)))
            for group in kv_cache_config.kv_cache_groups
        ]
        if plane == size and max(its[-1] for its in starts) < stride:
            return 1, stride
        if all(its == _multiples(plane, len(its)) for its in starts):
            planes = max(map(len, starts))
            if planes * plane == size:
                return planes, stride
    raise RuntimeError(
        f"FineServe: a block of this KV cache is neither in one piece nor in "
        f"one piece per layer: {_BLOCKS_OUTERMOST}"
    )


def _layer_starts(tensors: Iterable[Any], layers: set[str]) -> list[int]:
    """Returns where the first block of each of these layers begins."""
    return [
        tensor.offset + i * tensor.layer_stride
        for tensor in tensors
        for i, layer in enumerate(tensor.layers)
        if layer in layers
    ]


def _multiples(step: int, count: int) -> list[int]:
    return list(range(0, count * step, step))


def _check_alignment(page_bytes: int, blocks: int) -> None:
    step = GRANULARITY // math.gcd(GRANULARITY, page_bytes)
    if blocks % step:
        fitting = -(-blocks // step) * step
        raise RuntimeError(
            f"FineServe: with the layers of the KV cache one after another, "
            f"the number of blocks must be a multiple of {step} (it is "
            f"{blocks}): {_BLOCKS_OUTERMOST} or "
            f"--num-gpu-blocks-override {fitting}"
        )
