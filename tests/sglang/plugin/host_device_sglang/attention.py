"""Attention in PyTorch's operators, none of which waits for the device.

SGLang's own backend of PyTorch ("torch_native") reads each request's length
back from the device, so that no step would be in flight.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.attention.torch_native_backend import (
    TorchNativeAttnBackend,
)
from sglang.srt.mem_cache.memory_pool import KVWriteLoc


class HostAttnBackend(TorchNativeAttnBackend):
    """For plain decoders: no window, no cross attention, one width of heads."""

    def forward_extend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
    ) -> torch.Tensor:
        self._store(k, v, layer, forward_batch, save_kv_cache)
        queries = q.view(-1, layer.tp_q_head_num, layer.head_dim)
        output = torch.empty_like(queries)
        begin = 0
        for i, (cached, new) in enumerate(
            zip(
                forward_batch.extend_prefix_lens_cpu,
                forward_batch.extend_seq_lens_cpu,
            )
        ):
            visible = torch.ones(
                new, cached + new, dtype=torch.bool, device=q.device
            ).tril(cached)
            slots = self._slots(forward_batch, cached + new)[i : i + 1]
            output[begin : begin + new] = self._attend(
                queries[None, begin : begin + new], slots, visible, layer
            )[0]
            begin += new
        return output.view_as(q)

    def forward_decode(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
    ) -> torch.Tensor:
        self._store(k, v, layer, forward_batch, save_kv_cache)
        longest = int(forward_batch.seq_lens_cpu.max())
        visible = (
            torch.arange(longest, device=q.device)
            < forward_batch.seq_lens[:, None]
        )
        # What lies behind a request's end in its row is not its own.
        slots = torch.where(visible, self._slots(forward_batch, longest), 0)
        queries = q.view(-1, 1, layer.tp_q_head_num, layer.head_dim)
        output = self._attend(queries, slots, visible[:, None, None], layer)
        return output.reshape(q.shape)

    def _store(
        self, k: Any, v: Any, layer: Any, forward_batch: Any, save: bool
    ) -> None:
        if save and k is not None:
            where = KVWriteLoc(forward_batch.out_cache_loc, None)
            self.token_to_kv_pool.set_kv_buffer(layer, where, k, v)

    def _slots(self, forward_batch: Any, length: int) -> torch.Tensor:
        """Of the first `length` tokens of each request."""
        rows = self.req_to_token_pool.req_to_token
        return rows[forward_batch.req_pool_indices, :length]

    def _attend(
        self, queries: Any, slots: Any, visible: Any, layer: Any
    ) -> torch.Tensor:
        """Takes and gives [requests, tokens, heads, width]."""
        keys, values = (
            self._for_each_query_head(buffer[slots].transpose(1, 2), layer)
            for buffer in self.token_to_kv_pool.get_kv_buffer(layer.layer_id)
        )
        scores = queries.transpose(1, 2) @ keys.transpose(2, 3) * layer.scaling
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
        return (weights @ values).transpose(1, 2)

    @staticmethod
    def _for_each_query_head(heads: torch.Tensor, layer: Any) -> torch.Tensor:
        groups = layer.tp_q_head_num // layer.tp_k_head_num
        return heads.repeat_interleave(groups, 1) if groups > 1 else heads
