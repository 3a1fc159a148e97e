"""Replaces vLLM's compiled kernels where they are missing (carry.py). As soon
as vLLM is imported, it asks what they support, and gets an empty answer. It
also looks some kernels up without using them."""

import torch

_QUESTIONS = (
    "cutlass_group_gemm_supported",
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_scaled_mm_supports_fp4",
    "cutlass_scaled_mm_supports_fp8",
    "mxfp4_experts_quant_supported",
)

_library = torch.library.Library("_C", "FRAGMENT")
for _question in _QUESTIONS:
    _library.define(f"{_question}(int capability) -> bool")
    _library.impl(_question, lambda _: False, "CompositeImplicitAutograd")
# vLLM uses it for memory in the pool of a CUDA graph. Here a strong reference
# suffices.
_library.define("weak_ref_tensor(Tensor input) -> Tensor")
_library.impl(
    "weak_ref_tensor", lambda tensor: tensor.detach(), "CompositeImplicitAutograd"
)
# This has no kernel: a call raises an error.
_library.define("silu_and_mul(Tensor! out, Tensor input) -> ()")
