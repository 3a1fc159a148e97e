"""The formats of views for all types of KV that vLLM has, in all its layouts and
in blocks of all sizes, against what vLLM's own functions plan and allocate.

On vLLM itself (label vllm); memory is the host's, and nothing computes.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import types
import typing
import unittest
from collections.abc import Sequence
from typing import Any

import doubles

REAL = doubles.prepare()

from fineserve_vllm import kv_groups  # noqa: E402
from fineserve_vllm.start import in_our_order  # noqa: E402
from fineserve_vllm.view_format import (  # noqa: E402
    GRANULARITY,
    ViewFormat,
    view_format,
)

LAYERS = 2
LONGEST = 1000  # tokens of a request
HEADS, HEAD_SIZE = 8, 128
LATENT, SHARED_KEY = 512, 64  # elements of a token in latent attention

_TRITON = "triton_attn.TritonAttentionBackend"
_FLASHINFER = "flashinfer.FlashInferBackend"
_TURBOQUANT = "turboquant_attn.TurboQuantAttentionBackend"
_SPARSE = "mla.flashmla_sparse.FlashMLASparseBackend"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A type of KV, with a backend that supports it, and the bytes that a token
    takes in a layer: data and, where the type has them, scales."""

    backend: str
    token_bytes: int


_SIDE = HEADS * HEAD_SIZE  # elements of a token's keys, or of its values
KINDS = {
    "auto": Kind(_TRITON, 2 * 2 * _SIDE),
    "float16": Kind(_TRITON, 2 * 2 * _SIDE),
    "bfloat16": Kind(_TRITON, 2 * 2 * _SIDE),
    "fp8": Kind(_TRITON, 2 * _SIDE),
    "fp8_e4m3": Kind(_FLASHINFER, 2 * _SIDE),
    "fp8_e5m2": Kind(_TRITON, 2 * _SIDE),
    # Each head's keys and values have a scale of 4 bytes.
    "int8_per_token_head": Kind(_TRITON, 2 * (_SIDE + 4 * HEADS)),
    "fp8_per_token_head": Kind(_TRITON, 2 * (_SIDE + 4 * HEADS)),
    "int4_per_token_head": Kind(_TRITON, 2 * (_SIDE // 2 + 4 * HEADS)),
    # A scale of 1 byte for 16 elements.
    "nvfp4": Kind(_FLASHINFER, 2 * (_SIDE // 2 + _SIDE // 16)),
    "nvfp4_4over6": Kind(_FLASHINFER, 2 * (_SIDE // 2 + _SIDE // 16)),
    "turboquant_k8v4": Kind(_TURBOQUANT, HEADS * 196),
    "turboquant_4bit_nc": Kind(_TURBOQUANT, HEADS * 134),
    "turboquant_k3v4_nc": Kind(_TURBOQUANT, HEADS * 118),
    "turboquant_3bit_nc": Kind(_TURBOQUANT, HEADS * 102),
    "fp8_ds_mla": Kind(_SPARSE, 656),
    "nvfp4_ds_mla": Kind(_SPARSE, 352),
}
# Gaudi's and AMD's alone.
OF_OTHER_DEVICES = {
    "fp8_inc",
    "octave_k3v3",
    "octave_k3v3_compact",
    "octave_k3v4",
    "ultraquant_4bit",
}
LATENT_KINDS = {
    "auto": Kind("mla.triton_mla.TritonMLABackend", 2 * (LATENT + SHARED_KEY)),
    "fp8": Kind("mla.triton_mla.TritonMLABackend", LATENT + SHARED_KEY),
}
# The number of planes by layout; 0 if the layout is refused.
PLANES = {
    "LBHNC": LAYERS,
    "LBNHC": LAYERS,
    "LHBNC": 0,
    "BLHNC": 1,
    "BLNHC": 1,
    "BHLNC": 1,
}


def backend_of(kind: Kind) -> Any:
    module, name = kind.backend.rsplit(".", 1)
    found = importlib.import_module(f"vllm.v1.attention.backends.{module}")
    return getattr(found, name)


def spec_of(dtype: str, kind: Kind, block_tokens: int) -> Any:
    """Returns the spec as vLLM's attention layers make it and its worker
    completes it."""
    import torch
    from vllm.utils.torch_utils import kv_cache_dtype_str_to_dtype
    from vllm.v1 import kv_cache_interface as kv
    backend = backend_of(kind)
    model = types.SimpleNamespace(dtype=torch.float16)
    common = {
        "block_size": block_tokens,
        "dtype": kv_cache_dtype_str_to_dtype(dtype, model),
        "kv_quant_mode": kv.get_kv_quant_mode(dtype),
    }
    if backend.is_mla():
        opaque = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
        spec: Any = kv.MLAAttentionSpec(
            num_kv_heads=1,
            head_size=LATENT + SHARED_KEY,
            cache_dtype_str=dtype,
            state_content_bytes=opaque.get(dtype),
            **common,
        )
    else:
        spec = kv.FullAttentionSpec(
            num_kv_heads=HEADS, head_size=HEAD_SIZE, **common
        )
    return customized(backend, spec)


def customized(backend: Any, spec: Any) -> Any:
    """Returns the spec as completed by the worker; before vLLM 0.32 the worker
    left this to the backend."""
    from vllm.v1.worker import utils

    by_worker = getattr(utils, "customize_attention_spec", None)
    if by_worker is None:
        return backend.customize_spec(spec)
    return by_worker(backend, spec)


def vllm_config(layout: str) -> Any:
    from vllm.v1.kv_cache_layout import KVCacheLayout

    return types.SimpleNamespace(
        cache_config=types.SimpleNamespace(
            num_gpu_blocks_override=None,
            prefix_cache_retention_interval=None,
            get_resolved_kv_cache_layout=lambda: KVCacheLayout[layout],
        ),
        model_config=types.SimpleNamespace(
            max_model_len=LONGEST, supports_kv_cache_grouping=False
        ),
        scheduler_config=types.SimpleNamespace(
            disable_hybrid_kv_cache_manager=False
        ),
        parallel_config=types.SimpleNamespace(decode_context_parallel_size=1),
        attention_config=types.SimpleNamespace(hisparse_config=None),
        speculative_config=None,
        num_prefill_lookahead_tokens=0,
        max_in_flight_tokens=64,
    )


def plan(layout: str, specs: dict[str, Any], blocks: int) -> Any:
    """Returns vLLM's KVCacheConfig for the memory of `blocks` blocks."""
    config = vllm_config(layout)
    groups = kv_groups.planned(config, specs)
    return doubles.planning().get_kv_cache_config_from_groups(
        config, groups, blocks * kv_groups.block_bytes(groups)
    )


def layers(spec: Any) -> dict[str, Any]:
    return {f"layer{i}": spec for i in range(LAYERS)}


def number_of_blocks(page: int, planes: int) -> int:
    """Returns a suitable number of blocks: if there are several planes, each
    must end on a granule."""
    step = GRANULARITY // math.gcd(GRANULARITY, page) if planes > 1 else 1
    return -(-33 // step) * step


@unittest.skipUnless(REAL, "needs vLLM")
class FormatsTest(unittest.TestCase):
    def check_each_layout(self, spec: Any, layouts: Sequence[str]) -> None:
        for layout in layouts:
            planes = PLANES[layout]
            if layout == "LHBNC" and spec.num_heads == 1:
                planes = LAYERS  # then heads outermost are layers outermost
            blocks = number_of_blocks(spec.page_size_bytes, planes or LAYERS)
            planned = plan(layout, layers(spec), blocks)
            if planes == 0:
                with self.assertRaisesRegex(
                    RuntimeError, "^FineServe: .*VLLM_KV_CACHE_LAYOUT=BLHNC$"
                ):
                    view_format(planned, vllm_config(layout))
                continue
            found = view_format(planned, vllm_config(layout))
            self.assertEqual(
                found,
                ViewFormat(
                    planes,
                    LAYERS * spec.page_size_bytes // planes,
                    blocks,
                    spec.block_size,
                    -(-LONGEST // spec.block_size),
                ),
                layout,
            )
            self.check_bytes(planned, found, layout)

    def check_bytes(
        self, planned: Any, found: ViewFormat, layout: str
    ) -> None:
        """Writes a block of all layers. It must fill exactly the bytes that the
        format assigns to this block, except those left empty at its end."""
        import torch
        from vllm.v1.kv_cache_layout import KVCacheLayout
        from vllm.v1.worker.utils import allocate_kv_cache

        caches = allocate_kv_cache(
            planned, torch.device("cpu"), KVCacheLayout[layout]
        )
        cells = [cache.view(torch.int8) for cache in caches.values()]
        raw = cells[0].as_strided((found.allocation_bytes,), (1,), 0)
        self.assertEqual(
            raw.untyped_storage().nbytes(), found.allocation_bytes
        )
        by_block = raw.view(found.planes, found.blocks, found.page_bytes)
        for block in {0, 1, 17, found.blocks - 1}:
            for cell in cells:
                cell[block] = 1
            size = sum(cell[block].numel() for cell in cells)
            self.assertEqual(by_block[:, block].sum().item(), size)
            self.assertEqual(torch.count_nonzero(raw).item(), size)
            raw.zero_()

    def layouts_of(self, kind: Kind) -> list[str]:
        declared = backend_of(kind).supported_kv_cache_layouts()
        return [it.name for it in declared] if declared else list(PLANES)

    def test_every_type_of_this_vllm_is_looked_at(self) -> None:
        from vllm.config.cache import CacheDType

        self.assertLessEqual(
            set(typing.get_args(CacheDType)), KINDS.keys() | OF_OTHER_DEVICES
        )

    def test_each_type_is_taken_as_allocated(self) -> None:
        for name, kind in KINDS.items():
            with self.subTest(name):
                self.assertIn(
                    name, backend_of(kind).supported_kv_cache_dtypes
                )
                tokens = 64 if kind.backend == _SPARSE else 16
                spec = spec_of(name, kind, tokens)
                self.assertEqual(
                    spec.page_size_bytes, tokens * kind.token_bytes
                )
                self.check_each_layout(spec, self.layouts_of(kind))

    def test_latent_attention_has_one_head_and_no_values(self) -> None:
        for name, kind in LATENT_KINDS.items():
            with self.subTest(name):
                spec = spec_of(name, kind, 16)
                self.assertEqual(spec.page_size_bytes, 16 * kind.token_bytes)
                self.check_each_layout(spec, list(PLANES))

    def test_blocks_of_any_number_of_tokens(self) -> None:
        for tokens in 1, 16, 64, 128:
            for name in "float16", "int8_per_token_head":
                with self.subTest(tokens=tokens, name=name):
                    spec = spec_of(name, KINDS[name], tokens)
                    self.check_each_layout(spec, ["BLNHC", "LBNHC"])

    def test_a_backend_with_planes_only_gets_planes(self) -> None:
        kind = KINDS["turboquant_k8v4"]
        self.assertEqual(in_our_order(self.layouts_of(kind)), ["LBNHC"])

    def test_pages_of_two_sizes_lie_in_one_block(self) -> None:
        """DeepSeek V3.2 keeps an indexer's keys beside each layer's latents."""
        import torch
        from vllm.v1 import kv_cache_interface as kv

        latent = spec_of("fp8_ds_mla", KINDS["fp8_ds_mla"], 64)
        keys = kv.MLAAttentionSpec(
            block_size=64,
            num_kv_heads=1,
            max_tp_shards=1,
            head_size=132,
            dtype=torch.uint8,
            cache_role=kv.SparseCacheRole.INDEXER,
        )
        specs = layers(latent) | {
            f"layer{i}.indexer": keys for i in range(LAYERS)
        }
        planned = plan("BLHNC", specs, 33)
        found = view_format(planned, vllm_config("BLHNC"))
        self.assertEqual(
            found, ViewFormat(1, LAYERS * 64 * (656 + 132), 33, 64, 16)
        )
        self.check_bytes(planned, found, "BLHNC")
        with self.assertRaisesRegex(RuntimeError, "LAYOUT=BLHNC$"):
            view_format(plan("LBHNC", specs, 4096), vllm_config("LBHNC"))
