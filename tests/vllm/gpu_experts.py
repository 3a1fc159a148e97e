"""Test models with experts (MoE)."""

from __future__ import annotations

import dataclasses
from typing import Any

from tiny_models import Model


@dataclasses.dataclass(frozen=True)
class ExpertsModel(Model):
    """Mixtral with eight experts, of which each token takes two. Its attention
    is that of Model."""

    def configuration(self) -> Any:
        from transformers import MixtralConfig

        return MixtralConfig(
            **self.sizes() | {"intermediate_size": 64},
            head_dim=64,
            num_local_experts=8,
            num_experts_per_tok=2,
        )
