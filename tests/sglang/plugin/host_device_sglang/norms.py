"""Computes Gemma 4's norms with PyTorch's operators, because Triton's
interpreter would take a minute for a prompt."""

from __future__ import annotations

from typing import Any

import torch


def install() -> None:
    from sglang.kernels.ops.layernorm import gemma4_fused_ops as fused

    fused.gemma_rmsnorm_residual_scalar = _add_scaled
    fused.gemma_qkv_rmsnorm = _normalize_heads


def _add_scaled(
    x: torch.Tensor,
    weight: torch.Tensor,
    residual: torch.Tensor,
    scalar: torch.Tensor,
    eps: float = 1e-6,
) -> torch.Tensor:
    return (_normalized(x, eps) * weight + residual) * scalar


def _normalize_heads(
    q: torch.Tensor,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor | None,
    *,
    head_dim: int,
    eps: float = 1e-6,
    **_: Any,
) -> None:
    """In place."""
    for heads, weight in (q, q_weight), (k, k_weight), (v, None):
        if heads is not None:
            each = heads.unflatten(-1, (-1, head_dim))
            normalized = _normalized(each, eps)
            each.copy_(normalized if weight is None else normalized * weight)


def _normalized(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
