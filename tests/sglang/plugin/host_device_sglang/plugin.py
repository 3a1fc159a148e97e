"""Makes SGLang compute on the host while its memory and streams stay CUDA's.

register() is the entry point (group sglang.srt.plugins), which SGLang calls in
each of its processes. $HOST_DEVICE_LIBRARY is the library that
tools/lab/torch/build.py made.
"""

from __future__ import annotations

import os
from typing import Any

NAME = "host"  # for --attention-backend
# The backend that SGLang requires for some models; ours replaces it.
TRITON = "triton"


def register() -> None:
    import torch
    from host_device_sglang import (
        breakage,
        convolution,
        norms,
        observation,
        speculation,
    )
    from host_device_vllm import triton_in_place
    from sglang.srt.layers.attention.attention_registry import (
        register_attention_backend,
    )
    from sglang.srt.mem_cache import memory_pool
    from sglang.srt.server_args import add_attention_backend_choices

    torch.ops.load_library(os.environ["HOST_DEVICE_LIBRARY"])
    triton_in_place.install()
    add_attention_backend_choices([NAME])
    for name in NAME, TRITON:
        register_attention_backend(name)(_attention_backend)
    # Avoids a kernel that is compiled at run time: PyTorch's operators then
    # store keys and values.
    memory_pool.can_use_store_cache = lambda *_: False
    convolution.install()
    norms.install()
    speculation.install(NAME)
    breakage.install()
    observation.install()


def _attention_backend(runner: Any) -> Any:
    from host_device_sglang.attention import HostAttnBackend
    from sglang.srt.models.deepseek_common.attention_backend_handler import (
        AttentionBackendRegistry,
        AttnForwardMethod,
    )

    # Prompts, too, read latents as they are in the cache.
    AttentionBackendRegistry.register(NAME, lambda *_: AttnForwardMethod.MLA)
    return HostAttnBackend(runner)
