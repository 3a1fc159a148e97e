"""Doubles of a worker and the wrapper around it: what start.py and kv_scope.py
use of them."""


class WorkerBase:
    def get_kv_cache_spec(self):
        raise NotImplementedError

    def get_supported_kv_cache_layouts(self):
        raise NotImplementedError


class WorkerWrapperBase:
    def __init__(self, rpc_rank=0, global_rank=None):
        self.rpc_rank = rpc_rank
        self.global_rank = rpc_rank if global_rank is None else global_rank
        self.worker = None
        self.vllm_config = None

    def init_device(self):
        self.worker.init_device()

    def initialize_from_config(self, kv_cache_configs):
        self.worker.initialize_from_config(kv_cache_configs[self.global_rank])
