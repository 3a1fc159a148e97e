"""Test models with latent attention (MLA)."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from tiny_models import Model


@dataclasses.dataclass(frozen=True)
class LatentModel(Model):
    """DeepSeek V3 without experts. For each token it keeps 512 elements, from
    which the keys and values of all heads are computed, and 64 elements of a
    key that the heads share. A block of 16 tokens takes `layers` times 36
    KiB."""

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
            moe_layer_freq=1,  # SGLang reads it, and transformers does not
            num_mtp_layers=0,
        )


class PredictingModel(LatentModel):
    """A LatentModel with an additional layer that predicts the token after the
    next (MTP). That layer has its own latents in the same blocks; transformers
    omits it."""

    @property
    def block_bytes(self) -> int:
        return (self.layers + 1) * 36 << 10

    def make(self, folder: pathlib.Path) -> str:
        import torch
        from safetensors.torch import load_file, save_file

        path = super().make(folder)
        weights = f"{path}/model.safetensors"
        tensors = load_file(weights)
        own = f"model.layers.{self.layers}"
        if f"{own}.eh_proj.weight" in tensors:
            return path
        generator = torch.Generator().manual_seed(self.seed)
        last = f"model.layers.{self.layers - 1}."
        for name in [name for name in tensors if name.startswith(last)]:
            tensors[name.replace(last, f"{own}.")] = tensors[name].clone()
        wide = tensors["model.norm.weight"].shape[0]
        tensors |= {
            f"{own}.enorm.weight": torch.ones(wide),
            f"{own}.hnorm.weight": torch.ones(wide),
            f"{own}.eh_proj.weight": self.deviation
            * torch.randn(wide, 2 * wide, generator=generator),
            f"{own}.shared_head.norm.weight": tensors["model.norm.weight"].clone(),
            f"{own}.shared_head.head.weight": tensors["lm_head.weight"].clone(),
            f"{own}.embed_tokens.weight": tensors[
                "model.embed_tokens.weight"
            ].clone(),
        }
        save_file(tensors, weights, metadata={"format": "pt"})
        return path

    def configuration(self) -> Any:
        found = super().configuration()
        found.num_nextn_predict_layers = 1
        # The layer that predicts has no experts either.
        found.first_k_dense_replace = self.layers + 1
        return found
