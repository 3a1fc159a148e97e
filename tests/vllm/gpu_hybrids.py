"""Test models whose layers keep KV in different ways, so that vLLM gives them
several groups of blocks."""

from __future__ import annotations

import dataclasses
from typing import Any

from tiny_models import Model

WINDOW = 40  # tokens: two and a half blocks


@dataclasses.dataclass(frozen=True)
class SlidingModel(Model):
    """Gemma 3: three layers attend to a window, the fourth to everything. Each
    group has one of every four layers. A block of 16 tokens takes layers / 4
    times 32 KiB. A long request takes a block for every 16 tokens in one group,
    and three blocks in each of the others."""

    def configuration(self) -> Any:
        from transformers import Gemma3TextConfig

        return Gemma3TextConfig(
            **self.sizes(),
            head_dim=64,
            query_pre_attn_scalar=64,
            sliding_window=WINDOW,
            layer_types=(
                ["sliding_attention"] * 3 + ["full_attention"]
            )
            * (self.layers // 4),
        )


@dataclasses.dataclass(frozen=True)
class ShortConvolutionModel(Model):
    """LFM 2: every second layer keeps a state of three tokens per request, as
    Mamba's layers do. The page of the state is smaller than that of the
    attention layers."""

    def configuration(self) -> Any:
        from transformers import Lfm2Config

        return Lfm2Config(
            **self.sizes(),
            conv_L_cache=3,
            # vLLM reads the following fields; transformers does not.
            conv_dim=128,
            block_dim=128,
            block_ff_dim=256,
            block_auto_adjust_ff_dim=False,
            layer_types=["conv", "full_attention"] * (self.layers // 2),
        )


@dataclasses.dataclass(frozen=True)
class TwoPagesModel(Model):
    """Gemma 4: like Gemma 3, but in layers that attend to everything, heads and
    pages are twice as large: pages have 40 and 80 KiB. A block takes the larger
    pages of a quarter of the layers; the other layers are in groups that leave
    a part of it empty."""

    @property
    def block_bytes(self) -> int:
        return self.layers // 4 * 80 << 10

    def configuration(self) -> Any:
        from transformers import Gemma4TextConfig

        return Gemma4TextConfig(
            **self.sizes(),
            head_dim=80,
            global_head_dim=160,
            hidden_size_per_layer_input=0,
            sliding_window=WINDOW,
            layer_types=(
                ["sliding_attention"] * 3 + ["full_attention"]
            )
            * (self.layers // 4),
        )
