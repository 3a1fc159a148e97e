"""Double of the GPU worker: what the plugin wraps of it."""

from vllm.v1.worker.worker_base import WorkerBase


class Worker(WorkerBase):
    def _maybe_get_memory_pool_context(self, tag: str):
        raise NotImplementedError

    def determine_available_memory(self):
        raise NotImplementedError

    def sleep(self, level=1):
        raise NotImplementedError

    def wake_up(self, tags=None):
        raise NotImplementedError

    def discard(self, tags):
        raise NotImplementedError

    def update_max_model_len(self, max_model_len):
        raise NotImplementedError

    def get_model(self):
        raise NotImplementedError
