"""Attention in PyTorch's operators, none of which waits for the device.

SGLang's own backend of PyTorch ("torch_native") reads each request's length
back from the device, so that no step would be in flight.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from sglang.srt.layers.attention.torch_native_backend import (
    TorchNativeAttnBackend,
)
from sglang.srt.mem_cache.memory_pool import KVWriteLoc


@dataclasses.dataclass(frozen=True)
class _Part:
    """Requests with the same number of queries, at `queries` in the batch.

    slots: [requests, tokens], of all tokens that a request has by now.
    distances: [requests or 1, 1, queries, tokens], of a query behind them.
    """

    queries: slice
    slots: torch.Tensor
    distances: torch.Tensor

    def visible(self, window: int) -> torch.Tensor:
        """Returns which tokens a query sees: itself and `window` before it;
        with -1 all before it."""
        seen = self.distances >= 0
        return seen if window < 0 else seen & (self.distances <= window)


class HostAttnBackend(TorchNativeAttnBackend):
    """For decoders whose KV is in one pool, latents among them: no cross
    attention."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self._runner = runner
        self._parts: list[_Part] = []

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Reads all that the scheduler may change while the step runs."""
        super().init_forward_metadata(forward_batch)
        if forward_batch.forward_mode.is_decode():
            self._parts = [self._decoding(forward_batch)]
            # As SGLang's runner of CUDA graphs does: the scheduler need not
            # wait for the rest of the step.
            done = torch.cuda.Event()
            done.record()
            self._runner.shared_read_done_event = done
        elif forward_batch.forward_mode.is_extend():
            self._parts = self._extending(forward_batch)

    def _decoding(self, forward_batch: Any) -> _Part:
        longest = int(forward_batch.seq_lens_cpu.max())
        positions = torch.arange(longest, device=self.device)
        distances = forward_batch.seq_lens[:, None] - 1 - positions
        # Entries behind a request's end in its row belong to others.
        slots = torch.where(
            distances >= 0, self._slots(forward_batch, longest), 0
        )
        count = forward_batch.batch_size
        return _Part(slice(0, count), slots, distances[:, None, None])

    def _extending(self, forward_batch: Any) -> list[_Part]:
        parts, begin = [], 0
        for i, (cached, new) in enumerate(
            zip(
                forward_batch.extend_prefix_lens_cpu,
                forward_batch.extend_seq_lens_cpu,
            )
        ):
            positions = torch.arange(cached + new, device=self.device)
            distances = positions[cached:, None] - positions
            slots = self._slots(forward_batch, cached + new)[i : i + 1]
            parts.append(
                _Part(slice(begin, begin + new), slots, distances[None, None])
            )
            begin += new
        return parts

    def _slots(self, forward_batch: Any, length: int) -> torch.Tensor:
        """Returns the slots of the first `length` tokens of each request."""
        rows = self.req_to_token_pool.req_to_token
        return rows[forward_batch.req_pool_indices, :length]

    def forward_extend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
    ) -> torch.Tensor:
        if save_kv_cache and k is not None:
            where = KVWriteLoc(forward_batch.out_cache_loc, None)
            self.token_to_kv_pool.set_kv_buffer(layer, where, k, v)
        queries = q.view(-1, layer.tp_q_head_num, layer.head_dim)
        output = queries.new_empty(*queries.shape[:2], layer.v_head_dim)
        for part in self._parts:
            its = queries[part.queries]
            requests = part.slots.shape[0]
            attended = self._attend(
                its.view(requests, -1, *its.shape[1:]), part, layer
            )
            output[part.queries] = attended.reshape(-1, *output.shape[1:])
        return output.view(q.shape[0], -1)

    forward_decode = forward_extend

    def _attend(
        self, queries: torch.Tensor, part: _Part, layer: Any
    ) -> torch.Tensor:
        """Takes and gives [requests, queries, heads, width]."""
        keys, values = (
            self._for_each_query_head(
                buffer[part.slots].to(queries.dtype).transpose(1, 2), layer
            )
            for buffer in self.token_to_kv_pool.get_kv_buffer(layer.layer_id)
        )
        scores = queries.transpose(1, 2) @ keys.transpose(2, 3) * layer.scaling
        visible = part.visible(layer.sliding_window_size)
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
        return (weights @ values).transpose(1, 2)

    @staticmethod
    def _for_each_query_head(heads: torch.Tensor, layer: Any) -> torch.Tensor:
        groups = layer.tp_q_head_num // layer.tp_k_head_num
        if groups == 1 or layer.tp_k_head_num == 1:
            return heads
        return heads.repeat_interleave(groups, 1)
