"""The causal convolution of layers with a short state, by PyTorch's operators.

vLLM's Triton kernels for it can be interpreted too, at minutes per prompt.
Nothing here waits for the device.
"""

from __future__ import annotations

from typing import Any

import torch


def install() -> None:
    from vllm.model_executor.layers.mamba import short_conv

    short_conv.causal_conv1d_fn = of_prompts
    short_conv.causal_conv1d_update = of_single_tokens


def of_prompts(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    conv_states: torch.Tensor,
    query_start_loc: torch.Tensor,
    cache_indices: torch.Tensor,
    has_initial_state: torch.Tensor,
    **unused: Any,
) -> torch.Tensor:
    """x: [dim, tokens], the sequences one after another, each beginning at its
    query_start_loc; conv_states: [blocks, dim, width - 1], where sequence s has
    block cache_indices[s]."""
    assert bias is None and unused.get("activation") is None
    kept = weight.shape[1] - 1  # inputs before a token that matter
    starts, ends = query_start_loc[:-1], query_start_loc[1:]
    states = conv_states[cache_indices.flatten()]
    states = states * has_initial_state[:, None, None]
    token = torch.arange(x.shape[1], device=x.device)
    sequence = torch.searchsorted(ends.to(token.dtype), token, right=True)

    def before(last: torch.Tensor, its: torch.Tensor, lag: int) -> torch.Tensor:
        """Returns, for the sequences `its`, the input that is `lag` tokens
        before `last`: [dim, ...]."""
        place = last - lag - starts[its]
        state = states[its, :, (place + kept).clamp(0, kept - 1)]
        given = x[:, (last - lag).clamp(min=0)].T
        return torch.where((place >= 0)[:, None], given, state).T

    out = sum(
        weight[:, kept - lag, None] * before(token, sequence, lag)
        for lag in range(kept + 1)
    )
    every = torch.arange(starts.shape[0], device=x.device)
    conv_states[cache_indices.flatten()] = torch.stack(
        [before(ends, every, kept - i).T for i in range(kept)], dim=-1
    )
    return out


def of_single_tokens(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
    **unused: Any,
) -> torch.Tensor:
    """x: [sequences, dim]."""
    assert bias is None and unused.get("activation") is None
    assert conv_state_indices is not None
    blocks = conv_state_indices.flatten()
    inputs = torch.cat([conv_state[blocks], x[:, :, None]], dim=-1)
    conv_state[blocks] = inputs[:, :, 1:]
    return (inputs * weight).sum(-1)
