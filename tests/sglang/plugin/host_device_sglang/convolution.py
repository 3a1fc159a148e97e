"""Short convolutions of the kind that LFM 2 has, in PyTorch's operators: SGLang's
are compiled.

A request's state is the last `width - 1` tokens, at its index in
conv_states[:, channels, width - 1].
"""

from __future__ import annotations

from typing import Any

import torch


def install() -> None:
    from sglang.srt.layers.attention.mamba import causal_conv1d

    causal_conv1d.causal_conv1d_fn = _read
    causal_conv1d.causal_conv1d_update = _step


def _convolved(
    tokens: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Takes `tokens` as [channels, tokens], of which the first width - 1 tokens
    are the state."""
    windows = tokens.unfold(-1, weight.shape[-1], 1)
    found = (windows * weight[:, None]).sum(-1)
    return found if bias is None else found + bias[:, None]


def _read(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    query_start_loc: torch.Tensor,
    cache_indices: torch.Tensor,
    has_initial_state: torch.Tensor,
    conv_states: torch.Tensor,
    activation: None,
) -> torch.Tensor:
    """Convolves prompts. `x`: [channels, tokens] of all requests."""
    ends = query_start_loc.tolist()
    found = []
    for i, (begin, end) in enumerate(zip(ends, ends[1:])):
        state = conv_states[cache_indices[i]]
        before = torch.where(has_initial_state[i], state, 0)
        tokens = torch.cat([before, x[:, begin:end]], -1)
        found.append(_convolved(tokens, weight, bias))
        state.copy_(tokens[:, -state.shape[-1] :])
    return torch.cat(found, -1)


def _step(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    conv_state_indices: torch.Tensor,
    **_: Any,
) -> torch.Tensor:
    """Convolves one token of each request. `x`: [requests, channels]."""
    tokens = torch.cat([conv_state[conv_state_indices], x[..., None]], -1)
    conv_state[conv_state_indices] = tokens[..., 1:]
    found = (tokens * weight).sum(-1)
    return found if bias is None else found + bias
