"""In place of vLLM's compiled kernels where they are not (carry.py): vLLM
asks what they support as soon as it is imported, and gets an empty answer;
and it looks some of them up without using them."""

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
# For memory in the pool of a CUDA graph. A reference that keeps it is enough.
_library.define("weak_ref_tensor(Tensor input) -> Tensor")
_library.impl(
    "weak_ref_tensor", lambda tensor: tensor.detach(), "CompositeImplicitAutograd"
)
# Without a kernel: a call says so.
_library.define("silu_and_mul(Tensor! out, Tensor input) -> ()")
