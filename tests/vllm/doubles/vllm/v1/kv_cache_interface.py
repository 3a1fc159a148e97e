"""Double of the KV cache's description: one allocation, a placement, and what
a group of layers keeps."""

import dataclasses
from typing import Any


@dataclasses.dataclass
class KVCacheTensor:
    size: int
    layers: list[str]
    layer_stride: int
    block_stride: int
    offset: int = 0
    host_resident: bool = False


@dataclasses.dataclass
class FullAttentionSpec:
    block_size: int
    page_size_bytes: int

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        tokens = vllm_config.model_config.max_model_len
        return -(-tokens // self.block_size) * self.page_size_bytes


@dataclasses.dataclass
class KVCacheConfig:
    num_blocks: int
    kv_cache_tensors: list[KVCacheTensor]
    kv_cache_groups: list[Any]
