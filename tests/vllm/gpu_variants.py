"""Variants of a test's model: FP8 KV, half precision, a LoRA adapter; each with
its reference in transformers."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from rounded_reference import K_SCALE, V_SCALE
from tiny_models import Model, Reference

ADAPTER_RANK = 8
# The layers that an adapter changes, including those that compute KV.
_ADAPTED = ["q_proj", "k_proj", "v_proj", "o_proj"]

# vLLM loads the scales of an FP8 KV cache if the checkpoint's configuration
# declares them.
FP8_CHECKPOINT = {
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "format": "dense",
        "config_groups": {},
        "ignore": [],
        "kv_cache_scheme": {
            "num_bits": 8,
            "type": "float",
            "strategy": "tensor",
            "dynamic": False,
            "symmetric": True,
        },
    }
}


class EagleHead(Model):
    """The draft head of an EAGLE: a layer that reads a token's embedding
    together with the model's hidden state for the previous token. It uses the
    embedding and the output layer of the model."""

    def make(self, folder: pathlib.Path) -> str:
        import torch
        from safetensors.torch import load_file, save_file

        path = super().make(folder / "eagle")
        weights = f"{path}/model.safetensors"
        whole = load_file(weights)
        head = {
            name.removeprefix("model."): tensor
            for name, tensor in whole.items()
            if name.startswith("model.layers.")
            and "input_layernorm" not in name  # the head has none
        }
        if head:  # not yet done
            generator = torch.Generator().manual_seed(self.seed)
            head["fc.weight"] = self.deviation * torch.randn(
                128, 2 * 128, generator=generator
            )
            save_file(head, weights, metadata={"format": "pt"})
        return path


class Fp8Model(Model):
    """A model whose checkpoint has scales for keys and values."""

    def make(self, folder: pathlib.Path) -> str:
        import torch
        from safetensors.torch import load_file, save_file

        path = super().make(folder / "fp8")
        weights = f"{path}/model.safetensors"
        tensors = load_file(weights)
        for layer in range(self.layers):
            name = f"model.layers.{layer}.self_attn"
            tensors[f"{name}.k_scale"] = torch.tensor([K_SCALE])
            tensors[f"{name}.v_scale"] = torch.tensor([V_SCALE])
        save_file(tensors, weights, metadata={"format": "pt"})
        return path


class AdaptedReference(Reference):
    """The reference of a model, with the weights of an adapter merged into
    it."""

    def merge(self, adapter: str) -> None:
        from safetensors.torch import load_file

        tensors = load_file(f"{adapter}/adapter_model.safetensors")
        for name, a in tensors.items():
            if ".lora_A." in name:
                b = tensors[name.replace(".lora_A.", ".lora_B.")]
                layer = name.removeprefix("base_model.model.").split(".lora")[0]
                weight = self._model.get_submodule(layer).weight.data
                weight += self._rounded(b) @ self._rounded(a)

    def _rounded(self, weight: Any) -> Any:
        return weight


class HalfReference(AdaptedReference):
    """A reference with weights rounded to half precision, for models of
    deviation 0.08."""

    # In half precision, no token of transformers itself falls short by more
    # than 0.007 in 3,600 tokens; the best two tokens are 0.2 apart in the
    # median.
    tolerance = 0.03

    def __init__(self, path: str, adapter: str | None = None) -> None:
        super().__init__(path)
        self._model.half().float()
        if adapter is not None:
            self.merge(adapter)

    def _rounded(self, weight: Any) -> Any:
        return weight.half().float()


def write_tuning(folder: pathlib.Path) -> dict[str, str]:
    """Writes block sizes for vLLM's LoRA kernel, and returns the environment
    that makes vLLM read them. With the default sizes, 63 of 64 programs have
    nothing to do for models as small as these, and the interpreter runs them
    all."""
    sizes = {
        "block_m": 32,
        "block_n": 16,
        "block_k": 64,
        "split_k": 1,
        "num_warps": 4,
        "num_ctas": 1,
        "num_stages": 2,
    }
    # Keyed by adapters, slices, rows, columns and rank; vLLM takes the nearest
    # entry.
    by_slices = {str(n): {"16": {"128": {"8": sizes}}} for n in (1, 2, 3)}
    (folder / "FineServe_emulated_GPU_SHRINK.json").write_text(
        json.dumps({"1": by_slices})
    )
    return {"VLLM_TUNED_CONFIG_FOLDER": str(folder)}


def make_adapter(folder: pathlib.Path, model: Model, seed: int) -> str:
    """Writes a random LoRA adapter whose contribution is as large as the
    model's own."""
    import torch
    from safetensors.torch import save_file

    path = folder / f"adapter-{seed}"
    path.mkdir()
    (path / "adapter_config.json").write_text(
        json.dumps({
            "peft_type": "LORA",
            "r": ADAPTER_RANK,
            "lora_alpha": ADAPTER_RANK,
            "target_modules": _ADAPTED,
            "bias": "none",
        })
    )
    generator = torch.Generator().manual_seed(seed)
    wide = 4 * 64  # heads × elements
    tensors = {}
    for layer in range(model.layers):
        for name in _ADAPTED:
            inside, out = (wide, 128) if name == "o_proj" else (128, wide)
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            for part, shape in (
                ("A", (ADAPTER_RANK, inside)),
                ("B", (out, ADAPTER_RANK)),
            ):
                tensors[f"{prefix}.lora_{part}.weight"] = 0.15 * torch.randn(
                    shape, generator=generator
                )
    save_file(tensors, str(path / "adapter_model.safetensors"))
    return str(path)
