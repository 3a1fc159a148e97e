"""Double of the wrapper around a worker: what reaches initialize_from_config."""


class WorkerWrapperBase:
    def __init__(self, rpc_rank=0, global_rank=None):
        self.rpc_rank = rpc_rank
        self.global_rank = rpc_rank if global_rank is None else global_rank
        self.worker = None
        self.vllm_config = None

    def initialize_from_config(self, kv_cache_configs):
        self.worker.initialize_from_config(kv_cache_configs[self.global_rank])
