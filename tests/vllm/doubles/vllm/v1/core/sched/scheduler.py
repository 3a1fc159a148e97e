"""Double of the scheduler: steps without a model."""

import types

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.request_queue import FCFSRequestQueue


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
        self.pause_state = PauseState.UNPAUSED
        self.kv_cache_manager = KVCacheManager(kv_cache_config, block_size)
        self.block_size = block_size
        self.max_num_scheduled_tokens = 64
        self.max_num_running_reqs = 4
        self.num_spec_tokens = 0
        self.running = []
        self.waiting = FCFSRequestQueue()
        self.kv_holding_waiting = FCFSRequestQueue()
        self.finished_recving_kv_req_ids = set()
        self._inflight_prefills = set()
        self.prev_step_scheduled_req_ids = set()

    def schedule(self, throttle_prefills=False):
        self.prev_step_scheduled_req_ids = {r.request_id for r in self.running}
        return types.SimpleNamespace(
            total_num_scheduled_tokens=len(self.running),
            new_block_ids_to_zero=None,
            kv_cache_block_copies=None,
            kv_connector_metadata=None,
        )

    def update_from_output(self, scheduler_output, model_runner_output):
        return {}

    def has_unfinished_requests(self):
        return bool(self.running or self.waiting or self.kv_holding_waiting)

    def has_requests(self):
        return self.has_unfinished_requests()

    def _preempt_request(self, request, timestamp, drop_stale_output=False):
        self._free_request_blocks(request)
        self.waiting.prepend_request(request)

    def _free_request_blocks(self, request):
        self.kv_cache_manager.free(request)

    def _handle_blocked_waiting_request(self, request):
        return True
