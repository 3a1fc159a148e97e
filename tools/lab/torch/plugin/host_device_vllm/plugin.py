"""Makes vLLM compute on the host while its memory and streams stay CUDA's.

register() is the entry point (group vllm.general_plugins), which vLLM calls in
the API server, EngineCore and workers. $HOST_DEVICE_LIBRARY is the library that
build.py made.
"""

from __future__ import annotations

import os
from typing import Any

from host_device_vllm import (
    breakage,
    convolution,
    experts,
    latent_attention,
    observation,
    triton_in_place,
)

_registered = False


def register() -> None:
    global _registered
    if _registered:
        return
    import torch
    from vllm.v1.attention.backends.mla.prefill.registry import (
        MLAPrefillBackendEnum,
        register_mla_prefill_backend,
    )
    from vllm.v1.attention.backends.registry import (
        AttentionBackendEnum,
        register_backend,
    )

    torch.ops.load_library(os.environ["HOST_DEVICE_LIBRARY"])
    triton_in_place.install()
    register_backend(
        AttentionBackendEnum.CUSTOM,
        "host_device_vllm.attention.HostAttentionBackend",
    )
    latent = "host_device_vllm.latent_attention"
    register_backend(
        AttentionBackendEnum.TRITON_MLA, f"{latent}.HostLatentBackend"
    )
    register_mla_prefill_backend(
        MLAPrefillBackendEnum.CUSTOM, f"{latent}.HostPrefill"
    )
    latent_attention.install()
    _replace_top_k_top_p()
    _replace_split_embedding()
    _find_the_runtime_in_use()
    convolution.install()
    experts.install()
    breakage.install()
    observation.install()
    _registered = True


def _replace_top_k_top_p() -> None:
    """Uses PyTorch's version of top-k and top-p: Triton's interpreter cannot
    run vLLM's kernel."""
    from vllm.v1.sample.ops import topk_topp_sampler as sampler

    sampler.HAS_TRITON = False


def _replace_split_embedding() -> None:
    """Turns off vLLM's kernel for the embedding of a vocabulary that is split
    over ranks. vLLM has the same in PyTorch, for a quantised embedding."""
    from vllm.model_executor.layers import vocab_parallel_embedding as layer

    layer.VocabParallelEmbedding.use_fused_embedding = property(
        lambda _: False, lambda *_: None
    )


def _find_the_runtime_in_use() -> None:
    """Makes vLLM use the CUDA runtime that is in use. The process has two of
    one name: the emulated device's, which is preloaded and answers all calls,
    and the one that PyTorch's wheel loads by path, which gets no calls. vLLM
    takes the one at the lower address (ctypes calls of its sleep mode)."""
    import ctypes

    from vllm.distributed.device_communicators import cuda_wrapper

    def runtime_in_use(name: str) -> str | None:
        return _path_of(ctypes.CDLL(None).cudaMemcpy)

    cuda_wrapper.find_loaded_library = runtime_in_use


def _path_of(function: Any) -> str | None:
    """Returns the path of the library that contains a function."""
    import ctypes

    at = ctypes.cast(function, ctypes.c_void_p).value or 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            first, end = (int(number, 16) for number in fields[0].split("-"))
            if first <= at < end and len(fields) == 6:
                return fields[5].strip()
    return None
