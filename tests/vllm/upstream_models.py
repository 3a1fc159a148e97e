"""Model configurations that vLLM's scheduler tests name, written offline.

The tests build a ModelConfig from a hub name and never load weights. Here the
names resolve to configurations that we write into a separate hub cache. They
have the models' published shapes; the tokenizer is a stand-in of a few words.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

_REVISION = "0" * 40

_OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 768,
    "word_embed_proj_dim": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "vocab_size": 50272,
    "max_position_embeddings": 2048,
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
    "torch_dtype": "float16",
}

_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "head_dim": 128,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "eos_token_id": 151645,
    "torch_dtype": "bfloat16",
}

_QWEN15 = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}

_QWEN25_VL = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 128000,
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "vision_token_id": 151654,
    "image_token_id": 151655,
    "video_token_id": 151656,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vision_config": {"hidden_size": 1280, "out_hidden_size": 2048},
}

_LLAVA = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "image_token_index": 32000,
    "pad_token_id": 32001,
    "projector_hidden_act": "gelu",
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 32064,
    "text_config": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "max_position_embeddings": 4096,
        "torch_dtype": "float16",
        "vocab_size": 32064,
    },
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 336,
        "patch_size": 14,
        "projection_dim": 768,
    },
}

_LLAVA_PREPROCESSOR = {
    "image_processor_type": "CLIPImageProcessor",
    "crop_size": {"height": 336, "width": 336},
    "size": {"shortest_edge": 336},
    "do_center_crop": True,
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
    "rescale_factor": 1 / 255,
}

_LLAVA_PROCESSOR = {
    "processor_class": "LlavaProcessor",
    "image_token": "<image>",
    "patch_size": 14,
    "num_additional_image_tokens": 1,
    "vision_feature_select_strategy": "default",
}


def _tokenizer(special: dict[str, int]) -> dict[str, Any]:
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2, "USER": 3, **special}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": id_,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for text, id_ in vocabulary.items()
            if text.startswith("<")
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": vocabulary,
            "unk_token": "<unk>",
        },
    }


_QWEN25_VL_PREPROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}

_TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
}

MODELS: dict[str, dict[str, Any]] = {
    "facebook/opt-125m": {"config": _OPT},
    "facebook/opt-350m": {
        "config": _OPT
        | {
            "hidden_size": 1024,
            "word_embed_proj_dim": 512,
            "ffn_dim": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "do_layer_norm_before": False,
        }
    },
    "Qwen/Qwen1.5-7B": {"config": _QWEN15},
    "Qwen/Qwen3-0.6B": {"config": _QWEN3},
    "Qwen/Qwen2.5-VL-3B-Instruct": {
        "config": _QWEN25_VL,
        "preprocessor_config": _QWEN25_VL_PREPROCESSOR,
        "tokenizer": _tokenizer(
            {
                "<|vision_start|>": 151652,
                "<|vision_end|>": 151653,
                "<|image_pad|>": 151655,
                "<|video_pad|>": 151656,
            }
        ),
        "tokenizer_config": _TOKENIZER_CONFIG,
    },
    "llava-hf/llava-1.5-7b-hf": {
        "config": _LLAVA,
        "preprocessor_config": _LLAVA_PREPROCESSOR,
        "processor_config": _LLAVA_PROCESSOR,
        "tokenizer": _tokenizer({"<image>": 32000, "<pad>": 32001}),
        "tokenizer_config": _TOKENIZER_CONFIG,
    },
}


def write(home: pathlib.Path) -> None:
    """Writes the configurations in the layout that HF_HOME expects."""
    for name, files in MODELS.items():
        folder = home / "hub" / ("models--" + name.replace("/", "--"))
        snapshot = folder / "snapshots" / _REVISION
        snapshot.mkdir(parents=True, exist_ok=True)
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(_REVISION)
        for stem, content in files.items():
            (snapshot / f"{stem}.json").write_text(json.dumps(content))
