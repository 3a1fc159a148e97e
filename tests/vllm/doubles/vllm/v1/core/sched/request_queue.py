"""Double of the queue of requests that wait: first come, first served."""

from collections import deque


class FCFSRequestQueue(deque):
    def prepend_request(self, request):
        self.appendleft(request)

    def remove_request(self, request):
        self.remove(request)
