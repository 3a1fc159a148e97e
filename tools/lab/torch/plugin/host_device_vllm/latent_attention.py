"""vLLM's latent attention (MLA) on the host.

All is vLLM's own Triton backend's, its prefill in chunks too, but for what it
does by compiled kernels.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from vllm.v1.attention.backends.mla.prefill.base import MLAPrefillBackend
from vllm.v1.attention.backends.mla.triton_mla import (
    TritonMLABackend,
    TritonMLAImpl,
)

_ops = torch.ops.host_device


def install() -> None:
    """Replaces the kernels that the common part of MLA attention calls by
    name."""
    from vllm import _custom_ops
    from vllm.model_executor.layers.attention import mla_attention
    from vllm.v1.attention.ops import merge_attn_states

    _custom_ops.concat_and_cache_mla = store
    _custom_ops.gather_and_maybe_dequant_cache = gather
    mla_attention.merge_attn_states = merge_attn_states._merge_attn_states_torch


def _cache(kv_cache: torch.Tensor, kv_cache_dtype: str) -> torch.Tensor:
    if kv_cache_dtype.startswith("fp8"):
        return kv_cache.view(torch.float8_e4m3fn)
    return kv_cache


def store(
    kv_c: torch.Tensor,
    k_pe: torch.Tensor,
    kv_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    scale: torch.Tensor,
    skip_scale: bool = False,  # vLLM 0.33: the scale is 1
) -> None:
    # Rows beyond the slots are padding.
    count = slot_mapping.shape[0]
    _ops.store_latent(
        kv_c[:count],
        k_pe[:count],
        _cache(kv_cache, kv_cache_dtype),
        slot_mapping,
        scale,
    )


def gather(
    src_cache: torch.Tensor,
    dst: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    token_to_seq: torch.Tensor,
    num_tokens: int,
    kv_cache_dtype: str,
    scale: torch.Tensor,
    seq_starts: torch.Tensor,
) -> None:
    _ops.gather_latent(
        _cache(src_cache, kv_cache_dtype),
        block_table,
        cu_seq_lens,
        seq_starts,
        scale,
        dst,
    )


class HostLatentImpl(TritonMLAImpl):
    def forward_mqa(
        self,
        q: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: Any,
        layer: Any,
    ) -> tuple[torch.Tensor, None]:
        query = torch.cat(q, dim=-1) if isinstance(q, tuple) else q
        decode = attn_metadata.decode
        rows = query.shape[0]
        each, rest = divmod(rows, decode.seq_lens.shape[0])
        assert rest == 0, "host_device: requests with as many tokens each"
        # The last token of each request sees all keys, and each token before it
        # sees one key fewer.
        fewer = torch.arange(
            1 - each,
            1,
            dtype=decode.seq_lens.dtype,
            device=decode.seq_lens.device,
        )
        keys = (decode.seq_lens[:, None] + fewer).clamp(min=0).flatten()
        out = query.new_zeros(rows, query.shape[1], self.kv_lora_rank)
        _ops.latent_attention(
            query,
            kv_c_and_k_pe_cache,
            decode.block_table.repeat_interleave(each, dim=0),
            keys,
            layer._k_scale,
            self.scale,
            out,
        )
        return out, None


class HostLatentBackend(TritonMLABackend):
    supported_dtypes: ClassVar[list[torch.dtype]] = [
        *TritonMLABackend.supported_dtypes,
        torch.float32,
    ]

    @staticmethod
    def get_impl_cls() -> type[HostLatentImpl]:
        return HostLatentImpl


class HostPrefill(MLAPrefillBackend):
    supported_dtypes: ClassVar[list[torch.dtype]] = [
        *MLAPrefillBackend.supported_dtypes,
        torch.float32,
    ]

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    def run_prefill_new_tokens(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        return_softmax_lse: bool,
        out: torch.Tensor | None = None,
        output_scale: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        assert out is None and output_scale is None
        rows = self._prefill_metadata.query_start_loc
        found, log_sums = self._attend(q, k, v, rows, rows, causal=True)
        return (found, log_sums) if return_softmax_lse else found

    def run_prefill_context_chunk(
        self,
        chunk: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert out is None
        return self._attend(
            q, k, v, chunk.query_start_loc, chunk.cu_seq_lens, causal=False
        )

    def _attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        query_rows: torch.Tensor,
        key_rows: torch.Tensor,
        causal: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out = q.new_empty(q.shape[0], self.num_heads, self.v_head_dim)
        log_sums = q.new_empty(
            self.num_heads, q.shape[0], dtype=torch.float32
        )
        _ops.ragged_attention(
            q, k, v, query_rows, key_rows, self.scale, causal, out, log_sums
        )
        return out, log_sums
