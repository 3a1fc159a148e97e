"""Makes vLLM compute on the host while its memory and streams stay CUDA's.

register() is the entry point (group vllm.general_plugins), which vLLM calls in
the API server, EngineCore and workers. $HOST_DEVICE_LIBRARY is the library that
build.py made.
"""

from __future__ import annotations

import os

from host_device_vllm import (
    breakage,
    convolution,
    observation,
    triton_in_place,
)

_registered = False


def register() -> None:
    global _registered
    if _registered:
        return
    import torch
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
    _replace_top_k_top_p()
    _replace_split_embedding()
    convolution.install()
    breakage.install()
    observation.install()
    _registered = True


def _replace_top_k_top_p() -> None:
    """Triton's interpreter cannot run this one kernel of vLLM's; vLLM has the
    same in PyTorch."""
    from vllm.v1.sample.ops import topk_topp_sampler as sampler

    sampler.apply_top_k_top_p_triton = sampler.apply_top_k_top_p_pytorch


def _replace_split_embedding() -> None:
    """The embedding of a vocabulary that is split over ranks is a kernel of
    vLLM's; for a quantised one it has the same in PyTorch."""
    from vllm.model_executor.layers import vocab_parallel_embedding as layer

    layer.VocabParallelEmbedding.use_fused_embedding = property(
        lambda _: False, lambda *_: None
    )
