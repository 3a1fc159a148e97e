"""A model of Llama's shape with random weights, as llama.cpp reads it."""

from __future__ import annotations

import pathlib

import gguf
import numpy as np

LAYERS, WIDTH, HEADS, BETWEEN = 4, 256, 4, 512
_SPECIAL = [b"<unk>", b"<s>", b"</s>"]
_BYTES = [f"<0x{i:02X}>".encode() for i in range(256)]
_WORDS = [f"w{i}".encode() for i in range(41)]
_TOKENS = _SPECIAL + _BYTES + _WORDS
_TYPES = [2, 3, 3] + [6] * len(_BYTES) + [1] * len(_WORDS)  # gguf.TokenType

# KV of one token: keys and values of each layer in FP16.
KV_BYTES = LAYERS * 2 * WIDTH * 2


def write(path: pathlib.Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(BETWEEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_file_type(0)
    writer.add_vocab_size(len(_TOKENS))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(_TOKENS)
    writer.add_token_scores([0.0] * len(_TOKENS))
    writer.add_token_types(_TYPES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    for name, shape in _shapes().items():
        writer.add_tensor(name + ".weight", _weights(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (len(_TOKENS), WIDTH),
        "output_norm": (WIDTH,),
        "output": (len(_TOKENS), WIDTH),
    }
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        shapes |= {
            block + "attn_norm": (WIDTH,),
            block + "attn_q": (WIDTH, WIDTH),
            block + "attn_k": (WIDTH, WIDTH),
            block + "attn_v": (WIDTH, WIDTH),
            block + "attn_output": (WIDTH, WIDTH),
            block + "ffn_norm": (WIDTH,),
            block + "ffn_gate": (BETWEEN, WIDTH),
            block + "ffn_up": (BETWEEN, WIDTH),
            block + "ffn_down": (WIDTH, BETWEEN),
        }
    return shapes


def _weights(shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    values = np.random.default_rng(1).standard_normal(shape)
    return (0.05 * values).astype(np.float32)
