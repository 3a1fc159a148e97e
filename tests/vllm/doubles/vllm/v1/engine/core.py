"""Double of EngineCore's start and of EngineCoreProc's loop that waits for
work."""

import queue


class EngineCore:
    def __init__(self, vllm_config, executor):
        self.model_executor = executor
        self._initialize_kv_caches(vllm_config)

    def _initialize_kv_caches(self, vllm_config):
        self.blocks_overridden = (
            vllm_config.cache_config.num_gpu_blocks_override
        )

    def step(self):
        if not self.scheduler.has_requests():
            return {}, False
        return {}, self.scheduler.schedule().total_num_scheduled_tokens > 0

    def step_with_batch_queue(self):
        return self.step()

    def post_step(self, model_executed):
        pass


class EngineCoreProc(EngineCore):
    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.input_queue = queue.Queue()

    def has_work(self):
        return self.scheduler.has_requests()

    def is_running(self):
        return True

    def _notify_idle_state_callbacks(self):
        pass

    def _process_input_queue(self):
        while not self.has_work() and self.is_running():
            self._notify_idle_state_callbacks()
            self.input_queue.get()
        while not self.input_queue.empty():
            self.input_queue.get_nowait()
