"""Double of a request: how much of it has been computed."""


class Request:
    def __init__(self, request_id, num_tokens):
        self.request_id = request_id
        self.status = None
        self.num_computed_tokens = num_tokens
        self.is_prefill_chunk = False
        self._num_tokens = num_tokens

    @property
    def num_tokens(self):
        return self._num_tokens
