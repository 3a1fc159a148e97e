"""Writes the last section of the compatibility page: kvcached's list beside
ours."""

from __future__ import annotations

_TITLE = """
## Beside kvcached

kvcached 0.1.6 by its README and, where it says "seen", by a run of both with
vLLM 0.30 on the same emulated device. "Not named": its README does not say.

| | kvcached 0.1.6 | FineServe |
|---|---|---|
"""

_NOT_NAMED = "not named"

# Columns: subject, kvcached, FineServe.
_ROWS = (
    ("vLLM", "up to 0.30; refuses 0.32 (seen)", "0.31 to 0.33"),
    ("SGLang", "yes", "0.5.22, 0.5.23: dense models, MLA, hybrids (windows from 0.5.23)"),
    (
        "llama.cpp, TensorRT-LLM, any other program",
        _NOT_NAMED,
        "whole slabs, by size or by stack; nothing is shared while an "
        "allocation lives; run: llama.cpp's CUDA backend, as GPT4All has it "
        "([note 0006](0006-classification.md))",
    ),
    (
        "an engine of one's own, C or C++",
        _NOT_NAMED,
        "a view by `shim/fineserve_kv.h`",
    ),
    (
        "tensor and pipeline parallel",
        "yes",
        "vLLM's and SGLang's, on one machine",
    ),
    (
        "data parallel",
        _NOT_NAMED,
        "vLLM's models with and without experts; SGLang's without attention "
        "DP",
    ),
    ("MLA", "yes", "yes"),
    (
        "sliding window, hybrid, Mamba",
        "yes",
        "yes; run: vLLM's Gemma 3 and 4, LFM 2; SGLang's Gemma 3 and 4, LFM 2, "
        "whose windows and states are memory of the engine",
    ),
    (
        "KV in FP8, INT8 and INT4 per token and head, NVFP4",
        _NOT_NAMED,
        "vLLM's: each type's bytes compared; tokens of FP8 and INT8; SGLang's "
        "FP8",
    ),
    ("engines of several precisions in one pool", "no", "yes"),
    (
        "blocks of 1, 16, 64 and 128 tokens",
        _NOT_NAMED,
        "yes; of 1 token SGLang's only, as vLLM's backends refuse them",
    ),
    (
        "speculative decoding",
        _NOT_NAMED,
        "vLLM's n-grams, draft model, EAGLE, MTP; SGLang's draft model and "
        "EAGLE: a slab waits for the drafter's writes",
    ),
    ("LoRA", _NOT_NAMED, "yes"),
    (
        "one prefix cache for replicas of a model",
        _NOT_NAMED,
        "no: [why](0004-vllm-block-pool.md)",
    ),
    (
        "sleep mode",
        "yes",
        "levels 1 and 2, on one GPU or several; refused with offloading; "
        "SGLang's release_memory_occupation, on one GPU",
    ),
    (
        "offloading to the host",
        _NOT_NAMED,
        "vLLM's OffloadingConnector, on one GPU or several; SGLang's "
        "hierarchical cache",
    ),
    (
        "NIXL and other KV connectors",
        "NIXL",
        "vLLM's NixlConnector (pull) on one GPU each, run with a stand-in for "
        "NIXL: [note 0049](0049-prefill-and-decode.md); others refused",
    ),
    ("ROCm", "yes", "no"),
    (
        "driver calls while serving (seen)",
        "create, map, set access and unmap: 8.3 of each per 1,000 tokens",
        "none",
    ),
    ("a pool that is used up (seen)", "requests queue", "requests queue"),
    (
        "kill -9 of an engine (seen)",
        "its neighbour grows within 1 s; files stay in /dev/shm and /tmp",
        "its slabs are used within 1 s; nothing stays",
    ),
    ("memory is zeroed between engines", "no", "yes"),
    ("what must run besides", "nothing", "one daemon a GPU"),
)


def section() -> str:
    return _TITLE + "".join(f"| {' | '.join(row)} |\n" for row in _ROWS)
