"""Test models with latent attention (MLA)."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpu_machine import Model


@dataclasses.dataclass(frozen=True)
class LatentModel(Model):
    """DeepSeek V3 without experts. A token keeps 512 elements from which all
    heads' keys and values are computed, and 64 of a key that heads share: a
    block of 16 tokens takes `layers` times 36 KiB."""

    @property
    def block_bytes(self) -> int:
        return self.layers * 36 << 10

    def engine_arguments(self) -> dict[str, Any]:
        return {
            "attention_backend": "TRITON_MLA",
            "attention_config": {"mla_prefill_backend": "CUSTOM"},
        }

    def configuration(self) -> Any:
        from transformers import DeepseekV3Config

        return DeepseekV3Config(
            **self.sizes(),
            q_lora_rank=64,
            kv_lora_rank=512,
            qk_nope_head_dim=32,
            qk_rope_head_dim=64,
            v_head_dim=32,
            first_k_dense_replace=self.layers,
            num_mtp_layers=0,
        )
