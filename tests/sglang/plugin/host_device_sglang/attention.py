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
    visible: which of them a query sees.
    """

    queries: slice
    slots: torch.Tensor
    visible: torch.Tensor


class HostAttnBackend(TorchNativeAttnBackend):
    """For plain decoders: no window, no cross attention, one width of heads."""

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
        visible = positions < forward_batch.seq_lens[:, None]
        # Entries behind a request's end in its row belong to others.
        slots = torch.where(visible, self._slots(forward_batch, longest), 0)
        count = forward_batch.batch_size
        return _Part(slice(0, count), slots, visible[:, None, None])

    def _extending(self, forward_batch: Any) -> list[_Part]:
        parts, begin = [], 0
        for i, (cached, new) in enumerate(
            zip(
                forward_batch.extend_prefix_lens_cpu,
                forward_batch.extend_seq_lens_cpu,
            )
        ):
            visible = torch.ones(
                new, cached + new, dtype=torch.bool, device=self.device
            ).tril(cached)
            slots = self._slots(forward_batch, cached + new)[i : i + 1]
            parts.append(_Part(slice(begin, begin + new), slots, visible))
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
        output = torch.empty_like(queries)
        for part in self._parts:
            its = queries[part.queries]
            requests = part.slots.shape[0]
            attended = self._attend(
                its.view(requests, -1, *its.shape[1:]), part, layer
            )
            output[part.queries] = attended.reshape(its.shape)
        return output.view_as(q)

    forward_decode = forward_extend

    def _attend(
        self, queries: torch.Tensor, part: _Part, layer: Any
    ) -> torch.Tensor:
        """Takes and gives [requests, queries, heads, width]."""
        keys, values = (
            self._for_each_query_head(buffer[part.slots].transpose(1, 2), layer)
            for buffer in self.token_to_kv_pool.get_kv_buffer(layer.layer_id)
        )
        scores = queries.transpose(1, 2) @ keys.transpose(2, 3) * layer.scaling
        weights = scores.masked_fill(~part.visible, -torch.inf).softmax(-1)
        return (weights @ values).transpose(1, 2)

    @staticmethod
    def _for_each_query_head(heads: torch.Tensor, layer: Any) -> torch.Tensor:
        groups = layer.tp_q_head_num // layer.tp_k_head_num
        return heads.repeat_interleave(groups, 1) if groups > 1 else heads
