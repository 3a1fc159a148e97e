"""Drafts in a chain (--speculative-eagle-topk 1), judged by SGLang's own code.
Its kernels that are compiled for a GPU are replaced by its Triton kernels for
other devices, and attention by PyTorch's operators."""

from __future__ import annotations

from typing import Any

from host_device_sglang.attention import HostAttnBackend


class _Drafting:
    """Replaces SGLang's container that has a backend for each step of the
    drafter."""

    needs_cpu_seq_lens = True

    def __init__(self, runner: Any, steps: int) -> None:
        self.attn_backends = [HostAttnBackend(runner) for _ in range(steps)]

    def init_forward_metadata(self, forward_batch: Any) -> None:
        for step, backend in enumerate(self.attn_backends):
            backend.init_draft(forward_batch, step)


def install(name: str) -> None:
    """Installs the replacements. `name`: the attention backend's name."""
    from sglang.kernels.ops.speculative import spec_tree, tree
    from sglang.srt.speculative.draft_utils import DraftBackendFactory

    kernels: Any = spec_tree
    if not hasattr(kernels, "sgl_build_tree_kernel_triton"):  # SGLang 0.5.22
        from sglang.srt.speculative import eagle_utils as kernels
    kernels.sgl_build_tree_kernel_efficient = (
        kernels.sgl_build_tree_kernel_triton
    )

    def verify(**its: Any) -> None:
        kernels.verify_tree_greedy_triton(
            **{key.replace("retrive", "retrieve"): its[key] for key in its}
        )

    tree.verify_tree_greedy = verify

    def create_decode(factory: Any) -> Any:
        if factory.speculative_num_steps <= 1:
            return None
        return _Drafting(
            factory.draft_model_runner, factory.speculative_num_steps - 1
        )

    def create_extend(factory: Any) -> Any:
        backend = HostAttnBackend(factory.draft_model_runner)
        backend.prefill_attention_backend_str = name
        backend.decode_attention_backend_str = name
        return backend

    DraftBackendFactory.create_decode_backend = create_decode
    DraftBackendFactory.create_draft_extend_backend = create_extend
