"""Double of the KV cache manager: blocks per request."""

from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator


class KVCacheManager:
    def __init__(self, kv_cache_config, block_size):
        self.coordinator = KVCacheCoordinator(
            kv_cache_config,
            max_model_len=4096,
            max_in_flight_tokens=4096,
            use_eagle=False,
            enable_caching=True,
            enable_kv_cache_events=False,
            dcp_world_size=1,
            pcp_world_size=1,
            scheduler_block_size=block_size,
            hash_block_size=block_size,
        )
        self.block_pool = self.coordinator.block_pool
        self.watermark_blocks = 0
        self.held = {}  # request id -> blocks

    def get_block_ids(self, request_id):
        return ([block.block_id for block in self.held[request_id]],)

    def free(self, request):
        self.block_pool.free_blocks(reversed(self.held.pop(request.request_id)))
