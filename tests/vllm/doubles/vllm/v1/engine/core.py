"""Double of EngineCoreProc: the loop that waits for work."""

import queue


class EngineCoreProc:
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
