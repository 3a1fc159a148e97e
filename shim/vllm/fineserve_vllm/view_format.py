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

# Of cuMemMap on every GPU we know; the shim checks it against the driver's.
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
    def allocation_bytes(self) -> int:
        return self.planes * self.page_bytes * self.blocks


def view_format(kv_cache_config: Any, max_model_len: int) -> ViewFormat:
    """The format of vLLM's KVCacheConfig of one group (support.refuse).

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
    planes, page_bytes = _planes(tensors, blocks, size)
    if planes > 1:
        _check_alignment(page_bytes, blocks)
    (group,) = kv_cache_config.kv_cache_groups
    block_tokens: int = group.kv_cache_spec.block_size
    longest_request = -(-max_model_len // block_tokens)
    found = ViewFormat(
        planes, page_bytes, blocks, block_tokens, longest_request
    )
    assert found.allocation_bytes == size
    return found


def _planes(tensors: Iterable[Any], blocks: int, size: int) -> tuple[int, int]:
    """Planes and their page bytes."""
    strides = {tensor.block_stride for tensor in tensors}
    if len(strides) == 1:
        (stride,) = strides
        starts = sorted(
            tensor.offset + layer * tensor.layer_stride
            for tensor in tensors
            for layer in range(len(tensor.layers))
        )
        if stride * blocks == size and starts[-1] < stride:
            return 1, stride
        plane = stride * blocks
        if starts == list(range(0, size, plane)) and size % plane == 0:
            return len(starts), stride
    raise RuntimeError(
        f"FineServe: a block of this KV cache is neither in one piece nor in "
        f"one piece per layer: {_BLOCKS_OUTERMOST}"
    )


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
