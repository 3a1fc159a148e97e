"""Stock vLLM on the emulated device, or on a real one: its engines, their models
and the tokens that they must give."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import os
import pathlib
import random
import select
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "torch"), str(HERE / "host_device")]

import build as host_device_build  # noqa: E402
import machine  # noqa: E402
from machine import BUILD, MIB, REAL_GPU  # noqa: E402

VERSION = importlib.metadata.version("vllm")
LIBRARY = BUILD / f"lib/host_device/{VERSION}/libhost_device.so"

# Operators and Triton's kernels run on the host, on the emulated device's memory.
ON_THE_HOST = {
    "HOST_DEVICE_LIBRARY": str(LIBRARY),
    "EMUCUDA_HOST_ACCESS": "allow",
    # A kernel that nothing runs must not go unnoticed.
    "EMUCUDA_UNKNOWN_KERNELS": "refuse",
    "TRITON_INTERPRET": "1",
    # An embedding that is split over GPUs is compiled even if eager.
    "TORCH_COMPILE_DISABLE": "1",
}

SLAB = 2 * MIB
POOL_SLABS = 16
VOCABULARY = 512
MAX_TOKENS = 512  # of a request
# Sums in another order: what the logits of one token may differ by.
TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class Model:
    """A tiny model of random weights. A block of 16 tokens takes `layers` times
    32 KiB: the models' KV differs in format.

    deviation: of the weights. With the usual 0.02 the next token hardly depends
    on context; with 0.2 it depends on each earlier token, and on rounding to
    half precision too; with 0.08 texts begin to repeat themselves.
    """

    layers: int
    seed: int
    deviation: float = 0.2

    @property
    def block_bytes(self) -> int:
        return self.layers * 32 << 10

    def make(self, folder: pathlib.Path) -> str:
        import torch
        from transformers import AutoModelForCausalLM

        kind = type(self).__name__
        path = folder / f"{kind}-{self.layers}-{self.seed}-{self.deviation}"
        if not path.exists():
            torch.manual_seed(self.seed)
            model = AutoModelForCausalLM.from_config(self.configuration())
            model.to(torch.float32).save_pretrained(path)
            _save_tokenizer(path)
        return str(path)

    def configuration(self) -> Any:
        """Its architecture, as transformers describes it."""
        from transformers import LlamaConfig

        return LlamaConfig(**self.sizes(), head_dim=64)

    def engine_arguments(self) -> dict[str, Any]:
        """vLLM's, which it needs besides those of the device."""
        return {}

    def sizes(self) -> dict[str, Any]:
        """What all architectures have."""
        return {
            "vocab_size": VOCABULARY,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": self.layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": MAX_TOKENS,
            "initializer_range": self.deviation,
        }


def _save_tokenizer(path: pathlib.Path) -> None:
    """A word per token: "w7", or what loadgen writes, such as "bato", of which
    the first syllable counts."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    words = syllables + [f"w{i}" for i in range(len(syllables), VOCABULARY)]
    tokenizer = Tokenizer(
        models.WordLevel(
            {word: token for token, word in enumerate(words)},
            unk_token=words[0],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(r"\s+|(?<=[a-z]{2})[a-z]{2}\b"), behavior="removed"
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(path)


class Reference:
    """The same model in transformers, on the CPU."""

    def __init__(self, path: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self._torch = torch
        self._model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32
        )

    tolerance = TOLERANCE

    def wrong(
        self, prompts: Sequence[list[int]], outputs: Sequence[list[int]]
    ) -> int:
        """How many tokens are not the most likely one after all before them.
        Each is judged after the engine's own tokens, so one wrong token does
        not make the rest wrong."""
        return sum(
            int((short > self.tolerance).sum())
            for short in map(self.shortfalls, prompts, outputs)
        )

    def shortfalls(self, prompt: list[int], output: list[int]) -> Any:
        """By how much the logit of each token is below the greatest."""
        torch = self._torch
        with torch.no_grad():
            logits = self._logits(torch.tensor([prompt + output]))[0]
        logits = logits[len(prompt) - 1 : -1]
        given = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
        return logits.max(-1).values - given

    def _logits(self, tokens: Any) -> Any:
        return self._model(tokens).logits


def random_prompts(
    seed: int, count: int, lengths: tuple[int, int], shared: int = 0
) -> list[list[int]]:
    """`count` prompts; half of them begin with the same `shared` tokens."""
    rng = random.Random(seed)
    prefix = [rng.randrange(VOCABULARY) for _ in range(shared)]
    return [
        prefix * (i % 2)
        + [rng.randrange(VOCABULARY) for _ in range(rng.randint(*lengths))]
        for i in range(count)
    ]


def engine_environment(
    device: dict[str, str], shim: bool, runner: int
) -> dict[str, str]:
    """In which vLLM runs on the machine that `device` describes."""
    path = [str(HERE)]
    if REAL_GPU is None:
        path.append(str(HERE / "host_device/plugin"))
    if not shim:
        # For the counters; it does nothing.
        path.append(str(machine.SHIM.parent / "vllm"))
    # Where vLLM lies if this Python has none (tests/gpu/vllm_check.py).
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
            # A package that vLLM imports starts two more Pythons, which load
            # PyTorch to compile kernels that no model here uses.
            "HUMMING_DISABLE_PARALLEL_BUILD": "1",
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
        }
        | ({"FINESERVE_VIEW": "required"} if shim else {})
    )


def engine_arguments() -> dict[str, Any]:
    """vLLM's, the same for all engines on this device."""
    native = {
        "kernel_config": {
            "ir_op_priority": {
                "rms_norm": ["native"],
                "fused_add_rms_norm": ["native"],
            }
        }
    }
    if REAL_GPU is None:
        # What vLLM compiles by nvcc or torch.compile is not run here.
        return native | {
            "attention_backend": "CUSTOM",
            "enforce_eager": True,
            "compilation_config": {"custom_ops": ["none"]},
            # Kernels of vLLM's own; it would choose them for two GPUs.
            "disable_custom_all_reduce": True,
        }
    # Without vLLM's compiled part: PyTorch's operators, Triton's attention, and
    # steps of decoding as CUDA graphs.
    return native | {
        "attention_backend": "TRITON_ATTN",
        "compilation_config": {
            "mode": 0,
            "custom_ops": ["none"],
            "cudagraph_mode": "FULL_DECODE_ONLY",
        },
    }


class EngineEnded(AssertionError):
    """An engine ended instead of answering; the message holds its log's end."""


class VllmEngine(machine.LineProcess):
    """A running gpu_engine.py. It is killed at the end of the test."""

    def __init__(
        self, arguments: dict[str, Any], environment: dict[str, str]
    ) -> None:
        super().__init__(
            [sys.executable, str(HERE / "gpu_engine.py")]
            + [json.dumps(arguments)],
            environment,
            own_session=True,
        )

    def answer(self) -> Any:
        line = self.receive()
        if not line:
            code = self._process.wait()
            raise EngineEnded(
                f"the engine ended with {code}\n{self.stderr()[-9000:]}"
            )
        return json.loads(line)

    def has_answered(self) -> bool:
        return bool(select.select([self._process.stdout], [], [], 0.1)[0])

    def ask(self, do: str, **arguments: Any) -> None:
        """Sends a request; answer() waits for its answer."""
        self.send(json.dumps({"do": do, **arguments}))

    def run(self, do: str, **arguments: Any) -> Any:
        self.ask(do, **arguments)
        return self.answer()

    def _end(self) -> None:
        """Kills all its processes, EngineCore among them."""
        try:
            os.killpg(self._process.pid, 9)
        except ProcessLookupError:
            pass


class VllmMachine(machine.Machine):
    """Base of the tests: models, engines and a pool of 16 slabs of 2 MiB."""

    slab_bytes = SLAB
    pool_slabs = POOL_SLABS
    device_memory = 1 << 30

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        if REAL_GPU is None:
            host_device_build.build(LIBRARY)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls._models = pathlib.Path(folder.name)

    @classmethod
    @functools.cache
    def reference(cls, model: Model) -> Reference:
        return Reference(model.make(cls._models))

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

    def slabs_held(self) -> dict[int, int]:
        """By engine, from 1 in the order of registration; 0: nobody's."""
        held: dict[int, int] = {}
        for run in self.fsctl("slabs")["slabs"]:
            engine = run["engine"] or 0
            held[engine] = held.get(engine, 0) + run["last"] - run["first"] + 1
        return held
