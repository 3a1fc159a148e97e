"""Runs engines of stock SGLang and their models on the emulated device."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
VLLM_TESTS = HERE.parent / "vllm"
HOST_DEVICE = HERE.parents[1] / "tools/lab/torch"
sys.path += [str(HERE.parent / "torch"), str(VLLM_TESTS)]

import machine  # noqa: E402
from engine_process import EngineEnded, EngineProcess, EngineTest  # noqa: E402, F401
from machine import BUILD, MIB  # noqa: E402
from tiny_models import MAX_TOKENS, Model  # noqa: E402
from trading import Trade  # noqa: E402

# Python of an environment with SGLang; the test itself may run in another.
PYTHON = os.environ.get("FINESERVE_SGLANG_PYTHON", sys.executable)

# Each layer has a plane for keys and one for values, and a slab has a granule
# of 2 MiB in each.
LAYERS = 2
PLANES = 2 * LAYERS
SLAB = PLANES * 2 * MIB
POOL_SLABS = 14


@dataclasses.dataclass(frozen=True)
class WideModel(Model):
    """A model whose keys take heads × 256 bytes per token and layer, and its
    values as many."""

    layers: int = LAYERS
    seed: int = 1
    heads: int = 16

    def sizes(self) -> dict[str, Any]:
        return super().sizes() | {
            "hidden_size": 12 * self.heads,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
        }


# SGLang's arguments, the same for all engines on this device.
ARGUMENTS = {
    "dtype": "float32",
    "context_length": MAX_TOKENS,
    "chunked_prefill_size": 256,
    "max_running_requests": 32,
    "attention_backend": "host",
    "sampling_backend": "pytorch",
    "disable_cuda_graph": True,
    # Avoids SGLang's own kernels, which it would choose for two GPUs.
    "disable_custom_all_reduce": True,
    # By default, SGLang leaves gigabytes for activations: more than the device
    # has.
    "mem_fraction_static": 0.9,
    "log_level": "info",
}


def environment_of_stages() -> dict[str, str]:
    """Returns the environment that an engine in stages needs besides: those of
    0.5.22 all send before they receive, which ends if NCCL buffers it."""
    from fineserve_sglang import support  # needs SGLang's environment

    buffered = support.sglang_version() == (0, 5, 22)
    return {"EMUCUDA_SENDS": "buffered"} if buffered else {}


def library() -> pathlib.Path:
    """Builds tools/lab/torch for the PyTorch of SGLang's environment and
    returns its path."""
    environment = pathlib.Path(PYTHON).parents[1].name
    path = BUILD / f"lib/host_device/{environment}/libhost_device.so"
    subprocess.run([PYTHON, HOST_DEVICE / "build.py", path], check=True)
    return path


def engine_environment(device: dict[str, str], shim: bool) -> dict[str, str]:
    """Returns the environment for SGLang on the machine that `device`
    describes."""
    plugins = [HERE / "plugin", HOST_DEVICE / "plugin", VLLM_TESTS]
    return (
        device
        | machine.preload(shim)
        | {
            "HOST_DEVICE_LIBRARY": str(library()),
            "EMUCUDA_HOST_ACCESS": "allow",
            # A kernel that the device cannot run must not go unnoticed.
            "EMUCUDA_UNKNOWN_KERNELS": "refuse",
            "TRITON_INTERPRET": "1",
            "TORCH_COMPILE_DISABLE": "1",
            # Avoids the compiled kernels of SGLang's norms, activations and
            # rotations.
            "SGLANG_FORCE_FUSED_OP_BACKEND": "torch",
            "PYTHONPATH": ":".join(map(str, plugins)),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        | ({"FINESERVE_VIEW": "required"} if shim else {})
    )


class SglangMachine(EngineTest):
    """Base of the tests: models, engines and a pool of 14 slabs of 8 MiB."""

    slab_bytes = SLAB
    pool_slabs = POOL_SLABS
    device_memory = 1 << 30
    STEPS_AHEAD = 20

    def start_daemon(self, *arguments: str, **more: Any) -> Any:
        return super().start_daemon("--planes", str(PLANES), *arguments, **more)

    def start_sglang(
        self,
        model: Model,
        *,
        view: bool,
        environment: dict[str, str] | None = None,
        **arguments: Any,
    ) -> EngineProcess:
        """Starts an engine. Its first answer says that it serves."""
        its_arguments = {
            "model_path": model.make(self._models),
            "skip_tokenizer_init": True,
        } | ARGUMENTS
        if not view:  # a view needs no flag
            its_arguments["max_total_tokens"] = 16384
        engine = EngineProcess(
            [PYTHON, str(HERE / "sglang_engine.py")]
            + [json.dumps(its_arguments | arguments)],
            engine_environment(self.environment, view) | (environment or {}),
        )
        self.addCleanup(engine.kill)
        return engine


class SglangTrade(SglangMachine, Trade):
    """The first engine has pages of one token, the others of 16."""

    MODELS: list[Model] = [WideModel(), WideModel(seed=2, heads=12)]
    IN_TURN, SHORT, HELD_IN_TURN, HELD_WHEN_BUSY = 48, 24, 9, 4

    def start_one(
        self, i: int, environment: dict[str, str], **own: Any
    ) -> EngineProcess:
        return self.start_sglang(
            self.MODELS[i],
            view=True,
            environment=environment,
            page_size=16 if i else 1,
            **own,
        )

    def notice_undrained_slabs(self) -> None:
        """Fails if the second engine's tokens are right although the first one
        returns slabs in use."""
        self.start_all({"HOST_DEVICE_BREAK": "undrained"})
        self.notice_wrong_tokens()

    def notice_wrong_tokens(self) -> None:
        self.ask(0, 64)  # its own books are wrong by now: it may not answer
        try:
            for _ in range(8):
                self.finish(1, self.ask(1, 24))
                if self.wrong[1]:
                    return
        except EngineEnded as error:
            # SGLang's own check, which runs when the engine is idle, found the
            # error first.
            self.assertIn("leak", str(error))
            return
        self.fail("no token was wrong")
