"""Double of the coordinator: where vLLM constructs the block pool."""

from vllm.v1.core.block_pool import BlockPool


class KVCacheCoordinator:
    def __init__(
        self,
        kv_cache_config,
        max_model_len,
        max_in_flight_tokens,
        use_eagle,
        enable_caching,
        enable_kv_cache_events,
        dcp_world_size,
        pcp_world_size,
        scheduler_block_size,
        hash_block_size,
        metrics_collector=None,
        num_prefill_lookahead=0,
        num_hash_lookahead_tokens=0,
    ):
        self.block_pool = BlockPool(
            num_gpu_blocks=kv_cache_config.num_blocks,
            enable_caching=enable_caching,
            hash_block_size=hash_block_size,
            enable_kv_cache_events=enable_kv_cache_events,
            metrics_collector=metrics_collector,
        )
