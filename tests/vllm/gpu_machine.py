"""Stock vLLM on the emulated device, or on a real one: its engines, their models
and the tokens that they must give."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "torch"), str(HERE.parents[1] / "tools/lab/torch")]

import build as host_device_build  # noqa: E402
import machine  # noqa: E402
from engine_process import EngineEnded, EngineProcess, EngineTest  # noqa: E402, F401
from machine import BUILD, MIB, REAL_GPU, kill_9  # noqa: E402, F401
from tiny_models import (  # noqa: E402, F401
    MAX_TOKENS,
    TOLERANCE,
    VOCABULARY,
    Model,
    Reference,
    random_prompts,
)

VERSION = importlib.metadata.version("vllm")
LIBRARY = BUILD / f"lib/host_device/{VERSION}/libhost_device.so"

# Operators and Triton's kernels run on the host, on the emulated device's memory.
ON_THE_HOST = {
    "HOST_DEVICE_LIBRARY": str(LIBRARY),
    "EMUCUDA_HOST_ACCESS": "allow",
    # A kernel that the host cannot run must not go unnoticed.
    "EMUCUDA_UNKNOWN_KERNELS": "refuse",
    "TRITON_INTERPRET": "1",
    # Otherwise vLLM compiles an embedding that is split over GPUs, even in
    # eager mode.
    "TORCH_COMPILE_DISABLE": "1",
    # One folder per version: in a shared folder, each version inspects every
    # model again, which takes 12 s.
    "VLLM_CACHE_ROOT": str(LIBRARY.parent / "cache"),
}

SLAB = 2 * MIB
POOL_SLABS = 16


def engine_environment(
    device: dict[str, str], shim: bool, runner: int
) -> dict[str, str]:
    """Returns the environment for vLLM on the machine that `device`
    describes."""
    path = [str(HERE)]
    if REAL_GPU is None:
        path.append(str(HERE.parents[1] / "tools/lab/torch/plugin"))
    if not shim:
        # Only provides the counters; without the shim the plugin does nothing.
        path.append(str(machine.SHIM.parent / "vllm"))
    # Path of vLLM if this Python has none (tests/gpu/vllm_check.py).
    path += filter(None, [os.environ.get("FINESERVE_TEST_VLLM")])
    return (
        device
        | machine.preload(shim)
        | ({} if REAL_GPU is not None else ON_THE_HOST)
        | {
            "PYTHONPATH": ":".join(path),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_USE_V2_MODEL_RUNNER": str(runner - 1),
            # It would be compiled by nvcc.
            "VLLM_USE_FLASHINFER_SAMPLER": "0",
            # Otherwise a package that vLLM imports starts two more Pythons,
            # which load PyTorch to compile kernels that no model here uses.
            "HUMMING_DISABLE_PARALLEL_BUILD": "1",
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
        }
        | ({"FINESERVE_VIEW": "required"} if shim else {})
    )


def engine_arguments() -> dict[str, Any]:
    """Returns the arguments of vLLM that all engines on this device share."""
    native = {
        "kernel_config": {
            "ir_op_priority": {
                "rms_norm": ["native"],
                "fused_add_rms_norm": ["native"],
            }
        }
    }
    if REAL_GPU is None:
        # Code that vLLM compiles by nvcc or torch.compile does not run here.
        return native | {
            "attention_backend": "CUSTOM",
            "enforce_eager": True,
            "compilation_config": {"custom_ops": ["none"]},
            # vLLM's own kernels, which it would choose for two GPUs.
            "disable_custom_all_reduce": True,
        }
    # Needs no compiled part of vLLM: uses PyTorch's operators, Triton's
    # attention, and CUDA graphs for decoding steps.
    return native | {
        "attention_backend": "TRITON_ATTN",
        "compilation_config": {
            "mode": 0,
            "custom_ops": ["none"],
            "cudagraph_mode": "FULL_DECODE_ONLY",
        },
    }


class VllmEngine(EngineProcess):
    """A running gpu_engine.py. It is killed at the end of the test."""

    def __init__(
        self, arguments: dict[str, Any], environment: dict[str, str]
    ) -> None:
        super().__init__(
            [sys.executable, str(HERE / "gpu_engine.py"), json.dumps(arguments)],
            environment,
        )


class VllmMachine(EngineTest):
    """Base of the tests: models, engines and a pool of 16 slabs of 2 MiB."""

    slab_bytes = SLAB
    pool_slabs = POOL_SLABS
    device_memory = 1 << 30

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        if REAL_GPU is None:
            host_device_build.build(LIBRARY)

    def start_vllm(
        self,
        model: Model,
        *,
        view: bool,
        runner: int = 2,
        environment: dict[str, str] | None = None,
        **arguments: Any,
    ) -> VllmEngine:
        """Starts an engine; its first answer says that it serves."""
        size = {
            "kv_cache_memory_bytes": self.pool_slabs * self.slab_bytes,
            "gpu_memory_utilization": 0.05,
        }
        engine = VllmEngine(
            {
                "model": model.make(self._models),
                "skip_tokenizer_init": True,
                "dtype": "float32",
                "max_model_len": MAX_TOKENS,
                "max_num_batched_tokens": 256,
                "max_num_seqs": 32,
                "disable_log_stats": True,
            }
            | engine_arguments()
            | model.engine_arguments()
            | ({} if view else size)  # a view needs no flag
            | arguments,
            engine_environment(self.environment, view, runner)
            | (environment or {}),
        )
        self.addCleanup(engine.kill)
        return engine
