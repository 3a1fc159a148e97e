"""The experts of a model (MoE), by PyTorch's operators in place of vLLM's
kernels.

Each rank computes all of its experts for every token and weighs them, so that
no shape depends on what the router chose, and nothing waits for the device.
"""

from __future__ import annotations

from typing import Any

import torch


def install() -> None:
    from vllm import _custom_ops
    from vllm.model_executor.layers.fused_moe.experts.triton_moe import (
        TritonExperts,
    )

    _custom_ops.topk_softmax = choose
    TritonExperts.apply = apply


def choose(
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    token_expert_indices: torch.Tensor,
    gating_output: torch.Tensor,
    renormalize: bool = False,
    e_score_correction_bias: torch.Tensor | None = None,
    is_padding: torch.Tensor | None = None,  # such rows are not read
) -> None:
    """gating_output: [tokens, experts]; topk_weights, topk_ids: [tokens,
    experts of each]."""
    assert e_score_correction_bias is None
    chances = torch.softmax(gating_output.float(), dim=-1)
    weights, experts = torch.topk(chances, topk_ids.shape[1], dim=-1)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    topk_weights.copy_(weights)
    topk_ids.copy_(experts)


def apply(
    self: Any,
    output: torch.Tensor,
    hidden_states: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    activation: Any,
    global_num_experts: int,
    expert_map: torch.Tensor | None,
    a1q_scale: torch.Tensor | None,
    a2_scale: torch.Tensor | None,
    workspace13: torch.Tensor,
    workspace2: torch.Tensor,
    expert_tokens_meta: Any,
    apply_router_weight_on_input: bool,
) -> None:
    """w1: [experts of this rank, 2 * inner, hidden]; w2: [experts of this rank,
    hidden, inner]; expert_map: the place of each expert in w1, -1 if another
    rank has it."""
    assert activation.value == "silu" and a1q_scale is None
    assert not apply_router_weight_on_input
    places = topk_ids.long()
    if expert_map is not None:
        places = expert_map[places]
    total = torch.zeros_like(output)
    for place in range(w1.shape[0]):
        gate, up = (hidden_states @ w1[place].T).chunk(2, dim=-1)
        each = (torch.nn.functional.silu(gate) * up) @ w2[place].T
        weight = (topk_weights * (places == place)).sum(-1, keepdim=True)
        total = total + weight * each
    output.copy_(total)
