"""Attention in PyTorch's operators, none of which waits for the device.

SGLang's own backend of PyTorch ("torch_native") reads each request's length
back from the device, so that no step would be in flight.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from sglang.srt.configs.hybrid_arch import mambaish_config
from sglang.srt.layers.attention.torch_native_backend import (
    TorchNativeAttnBackend,
)
from sglang.srt.mem_cache.memory_pool import KVWriteLoc


@dataclasses.dataclass(frozen=True)
class _Part:
    """Requests with the same number of queries, at `queries` in the batch.

    slots: [requests, tokens], of all tokens that a request has by now.
    windows: the same in a pool of their own for layers of sliding windows.
    distances: [requests or 1, 1, queries, tokens], of a query behind them.
    """

    queries: slice
    slots: torch.Tensor
    distances: torch.Tensor
    windows: torch.Tensor | None = None

    def visible(self, window: int) -> torch.Tensor:
        """Returns which tokens a query sees: itself and `window` tokens before
        it; with -1, all tokens before it."""
        seen = self.distances >= 0
        return seen if window < 0 else seen & (self.distances <= window)


class HostAttnBackend(TorchNativeAttnBackend):
    """Attention for decoders, including latents, but not cross attention."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self._runner = runner
        self._parts: list[_Part] = []

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Reads at once all that the scheduler may change while the step
        runs."""
        super().init_forward_metadata(forward_batch)
        mode, lengths = forward_batch.forward_mode, forward_batch.seq_lens
        if mode.is_decode():
            self._parts = [self._following(forward_batch, lengths - 1, 1)]
        elif mode.is_target_verify():
            count = forward_batch.spec_info.draft_token_num
            self._parts = [self._following(forward_batch, lengths, count)]
        elif mode.is_draft_extend_v2():
            count = forward_batch.spec_info.num_tokens_per_req
            first = lengths - count
            self._parts = [self._following(forward_batch, first, count)]
        elif mode.is_extend():
            self._parts = self._extending(forward_batch)
        if self.use_sliding_window_kv_pool:
            # This must be read now, because the scheduler frees what leaves a
            # window.
            translate = self.token_to_kv_pool.translate_loc_from_full_to_swa
            self._parts = [
                dataclasses.replace(part, windows=translate(part.slots))
                for part in self._parts
            ]
        if mode.is_decode():
            self._has_read()

    def init_draft(self, forward_batch: Any, step: int) -> None:
        """Prepares a step of a drafter that drafts a chain."""
        first = forward_batch.seq_lens + step
        self._parts = [self._following(forward_batch, first, 1)]

    def _has_read(self) -> None:
        """Records that all shared state is read, as SGLang's runner of CUDA
        graphs does, so that the scheduler need not wait for the rest of the
        step. Skips this if a drafter or SGLang's own backend of states still
        reads after it."""
        if (
            self._runner.spec_algorithm.is_none()
            and mambaish_config(self._runner.model_config) is None
        ):
            done = torch.cuda.Event()
            done.record()
            self._runner.shared_read_done_event = done

    def _following(
        self, forward_batch: Any, first: torch.Tensor, count: int
    ) -> _Part:
        """Returns the part for `count` queries of each request, of which the
        first is at `first`."""
        longest = min(
            int(forward_batch.seq_lens_cpu.max()) + count,
            self.req_to_token_pool.req_to_token.shape[1],
        )
        positions = torch.arange(longest, device=self.device)
        queries = first[:, None] + torch.arange(count, device=self.device)
        distances = queries[:, :, None] - positions
        # Row entries after a request's end belong to other requests.
        slots = torch.where(
            distances[:, -1] >= 0, self._slots(forward_batch, longest), 0
        )
        whole = slice(0, forward_batch.batch_size * count)
        return _Part(whole, slots, distances[:, None])

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
            where = KVWriteLoc(
                forward_batch.out_cache_loc, self.swa_out_cache_loc
            )
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
        """Takes and returns tensors of [requests, queries, heads, width]."""
        slots = part.slots
        if part.windows is not None and self._has_window(layer):
            slots = part.windows
        keys, values = (
            self._for_each_query_head(
                buffer[slots].to(queries.dtype).transpose(1, 2), layer
            )
            for buffer in self.token_to_kv_pool.get_kv_buffer(layer.layer_id)
        )
        scores = queries.transpose(1, 2) @ keys.transpose(2, 3) * layer.scaling
        visible = part.visible(layer.sliding_window_size)
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
        return (weights @ values).transpose(1, 2)

    def _has_window(self, layer: Any) -> bool:
        return self.token_to_kv_pool.layers_mapping[layer.layer_id][1]

    @staticmethod
    def _for_each_query_head(heads: torch.Tensor, layer: Any) -> torch.Tensor:
        groups = layer.tp_q_head_num // layer.tp_k_head_num
        if groups == 1 or layer.tp_k_head_num == 1:
            return heads
        return heads.repeat_interleave(groups, 1)
