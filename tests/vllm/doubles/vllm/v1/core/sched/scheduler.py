"""Double of the scheduler: steps without a model."""

import types

from vllm.v1.core.kv_cache_manager import KVCacheManager


class Scheduler:
    def __init__(
        self,
        vllm_config,
        kv_cache_config,
        structured_output_manager,
        block_size,
        hash_block_size=None,
        mm_registry=None,
        include_finished_set=False,
        log_stats=False,
    ):
        self.connector = None
        self.kv_cache_manager = KVCacheManager(kv_cache_config, block_size)
        self.block_size = block_size
        self.max_num_scheduled_tokens = 64
        self.max_num_running_reqs = 4
        self.num_spec_tokens = 0
        self.running = []
        self.waiting = []
        self.prev_step_scheduled_req_ids = set()

    def schedule(self, throttle_prefills=False):
        self.prev_step_scheduled_req_ids = {r.request_id for r in self.running}
        return types.SimpleNamespace(total_num_scheduled_tokens=0)

    def update_from_output(self, scheduler_output, model_runner_output):
        return {}

    def has_unfinished_requests(self):
        return bool(self.running or self.waiting)

    def has_requests(self):
        return self.has_unfinished_requests()

    def _preempt_request(self, request, timestamp, drop_stale_output=False):
        self.kv_cache_manager.free(request)
        self.waiting.insert(0, request)
