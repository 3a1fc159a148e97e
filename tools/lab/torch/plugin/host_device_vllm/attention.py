"""Attention of vLLM's Triton backend, computed by host_device's operators.

Layouts, metadata and slot mapping are the Triton backend's.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.attention.backends.triton_attn import (
    TritonAttentionBackend,
    TritonAttentionImpl,
)

_ops = torch.ops.host_device


class HostAttentionImpl(TritonAttentionImpl):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        plain = (
            self.alibi_slopes is None
            # A decoder's window reaches back, and not forward.
            and self.sliding_window[1] <= 0
            and not self.logits_soft_cap
            and self.sinks is None
            and not self._is_per_token_head_quant
        )
        if not plain:
            raise NotImplementedError("host_device: only plain attention")
        # FP8 of the cache only.
        self.supports_quant_query_input = False

    def _cache(self, kv_cache: torch.Tensor) -> torch.Tensor:
        if self.kv_cache_dtype.startswith("fp8"):
            return kv_cache.view(self.fp8_dtype)
        return kv_cache

    def do_kv_cache_update(
        self,
        layer: Any,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        # Rows beyond the slots are padding.
        count = slot_mapping.shape[0]
        _ops.store_kv(
            key[:count],
            value[:count],
            self._cache(kv_cache),
            slot_mapping,
            layer._k_scale,
            layer._v_scale,
        )

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: Any,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        assert output_scale is None and output_block_scale is None
        if attn_metadata is None:  # the profiling run
            return output.fill_(0)
        count = attn_metadata.num_actual_tokens
        _ops.paged_attention(
            query[:count],
            self._cache(kv_cache),
            attn_metadata.block_table,
            attn_metadata.seq_lens,
            attn_metadata.query_start_loc,
            layer._k_scale,
            layer._v_scale,
            self.scale,
            self.sliding_window[0],
            output[:count],
        )
        return output


class HostAttentionBackend(TritonAttentionBackend):
    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[HostAttentionImpl]:
        return HostAttentionImpl
