"""Double of the KV cache's configuration: what start.py reads and sets."""

import dataclasses


@dataclasses.dataclass
class CacheConfig:
    gpu_memory_utilization: float = 0.92
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    kv_cache_layout: str | None = None
